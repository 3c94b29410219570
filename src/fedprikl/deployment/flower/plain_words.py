"""Flower's errors in words that say what happened and what to do, in the processes of a party.

Flower logs numbers ("305", "2004") and addresses of its own pages. `explain_flower` puts a filter
on its logger, which replaces such a message by ours. A message that is not known stays as it is.
"""

import logging
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Flower brings it, and whoever has no Flower is told so
    import httpx

from fedprikl.deployment.flower.tuning import CLOCKS, hasten

NOTICED = 3.0  # seconds that clocks may differ before it is worth a word

Words = Callable[[str, str, str], str]


def _unknown_site(_: str, relay: str, key: str) -> str:
    return (
        f"The relay {relay} does not know this site. Send {key}.pub to the organiser, who "
        "registers it: `flwr supernode register node.pub NAME`, where NAME is the relay's in "
        f"Flower's config file. If it was registered: is {key} the same key? This site tries again "
        "by itself."
    )


def _other_version(message: str, relay: str, _: str) -> str:
    versions = re.findall(r"version (\d[\w.]*\w)", message)
    which = f" (theirs {versions[0]}, ours {versions[-1]})" if len(versions) > 1 else ""
    return (
        f"The relay {relay} has another version of Flower than this machine{which}. Install the "
        "same fedprikl on both: it names the version of Flower that it works with."
    )


def _odd_key(_: str, __: str, key: str) -> str:
    return (
        f"{key} is no key that Flower accepts: it has to be an elliptic-curve private key without "
        'a password. Make one: `ssh-keygen -t ecdsa -b 384 -N "" -f node`.'
    )


def tls_words(reason: str, relay: str) -> str:
    """Why a certificate is not accepted, and whose task it is to mend that."""
    if "expired" in reason:
        advice = "Have the relay's operator renew it, and take the new ca.pem."
    elif "mismatch" in reason:
        advice = "It names another host: use the name that the relay was started with (--name)."
    else:
        advice = "Take ca.pem from the relay's operator once more: it is not this relay's."
    said = f"The certificate of the relay {relay} is not accepted: {reason.rstrip('.')}."
    return f"{said} Nothing was sent. {advice}"


def clock_words(ahead: float, relay: str) -> str:
    """That this machine's clock differs from the relay's, and what follows; empty if it does not.

    >>> clock_words(0.7, "relay:9443")
    ''
    >>> clock_words(-8.2, "relay:9443")[:70]
    "This machine's clock is 8 s behind the clock of the relay relay:9443. "
    """
    if abs(ahead) < NOTICED:
        return ""
    which = "ahead of" if ahead > 0 else "behind"
    follows = (
        f"It accepts {CLOCKS} s, unless it was started by other means than `fedprikl relay`: then "
        "5 s ahead are too much."
        if abs(ahead) < CLOCKS
        else f"It refuses this machine until the clocks agree to within {CLOCKS} s."
    )
    said = f"This machine's clock is {abs(ahead):.0f} s {which} the clock of the relay {relay}."
    return f"{said} {follows} Have both set by a time server (NTP)."


def _ended(_: str, relay: str, __: str) -> str:
    return (
        f"Flower's SuperNode has ended. If nobody stopped this site, the relay {relay} refused it: "
        f"the clocks differ by more than {CLOCKS} s, or the site was unregistered."
    )


def _untrusted(message: str, relay: str, _: str) -> str:
    found = re.search(r"certificate verify failed: (.*?)(?: \(_ssl|$)", message, re.MULTILINE)
    return tls_words(found[1] if found else "the handshake failed", relay)


def _unreachable(message: str, relay: str, _: str) -> str:
    pause = re.search(r"in ([\d.]+) seconds", message)
    later = f"in {float(pause[1]):.0f} s" if pause else "later"
    return f"The relay {relay} cannot be reached. Is it running, at this address? Next try {later}."


def _own_untrusted(_: str, address: str, __: str) -> str:
    return (
        f"What answers at {address} is not this site's own SuperNode: its certificate is another. "
        "Nothing was sent. Start this site again, which takes another port."
    )


def _own_unreachable(_: str, address: str, __: str) -> str:
    return (
        f"This site's own SuperNode ({address}) does not answer yet; trying again. Its lines in "
        "this log say whether it reaches the relay."
    )


_KNOWN: tuple[tuple[re.Pattern[str], Words], ...] = (
    (re.compile(r"\[code: 2004\]"), _unknown_site),
    (re.compile(r"Exit Code: 606|version mismatch"), _other_version),
    (re.compile(r"Exit Code: 302"), _odd_key),
    (re.compile(r"CERTIFICATE_VERIFY_FAILED"), _untrusted),
    (re.compile(r"SuperNode terminated gracefully"), _ended),
    (re.compile(r"^Connection attempt failed, retrying"), _unreachable),
)
_OF_OWN_SUPERNODE: tuple[tuple[re.Pattern[str], Words], ...] = (
    (re.compile(r"CERTIFICATE_VERIFY_FAILED"), _own_untrusted),
    (re.compile(r"^Connection attempt failed, retrying"), _own_unreachable),
)
_SILENT = re.compile(r"^SSL/TLS handshake error detected|^EXPERIMENTAL: SuperExec authentication")


def in_plain_words(message: str, *, relay: str, key: str = "node", own: bool = False) -> str:
    """What a message of Flower means; empty if it says nothing more than others do.

    `own`: what is at the address `relay` is the site's own SuperNode, as its executor sees it.

    >>> in_plain_words("Connection attempt failed, retrying in 3.04 seconds", relay="relay:9443")
    'The relay relay:9443 cannot be reached. Is it running, at this address? Next try in 3 s.'
    """
    if _SILENT.search(message):
        return ""
    all_known = _OF_OWN_SUPERNODE if own else _KNOWN
    told = (words(message, relay, key) for known, words in all_known if known.search(message))
    return next(told, message)


def no_task_words(error: "httpx.HTTPError", *, own: bool = False) -> str:
    """Why there is no task now, from what went wrong when one was asked for.

    `own`: a site's executor asked, and asks the site's own SuperNode; else it is the relay.
    """
    url = error.request.url
    where = f"{url.host}:{url.port}"
    who = f"This site's own SuperNode ({where})" if own else where
    response: httpx.Response | None = getattr(error, "response", None)
    if response is not None:
        code = response.status_code
        if code in (401, 403):
            advice = (
                "Start this site again: both get a new one."
                if own
                else "Take the relay's superexec.secret (--secret), and check that both clocks are "
                "right."
            )
            return f"{who} refuses this process (HTTP {code}): it has another secret. {advice}"
        return f"{who} hands out no tasks now (HTTP {code}); trying again."
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return (_own_untrusted if own else _untrusted)(str(error), where, "")
    if own:
        return _own_unreachable("", where, "")
    return f"Nothing answers at {where} yet ({type(error).__name__}); trying again."


class _PlainWords(logging.Filter):
    """Replaces the messages of a logger."""

    def __init__(self, relay: str, key: str, own: bool) -> None:
        super().__init__()
        self._relay, self._key, self._own = relay, key, own

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = in_plain_words(
            record.getMessage(), relay=self._relay, key=self._key, own=self._own
        )
        record.args = ()
        return bool(record.msg)


def explain_flower(relay: str, key: str = "node", *, own: bool = False) -> None:
    """From now on, what Flower logs in this process is in plain words; see `in_plain_words`."""
    logging.getLogger("flwr").addFilter(_PlainWords(relay, key, own))


def flower_supernode() -> None:
    """Flower's own command of this name, which then speaks plainly."""
    from flwr.supernode import cli

    hasten("flwr.supernode.start_client_internal")
    explain_flower(_option("--superlink"), _option("--auth-supernode-private-key"))
    cli.flower_supernode()


def _option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]
