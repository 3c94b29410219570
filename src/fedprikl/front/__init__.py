"""Front: what a user calls. `compare` runs a round in one process, `verify` checks its release."""

from fedprikl.front.comparing import compare
from fedprikl.front.result import Comparison
from fedprikl.front.verifying import verify

__all__ = ["Comparison", "compare", "verify"]
