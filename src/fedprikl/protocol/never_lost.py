"""What is computed after the budget was charged must not lose the release."""

from collections.abc import Callable
from typing import TypeVar

from fedprikl.errors import FedPriKLError

__all__ = ["or_none"]

Found = TypeVar("Found")


def or_none(compute: Callable[[], Found | None]) -> Found | None:
    """The result; None if it fails.

    >>> or_none(lambda: 1), or_none(lambda: 1 // 0)
    (1, None)
    """
    try:
        return compute()
    except (FedPriKLError, ValueError, ArithmeticError, LookupError, RuntimeError):
        return None
