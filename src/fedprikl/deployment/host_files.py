"""What a host writes down after a round: the release, and who took no part."""

import json
import os
from pathlib import Path

from fedprikl.deployment.host import Host
from fedprikl.protocol import Release, RoundDriver

__all__ = ["keep_refusals", "refusals_in_words", "write_release"]


def write_release(release: Release, folder: Path) -> Path:
    """Written whole, under the round's name, and on the disk when this returns."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{release.round_id}.json"
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(release.to_bytes() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return path


def keep_refusals(driver: RoundDriver, round_id: str, folder: Path, host: Host) -> None:
    """Writes who took no part and why, for the aggregator's own people; they never travel on."""
    if not driver.refusals:
        return
    path = folder / f"{round_id}.json"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(driver.refusals, file, indent=1)
    except OSError as error:  # never worth a release
        host.say(f"[fedprikl] the refusals could not be written: {error.strerror}")


def refusals_in_words(driver: RoundDriver) -> str:
    """What people need to know when nothing was released. Public: the relay stores it.

    Of the refusals that were sealed only the number, as their words may depend on records.
    """
    reasons = [outcome.reason for outcome in driver.outcomes.values() if outcome.reason]
    words = f" The first cohort ended because: {reasons[0]}" if reasons else ""
    refusals, sealed = driver.refusals, len(driver.confided)
    if refusals:
        words += f" {len(refusals)} clients took no part"
        told = (why for client, why in refusals.items() if client not in driver.confided)
        first = next(told, "")
        words += f", the first because: {first}." if first else "."
    if sealed:
        words += f" {sealed} of the reasons are in the aggregator's folder."
    return words
