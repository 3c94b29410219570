"""The names of a roster, for people: they stay with whoever has the file, the relay sees keys."""

from collections import Counter
from pathlib import Path

from fedprikl.deployment.progress import printable, short_name
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan, Roster

__all__ = ["roster_names"]


def roster_names(path: Path, plan: Plan, *, clients: int) -> dict[str, str]:
    """The name of each member by the first digits of its key, which are the name of one without.

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
    lines = (line.split("#")[0].split() for line in path.read_text("utf-8-sig").split("\n"))
    found = {short_name(key): printable(" ".join(name)) for key, *name in filter(None, lines)}
    often = Counter(found.values())
    return {
        key: name if often[name] == 1 and name else f"{name} {key}".strip()
        for key, name in found.items()
    }
