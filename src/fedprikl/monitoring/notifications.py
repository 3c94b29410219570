"""Notifications of a series: what there is to say, to a command and to an address."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Literal, Protocol
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from fedprikl.documents import canonical, digest, to_plain
from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.status import AlarmFacts, SeriesStatus, alarm_words, headline, period_name

NO_REASON = "no reason is known"
Kind = Literal["alarm", "missed", "fault"]

LETTERS = 200  # of what a command said, in an error
LEAST = 24  # bytes of a secret
PREFIX = "whsec_"
LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One piece of news about a series. All of it is public."""

    kind: Kind
    population: str
    period: int | None  # None: of no period
    words: str
    headline: str  # of the series
    at: str
    plan: str  # fingerprint
    reference: str  # fingerprint
    alarm: AlarmFacts | None = None

    @property
    def identity(self) -> str:
        """The same for the same news, whenever it is looked at."""
        number = None if self.alarm is None else [self.alarm.number, self.alarm.state]
        words = self.words if self.kind == "fault" else ""
        return digest([self.plan, self.kind, self.period, number, words])[:32]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: what a hook receives."""
        return {
            "id": self.identity,
            "kind": self.kind,
            "population": self.population,
            "period": self.period,
            "words": self.words,
            "headline": self.headline,
            "at": self.at,
            "plan": self.plan,
            "reference": self.reference,
            "alarm": to_plain(self.alarm),
        }

    def to_bytes(self) -> bytes:
        """The same as bytes: what is sent, and signed."""
        return canonical(self.to_dict())


def notices(status: SeriesStatus) -> tuple[Notice, ...]:
    """All that is worth telling, oldest first: missed periods, alarms, faults of the history.

    An alarm is news again when its state changes. Which notices were delivered already is for the
    caller to remember, by `Notice.identity`.
    """
    return tuple(_found(status))


def _found(status: SeriesStatus) -> Iterator[Notice]:
    for point in status.points:
        if point.state == "missed":
            name = period_name(point.number, status.every).capitalize()
            yield _notice(
                status, "missed", point.number, f"{name} was missed: {point.reason or NO_REASON}."
            )
    for alarm in status.alarms:
        words = alarm_words(alarm, status)
        yield _notice(status, "alarm", alarm.raised, words, alarm=alarm)
    for fault in status.faults:
        yield _notice(status, "fault", None, fault)


def _notice(
    status: SeriesStatus,
    kind: Kind,
    period: int | None,
    words: str,
    *,
    alarm: AlarmFacts | None = None,
) -> Notice:
    return Notice(
        kind=kind,
        population=status.population,
        period=period,
        words=words,
        headline=headline(status),
        at=status.at,
        plan=status.plan,
        reference=status.reference,
        alarm=alarm,
    )


class Hook(Protocol):
    """Something that is told the news."""

    def deliver(self, notice: Notice) -> None:
        """Returns once the notice is delivered; else raises `HookError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHook:
    """A command that is told the news: delivered if it exits with 0.

    >>> CommandHook(argv=("true",)).argv
    ('true',)
    """

    argv: tuple[str, ...]
    timeout: float = 30.0  # seconds

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0] or any("\0" in word for word in self.argv):
            raise InvalidInputError("A command hook names a program.")
        if not 0 < self.timeout < 86_400:
            raise InvalidInputError("The timeout of a command hook is between 0 and 86400 seconds.")

    def deliver(self, notice: Notice) -> None:
        """Runs the command with the notice on its standard input."""
        try:
            running = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise HookError(
                f"The command hook {self._name} cannot be started: {error.strerror}."
            ) from None
        with running:
            try:
                _, said = running.communicate(notice.to_bytes(), timeout=self.timeout)
            except subprocess.TimeoutExpired:
                _end(running)
                raise HookError(
                    f"The command hook {self._name} was ended after {self.timeout:g} seconds."
                ) from None
        if running.returncode:
            raise HookError(
                f"The command hook {self._name} ended with {running.returncode}{_last(said)}."
            )

    @property
    def _name(self) -> str:
        """The program; its arguments may hold a secret."""
        return repr(os.path.basename(self.argv[0]))


def _end(running: "subprocess.Popen[bytes]") -> None:
    """Ends the command and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.communicate(timeout=5)


def _last(said: bytes) -> str:
    """The last line of what it said, if there is one."""
    lines = said.decode(errors="replace").strip().splitlines()
    if not lines:
        return ""
    words = "".join(each if each.isprintable() else "\ufffd" for each in lines[-1][-LETTERS:])
    return f": {words}"


AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers after which another try may help


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """The key that sender and receiver share. It never prints."""

    _key: bytes = field(repr=False)

    @classmethod
    def from_file(cls, path: str | Path) -> "WebhookSecret":
        """From a file that holds the secret on one line."""
        try:
            return cls.from_text(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise InvalidInputError(f"Cannot read the webhook's secret from {path}.") from None

    @classmethod
    def from_environment(
        cls, name: str, environment: Mapping[str, str] | None = None
    ) -> "WebhookSecret":
        """From an environment variable."""
        found = (os.environ if environment is None else environment).get(name)
        if not found:
            raise InvalidInputError(
                f"The webhook's secret is missing: the environment variable {name} is not set."
            )
        return cls.from_text(found)

    @classmethod
    def from_text(cls, text: str) -> "WebhookSecret":
        """`whsec_` and Base64, or any text of at least 24 bytes.

        >>> WebhookSecret.from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        WebhookSecret()
        """
        plain = text.strip()
        try:
            if plain.startswith(PREFIX):
                key = base64.b64decode(plain.removeprefix(PREFIX), validate=True)
            else:
                key = plain.encode()
        except (binascii.Error, UnicodeError):
            raise InvalidInputError("The webhook's secret is not proper Base64.") from None
        if len(key) < LEAST:
            raise InvalidInputError(
                f"The webhook's secret has fewer than {LEAST} bytes. Make one with: "
                "openssl rand -base64 32"
            )
        return cls(key)

    def sign(self, message: bytes) -> bytes:
        """HMAC-SHA256 of the message."""
        return hmac.new(self._key, message, hashlib.sha256).digest()


def signature(secret: WebhookSecret, *, identity: str, timestamp: str, body: bytes) -> str:
    """The value of `webhook-signature`.

    The example of the Standard Webhooks specification:

    >>> secret = WebhookSecret.from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    >>> signature(
    ...     secret,
    ...     identity="msg_p5jXN8AQM9LWM0D4loKWxJek",
    ...     timestamp="1614265330",
    ...     body=b'{"test": 2432232314}',
    ... )
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = secret.sign(b".".join((identity.encode(), timestamp.encode(), body)))
    return f"v1,{base64.b64encode(signed).decode()}"


class _NoRedirects(request.HTTPRedirectHandler):
    """A redirect is an error: news go where the user said, and nowhere else."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told the news of a series."""

    url: str = field(repr=False)
    secret: WebhookSecret | None = None  # None: not signed
    timeout: float = 10.0  # seconds for a whole attempt, from the name of the host to the answer
    attempts: int = 4
    wait: float = 1.0  # seconds before the second attempt; then twice as long each time
    clock: Callable[[], float] = field(default=time.time, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        _where(self.url)
        if self.attempts < 1 or not 0 < self.timeout < 3600 or self.wait < 0:
            raise InvalidInputError("A webhook takes at least one attempt and a positive timeout.")

    def deliver(self, notice: Notice) -> None:
        """Returns once the receiver answered with 2xx; else raises `HookError`."""
        body = notice.to_bytes()
        for attempt in range(self.attempts):
            problem, again = self._in_time(notice.identity, body)
            if not problem:
                return
            if not again or attempt + 1 == self.attempts:
                break
            self.sleep(min(self.wait * 2**attempt, LONGEST_WAIT))
        raise HookError(
            f"The webhook at {_where(self.url)} was not delivered ({attempt + 1} of "
            f"{self.attempts} attempts): {problem}. Check its address and whether it is running."
        )

    def _in_time(self, identity: str, body: bytes) -> tuple[str, bool]:
        """As `_try`, within the timeout. A socket's own timeout begins anew with every byte.

        What takes longer is left alone: its thread ends by itself, or with this process.
        """
        found = [(f"no answer within {self.timeout:g} seconds", True)]
        thread = Thread(
            target=lambda: found.append(self._try(identity, body)), name="webhook", daemon=True
        )
        thread.start()
        thread.join(self.timeout)
        return found[-1]

    def _try(self, identity: str, body: bytes) -> tuple[str, bool]:
        """The problem, empty if there is none, and whether another attempt may help."""
        timestamp = str(int(self.clock()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "fedprikl",
            "webhook-id": identity,
            "webhook-timestamp": timestamp,
        }
        if self.secret is not None:
            headers["webhook-signature"] = signature(
                self.secret, identity=identity, timestamp=timestamp, body=body
            )
        asked = request.Request(self.url, data=body, headers=headers, method="POST")  # noqa: S310  checked
        try:
            with _opener().open(asked, timeout=self.timeout):
                return "", False
        except HTTPError as error:
            error.close()
            moved = 300 <= error.code < 400
            words = " (a redirect; it is not followed)" if moved else ""
            return f"it answered {error.code}{words}", error.code in AGAIN
        except TimeoutError:
            return f"no answer within {self.timeout:g} seconds", True
        except URLError as error:
            if isinstance(error.reason, TimeoutError):
                return f"no answer within {self.timeout:g} seconds", True
            return "it cannot be reached", True
        except (OSError, http.client.HTTPException, ValueError):
            return "the connection broke", True


def _opener() -> request.OpenerDirector:
    """HTTP and HTTPS only, through the proxy of the environment if it names one."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        _NoRedirects(),
    ):
        opener.add_handler(handler)
    return opener


def _where(url: str) -> str:
    """Scheme and host of an address, which may be shown; the rest may be a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or not url.isascii():
        raise InvalidInputError(
            "A webhook's address begins with http:// or https://, names a host and is in ASCII."
        )
    if any(not each.isprintable() or each == " " for each in url):
        raise InvalidInputError("A webhook's address has no spaces and no control characters.")
    if parts.username or parts.password:
        raise InvalidInputError("A webhook's address holds no user name and no password.")
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"
