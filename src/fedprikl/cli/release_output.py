"""A release, written and told: the signed file, its page, the words on the terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from fedprikl.cli.console import notes, print_json, say
from fedprikl.documents import readable
from fedprikl.errors import InvalidInputError
from fedprikl.front import Comparison
from fedprikl.front.checking import validity
from fedprikl.protocol import Plan, Release, SignedPlan
from fedprikl.reference import Reference
from fedprikl.reporting import release_headline, release_page, release_words
from fedprikl.store import write_whole

DRIFT_FOUND = 3  # exit code
STYLES = {
    "drift": "bold red",
    "none found": "bold green",
    "cannot tell": "bold yellow",
    None: "bold",
}


def plan_words(signed: SignedPlan) -> str:
    """Which plan it is, for people."""
    plan, signer = signed.plan, signed.signer or "nobody"
    return f"serial {plan.validity.serial}, valid {validity(plan)}, signed by {signer}"


def write_release(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    *,
    output: Path,
    report: Path,
    absent: Sequence[str] = (),
    reference: Reference | None = None,
) -> None:
    """The release first, then its page. A release that cannot be written is printed."""
    try:
        write_whole(output, readable(release.to_dict()))
    except InvalidInputError as error:
        print_json(release.to_dict())
        raise InvalidInputError(
            f"{error} The release has been charged: it stands on standard output. Keep it."
        ) from None
    try:
        write_whole(report, release_page(release, plan, costs, absent, reference))
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} The release itself is in {output}.") from None


def write_comparison(
    found: Comparison, *, output: Path, report: Path, reference: Reference
) -> None:
    """The same of a round whose parties were all in this process."""
    write_release(
        found.release,
        found.plan,
        found.costs,
        output=output,
        report=report,
        absent=found.absent,
        reference=reference,
    )


def exit_on_drift(release: Release, wanted: bool) -> None:
    """Ends with exit code 3 if drift was found and the user wants to know by it.

    That it cannot be told is no drift, and said on standard error: the code is that of a release
    without drift. The verdict is in the release, which is public: the code tells nothing more.
    """
    if wanted and release.drifted:
        raise typer.Exit(DRIFT_FOUND)
    if wanted and release.outcome == "cannot tell":
        say(f"--fail-on-drift: {release_headline(release)}", console=notes)


def print_release(release: Release, absent: Sequence[str] = (), values: Sequence[str] = ()) -> None:
    """The verdict; the columns and their values; in how many clients; what is protected."""
    headline, _, rest = release_words(release, absent, values).partition("\n")
    say(headline, style=STYLES[release.outcome])
    say(rest)
