"""The names of a roster, for people: they stay with whoever has the file, the relay sees keys."""

from pathlib import Path

from fedprikl.deployment.progress import printable, short_name
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan, Roster

__all__ = ["roster_names"]


def roster_names(path: Path, plan: Plan, *, clients: int) -> dict[str, str]:
    """The name of each key by its first digits; a key without one is left as it is.

    Refuses a roster that the plan does not name, and one with fewer clients than are waited for.
    """
    roster = Roster.load(path)
    if roster.fingerprint != plan.roster:
        raise InvalidInputError(
            f"The plan names another roster than {path}, or none. Bring the one it was planned "
            "with, or leave --roster out. Nothing was asked."
        )
    if len(roster) < clients:
        raise InvalidInputError(
            f"The roster has {len(roster)} clients, and --clients waits for {clients}: they would "
            "never come. Nothing was asked; wait for fewer."
        )
    lines = (line.split("#")[0].split() for line in path.read_text(encoding="utf-8").split("\n"))
    return {short_name(words[0]): printable(" ".join(words[1:])) for words in lines if words[1:]}
