"""dp-accounting and OpenDP, loaded when they are first needed.

Together they take most of the time that importing fedprikl takes, and a client of a trusted
aggregator needs neither. In a federation a client's process may serve one message only.
"""

from functools import cache
from typing import Any

__all__ = ["dp_accounting", "loss_distributions", "opendp"]


@cache
def dp_accounting() -> Any:
    """The module of the same name."""
    import dp_accounting as module

    return module


@cache
def loss_distributions() -> Any:
    """Its makers of privacy loss distributions."""
    from dp_accounting import pld

    return pld.privacy_loss_distribution


@cache
def opendp() -> Any:
    """OpenDP's prelude."""
    import opendp.prelude as module

    module.enable_features("contrib")
    return module
