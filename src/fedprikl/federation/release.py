"""The release: a signed document that says what was found, about what, and what it cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprikl.errors import InvalidInputError
from fedprikl.federation.documents import canonical, digest, parse_document
from fedprikl.federation.keys import SigningKey, verify_signature

__all__ = ["Release"]

FORMAT, VERSION = "fedprikl release", 2
TYPES: dict[str, type | tuple[type, ...]] = {
    "round": str,
    "population": str,
    "estimator": str,
    "value": (int, float),
    "interval": (list, type(None)),
    "verdict": (dict, type(None)),
    "target": str,
    "plan": str,
    "reference": str,
    "privacy": dict,
    "cohorts": list,
    "payload_counts": int,
    "noisy_counts": (dict, type(None)),
    "ledger": (dict, type(None)),
    "software": str,
    "released_at": str,
}


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One released document and its signature. Public."""

    content: dict[str, Any]
    signer: str
    signature: str

    @classmethod
    def sign(cls, content: dict[str, Any], key: SigningKey) -> "Release":
        """The content, checked and signed by the aggregator."""
        body = {"format": FORMAT, "version": VERSION, **content}
        _check(body)
        return cls(body, key.public, key.sign(canonical(body)))

    def is_signed_by(self, public: str) -> bool:
        """Whether the holder of this key made the release, and nobody changed it since."""
        body = canonical(self.content)
        return self.signer == public and verify_signature(public, self.signature, body)

    @property
    def is_intact(self) -> bool:
        """Whether the signature fits the signer the document itself names."""
        return self.is_signed_by(self.signer)

    @property
    def round_id(self) -> str:
        """The round it belongs to."""
        return str(self.content["round"])

    @property
    def plan(self) -> str:
        """Fingerprint of the plan."""
        return str(self.content["plan"])

    @property
    def value(self) -> float:
        """The estimate, in nats."""
        return float(self.content["value"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95% interval, where there is one."""
        limits = self.content["interval"]
        return None if limits is None else (float(limits[0]), float(limits[1]))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content."""
        return digest(self.content)

    def to_bytes(self) -> bytes:
        """As it travels."""
        return canonical(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"release": self.content, "signer": self.signer, "signature": self.signature}

    @classmethod
    def from_bytes(cls, data: str | bytes) -> "Release":
        """The release in a message or a file; `is_signed_by` says whether it is genuine."""
        match parse_document(data, "release"):
            case {"release": dict(content), "signer": str(signer), "signature": str(signature)}:
                _check(content)
                return cls(content, signer, signature)
        raise InvalidInputError("This is not a fedprikl release.")

    @classmethod
    def load(cls, path: str | Path) -> "Release":
        """The release of a file."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise InvalidInputError(f"Cannot read the release {path}: {error.strerror}.") from None


def _check(content: dict[str, Any]) -> None:
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise InvalidInputError(f"This is not a fedprikl release of version {VERSION}.")
    for name, kind in TYPES.items():
        if name not in content or not isinstance(content[name], kind):
            raise InvalidInputError(f"The release lacks a proper field {name!r}.")
    if set(content) - set(TYPES) - {"format", "version"}:
        raise InvalidInputError("The release has fields this version does not know.")
