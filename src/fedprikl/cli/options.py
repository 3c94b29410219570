"""What several commands read or say in the same way: keys, times and plans."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import typer

from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.protocol import Plan, SignedPlan
from fedprikl.reference import Reference

__all__ = ["check_key", "check_valid", "load_reference", "now", "plan_words"]

DATA = (".csv", ".csv.gz", ".parquet")


def now() -> str:
    """The time of this machine, ISO 8601 with an offset."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def check_key(text: str) -> str:
    """A public key as it is compared, or nothing; what cannot be a key is wrong usage."""
    key = text.strip().lower()
    if key and not re.fullmatch("[0-9a-f]{64}", key):
        raise typer.BadParameter(
            "--key is malformed: a public key has 64 hexadecimal digits, as `fedprikl keys` prints "
            "them. Nothing was checked."
        )
    return key


def check_valid(plan: Plan, at: str) -> None:
    """Refuses a plan that may not be used now."""
    if not plan.is_valid(at):
        raise InvalidInputError(
            f"The plan is valid {_validity(plan)}, and it is {at} now. Make a new one with "
            "`fedprikl plan`."
        )


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


def plan_words(signed: SignedPlan) -> str:
    """Which plan it is, for people."""
    plan, signer = signed.plan, signed.signer or "nobody"
    return f"serial {plan.serial}, valid {_validity(plan)}, signed by {signer}"


def _validity(plan: Plan) -> str:
    limits = (("from", plan.valid_from), ("until", plan.valid_until))
    return " ".join(f"{word} {at}" for word, at in limits if at) or "for ever"
