"""Basic composition: an independent bound on totals that a reader can check by hand."""

import math
from collections.abc import Sequence

from fedprikl.privacy import AccountedRelease, Charge, PureLoss


def basic_epsilon(charges: Sequence[Charge], *, delta: float) -> float:
    """The sum of all epsilons, delta shared out equally among those that need one."""
    losses = [charge.loss for charge in charges]
    proved = [loss for loss in losses if isinstance(loss, AccountedRelease)]
    pure = [loss.epsilon for loss in losses if isinstance(loss, PureLoss)]
    noisy = [loss for loss in losses if not isinstance(loss, PureLoss | AccountedRelease)]
    left = delta - math.fsum(loss.proved_delta for loss in proved)
    if left < 0 or (noisy and left == 0):
        return math.inf
    shares = [loss.alone(left / len(noisy)) for loss in noisy]
    return math.fsum([*pure, *(loss.proved_epsilon for loss in proved), *shares])
