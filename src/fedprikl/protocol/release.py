"""The release: a signed document that says what was found, about what, and what it cost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprikl.documents import canonical, check_version, digest, parse_document
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.shapes import ANY, NUMBER, TEXT, TRUTH, WHOLE, Pair, Shape, fits

__all__ = ["Release"]

FORMAT, VERSION = "fedprikl release", 3
SHAPE: dict[str, Shape] = {
    "format": TEXT,
    "version": WHOLE,
    "round": TEXT,
    "request": TEXT,  # the organiser's nonce: an old release cannot pass for this one
    "population": TEXT,
    "estimator": TEXT,
    "value": NUMBER,
    "interval": (None, Pair),
    "verdict": (
        None,
        {
            "drifted": TRUTH,
            "statistic": NUMBER,
            "threshold": NUMBER,
            "false_alarm": NUMBER,
            "design_effect": NUMBER,
            "unit": TEXT,
            "statement": TEXT,
        },
    ),
    "target": TEXT,
    "plan": TEXT,
    "reference": TEXT,
    "privacy": {
        "claimed_epsilon": (None, NUMBER),
        "true_epsilon": (None, NUMBER),
        "delta": NUMBER,
        "holds": TRUTH,
        "insecure": TRUTH,
        "unit": TEXT,
        "mechanism": TEXT,
        "released": TEXT,
        "trust": TEXT,
        "sensitivity": (None, NUMBER),
        "statement": TEXT,
    },
    "cohorts": [{"batch": WHOLE, "clients": WHOLE, "included": WHOLE, "dropped_because": TEXT}],
    "payload_counts": WHOLE,
    "noisy_counts": (
        None,
        {
            "batch": [WHOLE],
            "cells": [WHOLE],
            "counts": [NUMBER],
            "rest": [NUMBER],
            "records": [WHOLE],
            "noise_sd": [NUMBER],
            "noise": ({"kind": TEXT}, {"kind": TEXT, "scale": NUMBER, "sums": [NUMBER]}),
        },
    ),
    "ledger": (None, {"count": WHOLE, "hash": TEXT}),
    "software": TEXT,
    "released_at": TEXT,
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
        document = parse_document(data, "release")
        if not fits(document, {"release": ANY, "signer": TEXT, "signature": TEXT}):
            raise InvalidInputError(
                "This is not a fedprikl release: release, signer and signature are needed, and "
                "nothing else."
            )
        _check(document["release"])
        return cls(document["release"], document["signer"], document["signature"])

    @classmethod
    def load(cls, path: str | Path) -> "Release":
        """The release of a file."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise InvalidInputError(f"Cannot read the release {path}: {error.strerror}.") from None


def _check(content: Any) -> None:
    if not isinstance(content, dict):
        raise InvalidInputError("This is not a fedprikl release.")
    advice = "Have it released again, or read it with the software that made it."
    check_version(content, FORMAT, VERSION, advice)
    for name, shape in SHAPE.items():
        if name not in content or not fits(content[name], shape):
            raise InvalidInputError(f"The release lacks a proper field {name!r}.")
    if set(content) != set(SHAPE):
        raise InvalidInputError("The release has fields this version does not know.")
