"""Front: what a user calls. `compare` runs a round in one process, `verify` checks its release.

`divergence_of` computes other divergences from a release with noisy counts. `monitor` counts what
is due of a series.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedprikl.front.checking import divergence_of, verify
    from fedprikl.front.comparing import compare
    from fedprikl.front.result import Comparison
    from fedprikl.front.series import monitor

__all__ = ["Comparison", "compare", "divergence_of", "monitor", "verify"]

_LATER = {  # a command needs some of them only
    "Comparison": "result",
    "compare": "comparing",
    "divergence_of": "checking",
    "monitor": "series",
    "verify": "checking",
}

if not TYPE_CHECKING:  # so that type checkers refuse names that are not listed above

    def __getattr__(name: str) -> object:
        if name in _LATER:
            return getattr(import_module(f"fedprikl.front.{_LATER[name]}"), name)
        raise AttributeError(f"module 'fedprikl.front' has no attribute {name!r}")
