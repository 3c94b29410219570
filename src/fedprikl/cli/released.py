"""A release, once it is there: written, reported, shown. It was charged, so it must not be lost."""

from collections.abc import Mapping
from pathlib import Path

from fedprikl.cli.console import print_json, say
from fedprikl.cli.outputs import json_text, write_whole
from fedprikl.errors import InvalidInputError
from fedprikl.federation import Plan, Release
from fedprikl.reporting import ReleaseFacts, release_page

__all__ = ["print_release", "write_release"]


def write_release(
    release: Release, plan: Plan, costs: Mapping[str, str], *, output: Path, report: Path
) -> None:
    """The release first, then its page. A release that cannot be written is printed."""
    try:
        write_whole(output, json_text(release.to_dict()))
    except InvalidInputError as error:
        print_json(release.to_dict())
        raise InvalidInputError(
            f"{error} The release has been charged and is lost nowhere else: it stands on standard "
            "output. Keep it."
        ) from None
    try:
        write_whole(report, release_page(release, plan, costs))
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} The release itself is in {output}.") from None


def print_release(release: Release) -> None:
    """The answer, the verdict and what is protected."""
    facts = ReleaseFacts.of(release)
    say(facts.sentence, style="bold")
    say(facts.verdict or "There is no verdict: it could not be computed for this release.")
    say(f"\n{facts.statement}")
