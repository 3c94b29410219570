"""Runs at the aggregator's host: one of a plan at a time; of a period, one release for ever.

Whoever lost the answer asks again and gets the very same release: nothing is asked of the sites,
nothing is charged.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedprikl.deployment.settings import RoundSettings
from fedprikl.deployment.turns import turn
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Plan, Release

__all__ = ["alone", "check_period", "find_release"]


def check_period(plan: Plan, settings: RoundSettings, *, at: str) -> None:
    """Refuses a run of a series without a period that is over, and a period without a series."""
    series, number = plan.series, settings.period
    if series is None:
        if number is not None or settings.previous:
            raise InvalidInputError(
                "The plan has no series, so it has no periods. Leave `period` and `previous` out "
                "of the run config."
            )
        return
    if number is None:
        raise InvalidInputError(
            "The plan is for a series, with a release for every period. Run what is due with "
            "`fedprikl monitor --federation`."
        )
    end = series.period(number).end
    if end > datetime.fromisoformat(at):
        raise DeploymentError(
            f"Period {number} ends at {end.isoformat()}: it is not over by the aggregator's clock. "
            "Nothing was asked; ask again when it is."
        )


def find_release(folder: Path, plan: Plan, number: int | None, *, public: str) -> Release | None:
    """The release of a period that is there already, if this key signed it.

    Whatever else lies in the folder is passed over.
    """
    if number is None:
        return None
    fingerprint = plan.fingerprint.encode()
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(Exception):  # anybody may have put anything there
            content = path.read_bytes()
            if fingerprint not in content:
                continue
            release = Release.from_bytes(content)
            period = release.period if release.is_about(plan) else None
            if period is not None and period.number == number and release.is_signed_by(public):
                return release
    return None


@contextlib.contextmanager
def alone(folder: Path, plan: Plan) -> Iterator[None]:
    """Lets one run of a plan in at a time, of all series one; a run that dies lets go.

    Two at once would count some sites in one round and the others in a second. Each round may then
    have too few for a release, and nobody could be counted again.
    """
    name = f"plan-{plan.fingerprint[:16]}" if plan.series is None else "series"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(turn(folder / name, wait=False))
        except BlockingIOError:
            what = "this plan" if plan.series is None else "a series"
            raise DeploymentError(
                f"Another run of {what} is under way at the aggregator. Nothing was asked; ask "
                "again when it is over."
            ) from None
        except OSError as error:
            raise DeploymentError(
                f"Cannot use the file {folder / name}.lock: {error.strerror}. Nothing was asked."
            ) from None
        yield
