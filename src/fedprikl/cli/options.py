"""What several commands read or say in the same way: keys, references and plans."""

import re
import shlex
from enum import StrEnum
from pathlib import Path

import typer

from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.front.plan_checks import validity
from fedprikl.privacy import Unit
from fedprikl.protocol import SignedPlan
from fedprikl.reference import Reference

__all__ = ["UnitName", "check_key", "load_reference", "plan_words", "reference_of"]

DATA = (".csv", ".csv.gz", ".parquet")


class UnitName(StrEnum):
    """Whom a budget protects."""

    RECORD = "record"
    CLIENT = "client"

    @property
    def literal(self) -> Unit:
        """As the library has it."""
        return "client" if self is UnitName.CLIENT else "record"


def check_key(text: str) -> str:
    """A public key as it is compared, or nothing; what cannot be a key is wrong usage."""
    key = text.strip().lower()
    if key and not re.fullmatch("[0-9a-f]{64}", key):
        raise typer.BadParameter(
            "--key is malformed: a public key has 64 hexadecimal digits, as `fedprikl keys` prints "
            "them. Nothing was checked."
        )
    return key


def load_reference(path: Path) -> Reference:
    """The reference in a file; data that no reference was made of yet are told apart."""
    try:
        return Reference.load(path)
    except ReferenceFileError:
        if not path.exists() or not path.name.lower().endswith(DATA):
            raise
        raise InvalidInputError(
            f"{path} is no reference: it holds data. If they are public, make a reference of them "
            f"with `fedprikl reference {shlex.quote(str(path))} -o ref.json`, and use ref.json."
        ) from None


def reference_of(plan: Path, signed: SignedPlan, path: Path | None) -> Reference:
    """The reference of a plan: the file that was named, or ref.json beside the plan."""
    path = path or plan.parent / "ref.json"
    if not path.exists():
        raise InvalidInputError(f"There is no reference {path}. Name the file with --reference.")
    found = load_reference(path)
    if signed.plan.reference != found.fingerprint:
        raise InvalidInputError(
            f"{plan} was made with another reference than {path}. Name the one that it was made "
            "with (--reference), or plan again."
        )
    return found


def plan_words(signed: SignedPlan) -> str:
    """Which plan it is, for people."""
    plan, signer = signed.plan, signed.signer or "nobody"
    return f"serial {plan.serial}, valid {validity(plan)}, signed by {signer}"
