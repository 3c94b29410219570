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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Literal
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from fedprikl.documents import canonical, clean, digest, to_plain
from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.alarms import Alarm
from fedprikl.monitoring.status import SeriesStatus, alarm_words, headline, missed_words

Kind = Literal["alarm", "missed", "fault"]

LETTERS = 200  # of what a command said, in an error
LEAST = 24  # bytes of a secret
PREFIX = "whsec_"
LONGEST_WAIT = 60.0
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers after which another try may help


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One thing that happened in a series. All of it is public."""

    kind: Kind
    population: str
    period: int | None  # None: of no period
    words: str
    headline: str  # of the series
    at: str
    plan: str  # fingerprint
    reference: str  # fingerprint
    alarm: Alarm | None = None

    @property
    def identity(self) -> str:
        """The same for the same thing, whenever it is looked at."""
        number = None if self.alarm is None else [self.alarm.number, self.alarm.state]
        words = self.words if self.kind == "fault" else ""
        return digest([self.plan, self.kind, self.period, number, words])[:32]

    def to_bytes(self) -> bytes:
        """A JSON object: what a hook receives, and what is signed."""
        return canonical({"id": self.identity} | to_plain(self))


def notifications(status: SeriesStatus) -> tuple[Notification, ...]:
    """All that is worth a notification, oldest first: missed periods, alarms, faults.

    An alarm is worth another one when its state changes. Which notifications were delivered already
    is for the caller to remember, by `Notification.identity`.
    """
    return tuple(_found(status))


def _found(status: SeriesStatus) -> Iterator[Notification]:
    made = partial(
        Notification,
        population=status.population,
        headline=headline(status),
        at=status.at,
        plan=status.plan,
        reference=status.reference,
    )
    for point in status.points:
        if point.state == "missed":
            words = missed_words(point, status.every)
            yield made(kind="missed", period=point.number, words=words)
    for alarm in status.alarms:
        words = alarm_words(alarm, status)
        yield made(kind="alarm", period=alarm.raised, words=words, alarm=alarm)
    for fault in status.faults:
        yield made(kind="fault", period=None, words=fault)


Hook = Callable[[Notification], None]  # returns once it is delivered; else raises `HookError`


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHook:
    """A command that gets notifications: delivered if it exits with 0.

    >>> CommandHook(argv=("true",)).argv
    ('true',)
    """

    argv: tuple[str, ...]
    timeout: float = 30.0  # seconds

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0] or any("\0" in word for word in self.argv):
            raise InvalidInputError("A command hook names a program.")

    def deliver(self, notification: Notification) -> None:
        """Runs the command with the notification on its standard input."""
        name = repr(os.path.basename(self.argv[0]))  # its arguments may hold a secret
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
                f"The command hook {name} cannot be started: {error.strerror}."
            ) from None
        with running:
            try:
                _, said = running.communicate(notification.to_bytes(), timeout=self.timeout)
            except subprocess.TimeoutExpired:
                _end(running)
                raise HookError(
                    f"The command hook {name} was ended after {self.timeout:g} seconds."
                ) from None
        if running.returncode:
            raise HookError(
                f"The command hook {name} ended with {running.returncode}{_last(said)}."
            )


def _end(running: "subprocess.Popen[bytes]") -> None:
    """Ends the command and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.communicate(timeout=5)


def _last(said: bytes) -> str:
    """The last line of what it said, if there is one."""
    lines = said.decode(errors="replace").strip().splitlines()
    return f": {clean(lines[-1][-LETTERS:])}" if lines else ""


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

    def signature(self, *, identity: str, timestamp: str, body: bytes) -> str:
        """The value of `webhook-signature`.

        The example of the Standard Webhooks specification:

        >>> WebhookSecret.from_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").signature(
        ...     identity="msg_p5jXN8AQM9LWM0D4loKWxJek",
        ...     timestamp="1614265330",
        ...     body=b'{"test": 2432232314}',
        ... )
        'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
        """
        message = b".".join((identity.encode(), timestamp.encode(), body))
        signed = hmac.new(self._key, message, hashlib.sha256).digest()
        return f"v1,{base64.b64encode(signed).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that gets the notifications of a series."""

    url: str = field(repr=False)
    secret: WebhookSecret | None = None  # None: not signed
    timeout: float = 10.0  # seconds for a whole attempt, from the name of the host to the answer
    attempts: int = 4
    wait: float = 1.0  # seconds before the second attempt; then twice as long each time
    clock: Callable[[], float] = field(default=time.time, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        _where(self.url)

    def deliver(self, notification: Notification) -> None:
        """Returns once the receiver answered with 2xx; else raises `HookError`."""
        body = notification.to_bytes()
        for attempt in range(self.attempts):
            problem, again = self._in_time(notification.identity, body)
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
            headers["webhook-signature"] = self.secret.signature(
                identity=identity, timestamp=timestamp, body=body
            )
        asked = request.Request(self.url, data=body, headers=headers, method="POST")  # noqa: S310  checked
        try:
            with _opener().open(asked, timeout=2 * self.timeout):  # by then it has been left alone
                return "", False
        except HTTPError as error:
            error.close()
            redirect = " (a redirect; it is not followed)" if 300 <= error.code < 400 else ""
            return f"it answered {error.code}{redirect}", error.code in AGAIN
        except URLError:
            return "it cannot be reached", True
        except (OSError, http.client.HTTPException, ValueError):
            return "the connection broke", True


def _opener() -> request.OpenerDirector:
    """HTTP and HTTPS only, through the proxy of the environment if it names one.

    Nothing in it follows a redirect: notifications go where the user said, and nowhere else.
    """
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
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
