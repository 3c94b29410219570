"""The newest state of a ledger that its releases know of.

Every signed release carries the head of the ledger it was charged to. A ledger that does not
contain the newest of them is an older copy that was put back: its budget would be spent twice.
"""

from pathlib import Path

from fedprikl.privacy import Head, Ledger
from fedprikl.protocol import Release

__all__ = ["newest_head", "open_anchored"]


def newest_head(folder: Path, public: str) -> Head | None:
    """The newest head in the releases of a folder that this key signed; None if there is none.

    Whatever else lies there is passed over: a damaged file stops no round.
    """
    heads = [_head(path, public) for path in sorted(folder.glob("*.json"))]
    return max((head for head in heads if head), key=lambda head: head.count, default=None)


def open_anchored(path: Path, releases: Path, public: str) -> Ledger:
    """The ledger, if it is no older than the releases beside it; a `LedgerDamagedError` if it is.

    To begin anew on purpose, put the old releases away together with the old ledger.
    """
    return Ledger.open(path, anchor=newest_head(releases, public))


def _head(path: Path, public: str) -> Head | None:
    try:
        release = Release.load(path)
    except Exception:  # anybody may have put anything there
        return None
    return release.ledger if release.is_signed_by(public) else None
