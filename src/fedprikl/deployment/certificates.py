"""TLS certificates of a relay or of a link within one machine, and a node's key pair."""

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedprikl.errors import InvalidInputError

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
    now = datetime.now(UTC)
    start, end = now - timedelta(days=30), now + timedelta(days=days)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = _name("fedprikl CA"), _name(host)
    authority = (
        x509.CertificateBuilder()
        .subject_name(ca_name)
        .issuer_name(ca_name)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(max(end, now) + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, SHA256())
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(ca_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, SHA256())
    )
    _write(folder / "ca.pem", authority.public_bytes(Encoding.PEM), mode=0o644)
    _write(folder / "server.pem", certificate.public_bytes(Encoding.PEM), mode=0o644)
    write_secret(
        folder / "server.key",
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def write_node_key(path: Path) -> None:
    """A SuperNode's key pair, like `ssh-keygen -t ecdsa -b 384`: path and path.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(path.name + ".pub").write_bytes(public + b"\n")


def write_secret(path: Path, content: bytes) -> None:
    """Readable by its owner only."""
    _write(path, content, mode=0o600)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """All of it, or nothing: a process that dies on the way leaves no half of a key."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _alternative(host: str) -> x509.GeneralName:
    address = _address(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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
