"""TLS of a federation: certificates and keys, and whether a relay can be reached and trusted.

Also by how much this machine's clock differs from the relay's: every answer over HTTP has a date.
"""

import ipaddress
import re
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.store import replace_file

CERTIFICATES = ("ca.pem", "server.pem", "server.key")
CLOCKS = 300  # seconds that a clock may be ahead of the relay's or the aggregator's, or behind
NOTICED = 3.0  # seconds that clocks may differ before it is worth a word
SECONDS = 10.0  # to wait for a relay
WARNED = 21.0  # days before a certificate's end that it is worth a word
MAKE_NODE_KEY = 'ssh-keygen -t ecdsa -b 384 -N "" -f node'
LONGEST_HEAD = 65536  # bytes of an answer
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def check_certificates(*, host: str, days: float) -> None:
    """Says before anything is made what no certificate can hold."""
    if not 0 < days <= 36500:  # nor not-a-number
        raise InvalidInputError("A certificate is valid for more than 0 and up to 36500 days.")
    if len(host) > 64 or not (_address(host) or _NAME.fullmatch(host)):
        raise InvalidInputError(
            f"{host!r:.80} is no name of a host, nor an address. A name has at most 64 letters "
            "a-z, digits, hyphens and dots; write one with other letters as DNS does: xn--..."
        )


def write_certificates(folder: Path, *, host: str = "127.0.0.1", days: float = 1.0) -> None:
    """ca.pem, server.pem and server.key for a host, a name or an address.

    The key of the authority is not kept: whoever renews the certificate renews ca.pem as well. A
    negative number of days makes a certificate that has expired.
    """
    now, address = datetime.now(UTC), _address(host)
    end = now + timedelta(days=days)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_public = ca_key.public_key()
    authority = (
        _certificate("fedprikl CA", ca_public, until=max(end, now) + timedelta(days=1), signs=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_public), critical=False)
        .sign(ca_key, SHA256())
    )
    own = x509.DNSName(host) if address is None else x509.IPAddress(address)
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public)
    certificate = (
        _certificate(host, key.public_key(), until=end, signs=False)
        .add_extension(x509.SubjectAlternativeName([own]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(ca_key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    replace_file(folder / "ca.pem", authority.public_bytes(Encoding.PEM), mode=0o644)
    replace_file(folder / "server.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)
    write_secret(folder / "server.key", private)


def _certificate(
    subject: str, public: ec.EllipticCurvePublicKey, *, until: datetime, signs: bool
) -> x509.CertificateBuilder:
    """One of the authority, or of a host that it signs."""
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        unsigned_certificate(subject, "fedprikl CA", public, until=until)
        .add_extension(x509.BasicConstraints(signs, 0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
    )


def unsigned_certificate(
    subject: str, issuer: str, public: CertificatePublicKeyTypes, *, until: datetime
) -> x509.CertificateBuilder:
    """What all certificates have in common; a clock may be behind by a month."""

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=30))
        .not_valid_after(until)
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def write_secret(path: Path, content: bytes) -> None:
    """Readable by its owner only."""
    replace_file(path, content, mode=0o600)


def write_node_key(path: Path) -> None:
    """A SuperNode's key pair, like `ssh-keygen -t ecdsa -b 384`: path and path.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def check_file(path: Path | None, what: str, advice: str, *, folder: bool = False) -> None:
    """Says early that a file is missing; Flower would start again and again."""
    if path is not None and not path.exists():
        raise InvalidInputError(f"There is no {what} {path}. {advice}")
    if path is not None and path.is_dir() and not folder:
        raise InvalidInputError(f"{path} is a folder, no {what}. {advice}")


def check_node_key(path: Path) -> None:
    """Says early what Flower would say again and again."""
    check_file(path, "node key", f"Make it: `{MAKE_NODE_KEY}`.")
    try:
        found = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it has a password
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise InvalidInputError(
            f"{path} is no elliptic-curve private key without a password, as ssh-keygen makes it. "
            f"Flower needs one: `{MAKE_NODE_KEY}`."
        )


def refused_words(reason: str, relay: str) -> str:
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


def first_end(path: Path) -> datetime:
    """When the first of the certificates in a file ends."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
        return min(each.not_valid_after_utc for each in found)
    except OSError as error:
        raise DeploymentError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise DeploymentError(f"{path} holds no certificate that can be read.") from None


def days_left(end: datetime, *, at: str) -> float:
    """Days until a certificate ends; negative: it has."""
    return (end - datetime.fromisoformat(at)) / timedelta(days=1)


def certificate_words(end: datetime, *, at: str) -> str:
    """When a certificate ends, with a warning in time.

    >>> end = datetime(2027, 3, 1, tzinfo=UTC)
    >>> certificate_words(end, at="2027-02-01T00:00:00+00:00")
    'The certificate is valid until 2027-03-01.'
    >>> certificate_words(end, at="2027-02-25T00:00:00+00:00")[:38]
    'The certificate ends in 4 days (2027-0'
    """
    left = days_left(end, at=at)
    if left >= WARNED:
        return f"The certificate is valid until {end:%Y-%m-%d}."
    when = f"ends in {left:.0f} days" if left >= 0 else f"ended {-left:.0f} days ago"
    return (
        f"The certificate {when} ({end:%Y-%m-%d}). Have the relay's operator renew it in time; "
        "everybody then needs the new ca.pem."
    )


def check_relay(address: str, roots: Path | str | None) -> float:
    """Seconds by which this machine's clock is ahead of the relay's; see `look_at_relay`."""
    return look_at_relay(address, roots)[0]


def look_at_relay(address: str, roots: Path | str | None) -> tuple[float, datetime]:
    """Seconds by which this machine's clock is ahead of the relay's, and its certificate's end.

    To about a second; 0 if the relay does not tell the time. Raises a `DeploymentError` that says
    why a relay cannot be reached or trusted now.
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
            seconds = ssl.cert_time_to_seconds(str((link.getpeercert() or {})["notAfter"]))
            return _seconds_ahead(link, address), datetime.fromtimestamp(seconds, UTC)
    except IsADirectoryError:
        raise DeploymentError(f"{roots} is a folder, no certificate file. Check it.") from None
    except (FileNotFoundError, TypeError):  # TypeError: the config file names no text
        raise DeploymentError(f"There is no certificate file {roots}. Check the path.") from None
    except ssl.SSLCertVerificationError as error:
        raise DeploymentError(refused_words(error.verify_message, address)) from None
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


def _seconds_ahead(link: ssl.SSLSocket, address: str) -> float:
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
        return 0.0
    return (start + time.time()) / 2 - told - 0.5  # a date has whole seconds
