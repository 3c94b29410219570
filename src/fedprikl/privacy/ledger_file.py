"""The file under a ledger."""

import hashlib
from pathlib import Path

from fedprikl.chain_file import ChainFile, ChainKind, Entry, Head
from fedprikl.errors import LedgerDamagedError, LedgerError

__all__ = ["LEDGER", "Entry", "Head", "LedgerFile", "head_of"]

LEDGER = ChainKind(
    name="ledger",
    application=0x46504B4C,  # "FPKL"
    # Entries may 2: bind records; 3: have a span; 4: protect whole clients; 5: keep noised numbers.
    version=5,
    versions=(1, 2, 3, 4, 5),
    tables_since=5,
    genesis=hashlib.sha256(b"fedprikl ledger, version 1").hexdigest(),
    error=LedgerError,
    damaged=LedgerDamagedError,
    advice="The ledger is damaged and nothing can be reserved from it. Restore a copy, and charge "
    "by hand what was released since.",
    unwritten="nothing was charged",
    half_written="Release nothing; whether the round was charged, `fedprikl ledger` will tell once "
    "the disk works.",
)
head_of = LEDGER.head_of


class LedgerFile(ChainFile):
    """One connection to a ledger."""

    def __init__(self, path: Path, *, create: bool, timeout: float) -> None:
        super().__init__(path, LEDGER, create=create, timeout=timeout)
