"""Every error fedprikl raises on purpose. Each message says what happened and what to do.

FedPriKLError
├── InvalidInputError         an argument, a count, a file row or a plan that cannot be used
├── ReferenceFileError        a reference file that is damaged, foreign or of another version
├── UnboundedSensitivityError a score that no finite noise can make private
├── BudgetExceededError       a release that does not fit into what is left of a privacy budget
├── LedgerError               a ledger file that is missing, foreign, locked or not writable
│   └── LedgerDamagedError    a ledger file that was edited, cut or broken
└── MissingExtraError         an optional dependency is not installed

PaperCalibrationWarning       the paper's printed noise was used; says what it really buys
"""

from typing import Self

__all__ = [
    "BudgetExceededError",
    "FedPriKLError",
    "InvalidInputError",
    "LedgerDamagedError",
    "LedgerError",
    "MissingExtraError",
    "PaperCalibrationWarning",
    "ReferenceFileError",
    "UnboundedSensitivityError",
]


class FedPriKLError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class InvalidInputError(FedPriKLError, ValueError):
    """An argument that cannot be used. Nothing was computed, released or charged."""


class ReferenceFileError(FedPriKLError):
    """A file that is not a reference written by this software, or not a whole one."""


class UnboundedSensitivityError(FedPriKLError):
    """One record could move the score without limit, so no finite noise makes it private."""


class BudgetExceededError(FedPriKLError):
    """A release would exceed the privacy budget. Nothing was charged and nothing may be released.

    Carries the numbers of its message: epsilon `spent` and `left`, what the total would be
    (`needed`), and the largest epsilon of one more release that would fit (`fits`, by noise).
    """

    spent: float
    left: float
    needed: float
    fits: dict[str, float]

    @classmethod
    def of(
        cls, message: str, *, spent: float, left: float, needed: float, fits: dict[str, float]
    ) -> Self:
        """With its numbers. Not in __init__, so that it can cross to another process."""
        error = cls(message)
        error.spent, error.left, error.needed, error.fits = spent, left, needed, fits
        return error


class LedgerError(FedPriKLError):
    """A ledger file that cannot be used now: missing, foreign, locked, or not writable."""


class LedgerDamagedError(LedgerError):
    """A ledger file whose entries are not what was written; nothing can be reserved from it."""


class MissingExtraError(FedPriKLError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class PaperCalibrationWarning(UserWarning):
    """The noise printed in the paper was used: it does not give the privacy it claims."""
