"""Where a look at a number switches from adaptive to additive noise, from public forecasts."""

import math
from dataclasses import replace

from fedprikl.planning.design import six_digits
from fedprikl.planning.simulated_round import SimulatedRound
from fedprikl.protocol.question import Look, Question


def looked_question(
    small: SimulatedRound, large: SimulatedRound, *, share: float
) -> Question | None:
    """The first question of both, asked after a look; None if one noise is always the smaller.

    `small` releases a number with adaptive noise, `large` the same with additive noise; `share` of
    epsilon is for the look. The switch lies where the errors cross, between the sizes of drift that
    a plan is judged by: there the typical error is least if the look tells the sizes apart.
    """
    cases = sorted((round(case.size, 9), i) for i, case in enumerate(small.cases))
    sizes = [size for size, _ in cases]
    gains = [math.log(large.error(i) / small.error(i)) for _, i in cases]  # of adaptive noise
    places = [i for i in range(1, len(sizes)) if sizes[i - 1] < sizes[i]]
    last = max(places, key=lambda i: math.fsum(gains[:i]), default=0)
    best, everywhere = math.fsum(gains[:last]), math.fsum(gains)
    if not last or best <= max(everywhere, 0.0):
        return None
    below, above = sizes[last - 1], sizes[last]
    switch = six_digits(math.sqrt(below * above) if below > 0 else above / 2)
    return replace(small.plan.question, release="looked", look=Look(share=share, switch=switch))
