"""Every error fedprikl raises on purpose. Each message says what happened and what to do.

FedPriKLError
├── InvalidInputError         an argument, a count, a file row or a plan that cannot be used
├── ReferenceFileError        a reference file that is damaged, foreign or of another version
├── UnboundedSensitivityError a score that no finite noise can make private
└── MissingExtraError         an optional dependency is not installed

PaperCalibrationWarning       the paper's printed noise was used; says what it really buys
"""

__all__ = [
    "FedPriKLError",
    "InvalidInputError",
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


class MissingExtraError(FedPriKLError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


class PaperCalibrationWarning(UserWarning):
    """The noise printed in the paper was used: it does not give the privacy it claims."""
