"""Front: what a user calls. `compare` runs a round in one process, `verify` checks its release.

`divergence_of` computes other divergences from a release with noisy counts. `monitor` counts what
is due of a series.
"""

from fedprikl.front.checking import divergence_of, verify
from fedprikl.front.comparing import compare
from fedprikl.front.result import Comparison
from fedprikl.front.series import monitor

__all__ = ["Comparison", "compare", "divergence_of", "monitor", "verify"]
