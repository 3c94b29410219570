"""The three servers of a plan with trust "servers": their keys and addresses, and their rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from fedprikl.documents import named, parse_document, read_exactly, read_file, to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import is_fingerprint, is_sealing_key

Suite = Literal["hybrid", "x25519"]
HYBRID_DIGITS = 2 * (1184 + 32)  # of an ML-KEM-768 key, then an X25519 key, in hexadecimal
LONGEST_ADDRESS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Three servers, none of which learns more than the release. Public.

    Keys and addresses are in the order of the servers' numbers 1, 2, 3. They are empty where all
    parties are in one process.

    >>> Servers().suite, Servers().lost
    ('hybrid', 'nothing')
    """

    suite: Suite = "hybrid"  # that reports are sealed with: ML-KEM-768 with X25519, or X25519 alone
    sealing: tuple[str, ...] = ()  # public keys that reports are sealed to, hexadecimal
    signing: tuple[str, ...] = ()  # Ed25519 public keys that sign the release, hexadecimal
    addresses: tuple[str, ...] = ()  # where reports are sent, like https://one.example
    lost: Literal["nothing", "counts"] = "nothing"  # what is released if one server is lost

    def __post_init__(self) -> None:
        self._check_three("sealing", self.sealing, self._is_sealing)
        self._check_three("signing", self.signing, is_fingerprint)
        self._check_three("addresses", self.addresses, _is_address)

    def _is_sealing(self, key: str) -> bool:
        if self.suite == "x25519":
            return is_sealing_key(key)
        digits = set(key) <= set("0123456789abcdef")
        return digits and len(key) == HYBRID_DIGITS and is_sealing_key(key[-64:])

    @staticmethod
    def _check_three(name: str, found: Sequence[str], fits: Any) -> None:
        if found and (len(set(found)) != 3 or len(found) != 3 or not all(map(fits, found))):
            wanted = {
                "sealing": "public keys of the plan's suite, in hexadecimal digits",
                "signing": "Ed25519 public keys of 64 hexadecimal digits",
                "addresses": "addresses that begin with https://",
            }
            raise InvalidInputError(
                f"`{name}` of the servers are three different {wanted[name]}, or none where all "
                "parties are in one process."
            )

    @classmethod
    def load(cls, path: str | Path) -> "Servers":
        """The servers of a JSON file: an object with fields of this class, or some of them."""
        content = read_file(path, "servers")
        with named(path):
            document = parse_document(content, "servers")
            return read_exactly(cls, to_plain(cls()) | document, "servers")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:  # like https://[::1
        return False
    return (
        parts.scheme == "https"
        and bool(parts.hostname)
        and not (parts.query or parts.fragment or parts.username)
        and address.isprintable()
        and " " not in address
        and len(address) <= LONGEST_ADDRESS
    )
