"""Sending the messages of a report to three servers over HTTPS, until all are taken.

    POST {address}/v1/reports    the bytes of the message
    200 {"accepted": true}       taken, now or before
    4xx {"error": words}         refused for good: 403 not in the roster, 409 another report was
                                 first, 410 too late, 413 too large, 422 malformed
    503, any other               later, after the seconds of Retry-After if the server names some;
                                 so is 404, no such plan or period: clocks differ by seconds

The same bytes may be sent any number of times, so nothing has to be known about an answer that was
lost on its way.
"""

import contextlib
import http.client
import json
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from fedprikl.documents import clean
from fedprikl.errors import DeploymentError

PATH = "/v1/reports"
SECONDS = 20.0  # to wait for a server
LONGEST_ANSWER = 4096  # bytes
LONGEST_WORDS = 200
LONGEST_PAUSE = 300.0  # seconds, whatever a server asks for
UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})  # codes of OpenSSL
LATER = frozenset({404, 408, 425, 429})  # of 4xx


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one attempt: taken, refused for good, or neither."""

    taken: bool = False
    refused: bool = False
    words: str = ""
    pause: float = 0.0  # seconds that the server asks to wait
    hopeless: bool = False  # nothing was sent, and no later attempt would be


def trusted_context(roots: Path | str | None) -> ssl.SSLContext:
    """TLS that trusts the certificates of a file only: authorities', or the servers' own.

    None: those of the system.
    """
    try:
        context = ssl.create_default_context(cafile=None if roots is None else str(roots))
    except FileNotFoundError:
        raise DeploymentError(f"There is no certificate file {roots}. Check the path.") from None
    except (ssl.SSLError, OSError):
        raise DeploymentError(f"{roots} holds no certificates in PEM format.") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's own certificate will do
    return context


def post(address: str, message: bytes, context: ssl.SSLContext) -> Answer:
    """One attempt. Whatever goes wrong on the way is an answer too."""
    parts = urlsplit(address)
    link = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=SECONDS, context=context
    )
    try:
        with contextlib.closing(link):
            head = {"Content-Type": "application/octet-stream"}
            link.request("POST", parts.path.rstrip("/") + PATH, message, head)
            answer = link.getresponse()
            body = answer.read(LONGEST_ANSWER)
    except ssl.SSLCertVerificationError as error:
        words = error.verify_message
        if error.verify_code in UNKNOWN_AUTHORITY:
            words = (
                "no authority that this machine trusts has signed it. Give the servers' ca.pem, in "
                "one file: --root-certificates (roots=)"
            )
        return Answer(words=f"its certificate is not accepted: {words}", hopeless=True)
    except OSError as error:
        return Answer(words=error.strerror or str(error) or type(error).__name__)
    except http.client.HTTPException as error:
        return Answer(words=str(error) or type(error).__name__)
    return _read(answer.status, body, answer.getheader("Retry-After"))


def _read(status: int, body: bytes, retry_after: str | None) -> Answer:
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    said = said if isinstance(said, dict) else {}
    if status == 200 and said.get("accepted") is True:
        return Answer(taken=True)
    words = said.get("error")
    words = clean(words)[:LONGEST_WORDS] if isinstance(words, str) else f"status {status}"
    pause = 0.0
    if retry_after is not None and retry_after.isdecimal():
        pause = min(float(retry_after[:6]), LONGEST_PAUSE)
    return Answer(refused=400 <= status < 500 and status not in LATER, words=words, pause=pause)


def deliver(
    messages: Mapping[str, bytes],
    *,
    roots: Path | str | None,
    attempts: int,
    delay: float = 1.0,
    taken: Callable[[str], None],
    note: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Sends each message to its address until all are taken; calls `taken` for each that is.

    Between two attempts it waits for delay x 2^attempt seconds, times a random number from 0.5 to
    1.5: clients that were cut off together do not come back together. A server whose certificate
    is not accepted is not tried again. What is still not taken after all attempts, or was refused,
    is a `DeploymentError`.
    """
    context, left = trusted_context(roots), dict(messages)
    failed: dict[str, Answer] = {}
    for attempt in range(attempts):
        with ThreadPoolExecutor(len(left)) as pool:
            answers = list(pool.map(partial(post, context=context), left, left.values()))
        failed |= zip(left, answers, strict=True)
        for address, answer in zip(list(left), answers, strict=True):
            if answer.taken or answer.refused or answer.hopeless:
                del left[address]
            if answer.taken:
                del failed[address]
                taken(address)
                note(f"{address} has taken the report.")
        if not left:
            break
        if attempt + 1 < attempts:
            drawn = 0.5 + secrets.randbelow(1001) / 1000
            asked = max(answer.pause for answer in answers)
            pause = max(asked, min(delay * 2**attempt * drawn, LONGEST_PAUSE))
            for address in left:
                note(f"{address}: {failed[address].words}; again in {pause:.0f} s.")
            sleep(pause)
    if failed:
        raise DeploymentError(_words(failed))


def _words(failed: Mapping[str, Answer]) -> str:
    said = " ".join(
        f"{address} {'refused' if answer.refused else 'did not take'} the report: "
        f"{answer.words.rstrip('.')}."
        for address, answer in failed.items()
    )
    if all(answer.refused for answer in failed.values()):
        return f"{said} It is not sent there again."
    return f"{said} The report is kept: run it again, and the same bytes are sent."
