"""A roster: the public keys of all clients that may take part. Public.

Without one, whoever carries the messages can pose as clients. Every party has its own copy, a plain
text file; the signed plan names its fingerprint, so all of them mean the same clients.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fedprikl.errors import InvalidInputError

SMALLEST = 3  # clients of a secure sum
_LABEL = b"fedprikl/roster/1/"
_HEX = re.compile("[0-9a-f]{64}")


def is_fingerprint(value: object) -> bool:
    """Whether this is the text of a SHA-256."""
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Roster:
    """Ed25519 public keys of 32 bytes, in no order. Names are for people and are not kept."""

    keys: frozenset[bytes]

    def __post_init__(self) -> None:
        if any(not isinstance(key, bytes) or len(key) != 32 for key in self.keys):
            raise InvalidInputError("A roster holds Ed25519 public keys of 32 bytes.")
        if len(self.keys) < SMALLEST:
            raise InvalidInputError(
                f"The roster holds {len(self.keys)} keys; a secure sum needs at least {SMALLEST} "
                "clients."
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<Roster of {len(self)}, {self.fingerprint[:8]}...>"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the keys in sorted order: the same for the same clients, however listed."""
        return hashlib.sha256(_LABEL + b"".join(sorted(self.keys))).hexdigest()

    def holds(self, keys: Collection[bytes]) -> bool:
        """Whether all of these may take part."""
        return self.keys.issuperset(keys)

    @classmethod
    def parse(cls, text: str) -> "Roster":
        """One key per line, as `fedprikl keys --site` prints it; a name may follow, # comments."""
        found: dict[bytes, int] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if not _HEX.fullmatch(words[0]):
                raise InvalidInputError(
                    f"Line {number} of the roster does not start with a key: 64 hexadecimal "
                    "digits in lower case, as `fedprikl keys --site` prints them."
                )
            key = bytes.fromhex(words[0])
            if key in found:
                raise InvalidInputError(
                    f"Lines {found[key]} and {number} of the roster hold the same key. Every "
                    "client has a key of its own."
                )
            found[key] = number
        return cls(frozenset(found))

    @classmethod
    def load(cls, path: str | Path) -> "Roster":
        """The roster of a file."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise InvalidInputError(f"Cannot read the roster {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InvalidInputError(f"The roster {path} is not a text in UTF-8.") from None
