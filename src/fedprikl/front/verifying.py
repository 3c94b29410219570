"""Is a release genuine? A release that is not raises."""

from pathlib import Path

from fedprikl.errors import InvalidInputError
from fedprikl.front.plan_checks import AnyPlan, signed_plan
from fedprikl.front.result import Comparison
from fedprikl.protocol import Release
from fedprikl.protocol.roster import is_fingerprint

__all__ = ["verify"]


def verify(release: Release | str | Path, *, key: str = "", plan: AnyPlan | None = None) -> Release:
    """The release (or the one in a file), if it is genuine; raises `InvalidInputError` if not.

    `key` is the aggregator's public key, 64 hexadecimal digits. Without it, only this is shown:
    the release is as its signer made it. Then compare `release.signer` with the key you know.
    With `plan` (what `fedprikl.plan` returned, or a plan file), the release must be about that
    plan.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([50, 50])
    >>> planned = fk.plan(reference, clients=3, records=60, epsilon=1)
    >>> key = fk.SigningKey.generate()
    >>> result = fk.compare(reference, [[0, 1] * 10, [1] * 20, [0] * 20], planned,
    ...                     ledger=None, key=key)
    >>> fk.verify(result.release, key=key.public, plan=planned) is result.release
    True
    >>> fk.verify(result.release, key=fk.SigningKey.generate().public)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedprikl.errors.InvalidInputError: The release is NOT genuine: it was changed after it was ...
    """
    named = isinstance(release, str | Path)
    what = str(release) if named else "The release"
    found = Release.load(release) if isinstance(release, str | Path) else release
    if isinstance(found, Comparison):
        raise InvalidInputError("A Comparison is more than a release. Give result.release.")
    if not isinstance(found, Release):
        raise InvalidInputError(f"{type(found).__name__} is no release and no path of one.")
    wanted = key.strip().lower()
    if wanted and not is_fingerprint(wanted):
        raise InvalidInputError(
            "The key is malformed: a public key has 64 hexadecimal digits. Nothing was checked."
        )
    if not (found.is_signed_by(wanted) if wanted else found.is_intact):
        raise InvalidInputError(
            f"{what} is NOT genuine: it was changed after it was signed, or another key signed it. "
            "Do not use it."
        )
    if plan is not None and not found.is_about(signed_plan(plan).plan):
        about = f"than {plan}" if isinstance(plan, str | Path) else "than the one given"
        raise InvalidInputError(f"{what} is genuine, but about another plan {about}.")
    return found
