"""News of a series to an address: JSON in a POST request, signed as Standard Webhooks are.

Three headers come with the body. `webhook-id` is the identity of the notice; it is the same when a
delivery is repeated. `webhook-timestamp` is the time of the attempt, in seconds since 1970. And
`webhook-signature` is `v1,` and, in Base64,

    HMAC-SHA256(secret, webhook-id "." webhook-timestamp "." body).

A receiver computes it again, compares in constant time, and refuses times that are old. Any library
for Standard Webhooks does. Neither the address nor the secret is ever printed: addresses often hold
a token.
"""

import base64
import binascii
import hashlib
import hmac
import http.client
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.notices import Notice

__all__ = ["Webhook", "WebhookSecret", "signature"]

LEAST = 24  # bytes of a secret
PREFIX = "whsec_"
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers after which another try may help
LONGEST_WAIT = 60.0


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
