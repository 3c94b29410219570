"""Every error fedprikl raises on purpose. Each message says what happened and what to do.

FedPriKLError
├── InvalidInputError         an argument, a count, a file row or a plan that cannot be used
├── ReferenceFileError        a reference file that is damaged, foreign or of another version
├── RecordsError              a client's data file or folder that cannot be counted
├── UnboundedSensitivityError a score that no finite noise can make private
├── MissingExtraError         an optional dependency is not installed
├── BudgetExceededError       a release that does not fit into what is left of a privacy budget
├── LedgerError               a ledger file that is missing, foreign, locked or not writable
│   └── LedgerDamagedError    a ledger file that was edited, cut or broken
├── HistoryError              a history of a series, or its registry, that cannot be used
│   └── HistoryDamagedError   a history that was edited, cut or broken
├── IntakeError               reports on the disk of a server that cannot be used
├── PolicyRefusal             a client takes no part; says why
├── ReleaseRefused            a round that ends without a release; says whether it stays charged
├── SealError                 a sealed message that does not open where it arrived
├── HookError                 a notification of a series that could not be delivered
├── DeploymentError           a federation that cannot be reached, or set up as it must not be
└── SecureSumError            a secure sum that cannot or must not go on
    ├── MessageDecodeError    bytes that are not a message of the protocol
    │   ├── ReportAddressError a report for another plan, period or server
    │   └── ReportSealError   a report whose seal or signature does not fit
    ├── RejectedMessageError  a message turned away; names its sender and the reason
    ├── UnsafeRequestError    a client refuses, because the answer could expose somebody
    ├── CohortTooSmallError   too few clients remain; nothing was revealed
    ├── UnmaskFailedError     the revealed shares do not open the sum
    └── WrongStepError        a round object used out of order, or a second time

PaperCalibrationWarning       the paper's printed noise was used; says what it really buys
"""

from typing import Self


class FedPriKLError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback.

    Every message says what happened and what to do, and none shows a record.

    >>> import fedprikl as fk
    >>> try:
    ...     fk.Reference.from_counts([])
    ... except fk.FedPriKLError as error:
    ...     print(error)
    The reference is empty. Give the count of at least a cell.
    """


class InvalidInputError(FedPriKLError, ValueError):
    """An argument that cannot be used. Nothing was computed, released or charged."""


class ReferenceFileError(FedPriKLError):
    """A file that is not a reference written by this software, or not a whole one."""


class RecordsError(FedPriKLError):
    """A file or folder of records that cannot be counted. Never shows a record."""


class UnboundedSensitivityError(FedPriKLError):
    """One record could move the score without limit, so no finite noise makes it private."""


class BudgetExceededError(FedPriKLError):
    """A release would exceed the privacy budget. Nothing was charged and nothing may be released.

    Carries the numbers of its message: epsilon `spent` and `left`, what the total would be
    (`needed`), and the largest epsilon of one more release that would fit (`fits`, by noise).

    >>> BudgetExceededError.of("Spent.", spent=1.0, left=0.0, needed=2.0, fits={}).left
    0.0
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


class HistoryError(FedPriKLError):
    """The history, or the registry of counted records, of a series cannot be used."""


class HistoryDamagedError(HistoryError):
    """The history of a series was changed after it was written."""


class IntakeError(FedPriKLError):
    """The file in which a server keeps reports cannot be used. Nothing more is acknowledged."""


class MissingExtraError(FedPriKLError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class PolicyRefusal(FedPriKLError):  # noqa: N818  it is a decision, not a failure
    """A client, or a server, takes no part in a round, because its own policy says so."""

    def __init__(self, reason: str, *, who: str = "client") -> None:
        super().__init__(f"This {who} takes no part: {reason}.")
        self.reason = reason


class ReleaseRefused(FedPriKLError):  # noqa: N818  it is a decision, not a failure
    """A round that ends without a release. It is charged if a sum was opened; the words say so."""


class SealError(FedPriKLError):
    """A sealed message that does not open: of another round, member or step, or damaged."""


class DeploymentError(FedPriKLError):
    """A federation that cannot be reached, or is not set up. Nothing was released."""


class HookError(FedPriKLError):
    """A notification that could not be delivered. Never shows an address' path or a secret."""


class SecureSumError(FedPriKLError):
    """A secure sum that cannot or must not go on. Never carries a secret value."""


class MessageDecodeError(SecureSumError):
    """Bytes that are not exactly one message of the protocol; nothing was used of them."""


class ReportAddressError(MessageDecodeError):
    """A report for another plan, period or server than the one that reads it."""


class ReportSealError(MessageDecodeError):
    """A report that does not open with the server's key, or whose signature does not fit."""


class RejectedMessageError(SecureSumError):
    """A message was turned away and changed nothing; the round goes on without it."""

    def __init__(self, sender: int | None, reason: str) -> None:
        name = "the aggregator" if sender is None else f"client {sender}"
        super().__init__(f"A message from {name} was rejected: {reason}.")
        self.sender = sender
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[int | None, str]]:
        return type(self), (self.sender, self.reason)


class UnsafeRequestError(SecureSumError):
    """A client refuses, because the answer could expose somebody. It answers nothing more."""


class CohortTooSmallError(SecureSumError):
    """Too few clients remain to open the sum. Nothing was revealed; start a new round."""


class UnmaskFailedError(SecureSumError):
    """The revealed shares do not open the sum, or open it to an impossible value."""


class WrongStepError(SecureSumError):
    """A round object was used out of order or a second time; make a new one for a new round."""


class PaperCalibrationWarning(UserWarning):
    """The noise printed in the paper was used: it does not give the privacy it claims."""
