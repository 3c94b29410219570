"""Every error fedprikl raises on purpose. Each message says what happened and what to do.

FedPriKLError
├── InvalidInputError         an argument, a count, a file row or a plan that cannot be used
├── ReferenceFileError        a reference file that is damaged, foreign or of another version
├── RecordsError              a client's data file or folder that cannot be counted
├── UnboundedSensitivityError a score that no finite noise can make private
├── MissingExtraError         an optional dependency is not installed
└── SecureSumError            a secure sum that cannot or must not go on
    ├── MessageDecodeError    bytes that are not a message of the protocol
    ├── RejectedMessageError  a message turned away; names its sender and the reason
    ├── UnsafeRequestError    a client refuses, because the answer could expose somebody
    ├── CohortTooSmallError   too few clients remain; nothing was revealed
    ├── UnmaskFailedError     the revealed shares do not open the sum
    └── WrongStepError        a round object used out of order, or a second time

PaperCalibrationWarning       the paper's printed noise was used; says what it really buys
"""

__all__ = [
    "CohortTooSmallError",
    "FedPriKLError",
    "InvalidInputError",
    "MessageDecodeError",
    "MissingExtraError",
    "PaperCalibrationWarning",
    "RecordsError",
    "ReferenceFileError",
    "RejectedMessageError",
    "SecureSumError",
    "UnboundedSensitivityError",
    "UnmaskFailedError",
    "UnsafeRequestError",
    "WrongStepError",
]


class FedPriKLError(Exception):
    """Base of all errors raised on purpose; the command line prints it without a traceback."""


class InvalidInputError(FedPriKLError, ValueError):
    """An argument that cannot be used. Nothing was computed, released or charged."""


class ReferenceFileError(FedPriKLError):
    """A file that is not a reference written by this software, or not a whole one."""


class RecordsError(FedPriKLError):
    """A file or folder of records that cannot be counted. Never shows a record."""


class UnboundedSensitivityError(FedPriKLError):
    """One record could move the score without limit, so no finite noise makes it private."""


class MissingExtraError(FedPriKLError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class SecureSumError(FedPriKLError):
    """A secure sum that cannot or must not go on. Never carries a secret value."""


class MessageDecodeError(SecureSumError):
    """Bytes that are not exactly one message of the secure sum; nothing was used of them."""


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
