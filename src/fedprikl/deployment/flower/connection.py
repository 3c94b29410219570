"""Whether a relay can be reached, in words: Flower only says that it is unavailable.

And by how much this machine's clock differs from the relay's: every answer over HTTP has a date.
"""

import os
import re
import socket
import ssl
import time
import tomllib
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedprikl.deployment.answers import CLOCKS
from fedprikl.deployment.flower.plain_words import tls_words
from fedprikl.deployment.settings import check_names
from fedprikl.errors import DeploymentError

SECONDS = 10.0
LONGEST_HEAD = 65536  # bytes of an answer
NAMES = frozenset({"address", "federation", "insecure", "options", "root-certificates"})


def check_connection(name: str) -> None:
    """Raises a `DeploymentError` if the SuperLink of Flower's config file cannot be trusted.

    Also if this machine's clock is too far from the relay's for a release to be believed.

    Connections that Flower manages itself, like its local simulation, are left to it.
    """
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    path = home / "config.toml"
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DeploymentError(
            f"Flower's config file {path} cannot be read: {error.strerror}. Correct it."
        ) from None
    except (ValueError, RecursionError):
        raise DeploymentError(f"Flower's config file {path} is not TOML. Correct it.") from None
    found = known.get(name) if isinstance(known, dict) else None
    if not isinstance(found, dict):
        raise DeploymentError(
            f"Flower's config file {path} has no connection [superlink.{name}]. Add one with "
            "`address` and `root-certificates`."
        )
    check_names(found, NAMES, f"of [superlink.{name}] in Flower's config file {path}")
    address = str(found.get("address", ""))
    host, _, port = address.rpartition(":")
    if not host.strip("[]:") or not port.isdecimal() or found.get("insecure"):
        return
    ahead = check_relay(address, found.get("root-certificates")) or 0.0
    if abs(ahead) > CLOCKS.total_seconds():  # before anything is asked and charged
        which = "ahead of" if ahead > 0 else "behind"
        raise DeploymentError(
            f"This machine's clock is {abs(ahead):.0f} s {which} the clock of the relay {address}, "
            "so a new release would look like an old one. Nothing was asked. Have both set by a "
            "time server (NTP)."
        )


def check_relay(address: str, roots: Path | str | None) -> float | None:
    """Seconds by which this machine's clock is ahead of the relay's, to about a second.

    None if the relay does not tell the time. Raises a `DeploymentError` that says why a relay
    cannot be reached or trusted now.
    """
    name, _, number = address.rpartition(":")
    host = name.strip("[]")
    try:
        port = int(number)
        context = ssl.create_default_context(cafile=None if roots is None else Path(roots))
        with (
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as link,
        ):
            return _seconds_ahead(link, address)
    except IsADirectoryError:
        raise DeploymentError(f"{roots} is a folder, no certificate file. Check it.") from None
    except (FileNotFoundError, TypeError):  # TypeError: the config file names no text
        raise DeploymentError(f"There is no certificate file {roots}. Check the path.") from None
    except ssl.SSLCertVerificationError as error:
        raise DeploymentError(tls_words(error.verify_message, address)) from None
    except ssl.SSLError as error:
        raise DeploymentError(
            f"What answers at {address} does not speak TLS as a relay does ({error.reason}), or "
            f"{roots} holds no certificates. Check both."
        ) from None
    except OSError as error:
        raise DeploymentError(
            f"The relay {address} cannot be reached: {error.strerror or error}. Check the address, "
            "and that it is running."
        ) from None
    except (ValueError, OverflowError):
        raise DeploymentError(
            f"{address!r:.80} is no address, or {roots} no path. Write host:port, with a port of "
            "at most 65535."
        ) from None


def _seconds_ahead(link: ssl.SSLSocket, address: str) -> float | None:
    """Asks for nothing, and reads the date of the answer. No answer is waited for any longer."""
    start, end, head = time.time(), time.monotonic() + SECONDS, b""
    try:
        link.sendall(f"HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        while b"\r\n\r\n" not in head and len(head) < LONGEST_HEAD:
            link.settimeout(max(0.001, end - time.monotonic()))
            piece = link.recv(4096)
            if not piece:
                break
            head += piece
        dates = re.findall(rb"(?im)^date: *([ -~]+)", head)
        told = parsedate_to_datetime(dates[0].decode()).timestamp()
    except (OSError, ValueError, IndexError, OverflowError):
        return None
    return (start + time.time()) / 2 - told - 0.5  # a date has whole seconds
