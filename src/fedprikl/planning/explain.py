"""Why a plan is as it is: every parameter with its reason, from the numbers of the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fedprikl.divergence import Divergence, divergence_named
from fedprikl.planning.design import Design, DesignForecast
from fedprikl.planning.release_budget import ReleaseBudget
from fedprikl.protocol.plan import Plan

__all__ = ["MOST_POINTS", "Reason", "common_reasons", "design_reasons", "noise_reasons"]

MOST_POINTS = 1000  # what clients accept by default


@dataclass(frozen=True, slots=True)
class Reason:
    """A parameter of the plan, its value and why."""

    parameter: str
    value: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return asdict(self)


def common_reasons(plan: Plan, *, support: int) -> list[Reason]:
    """What does not depend on trust or a search. `support` is the number of cells of Pi."""
    return [
        Reason(
            "skew",
            f"{plan.question.skew:g}",
            "fixed in advance: it defines what is estimated, "
            + divergence_named(plan.question.divergence).target("skew Pi + (1 - skew) P"),
        ),
        Reason(
            "control",
            "0",
            "lambda pays for i.i.d. points, and these are distinct (docs/estimators.md)",
        ),
        Reason(
            "most_records",
            f"{plan.most_records:,}",
            "the room for one client's records sets the bits of a count",
        ),
        Reason(
            "points",
            f"{plan.question.points:,}",
            _why_points(plan.question.points, support),
        ),
    ]


def noise_reasons(budget: ReleaseBudget, releases: int) -> list[Reason]:
    """What the releases do to the noise of a trusted aggregator."""
    other = "gaussian" if budget.noise == "laplace" else "laplace"
    return [
        Reason(
            "noise",
            budget.noise,
            f"smaller than {other} noise for {releases} release{'s'[: releases > 1]}: "
            f"{budget.noise_per_sensitivity:.3g} times the sensitivity each",
        ),
        Reason("epsilon", f"{budget.epsilon:.4g}", f"of each of {releases} planned releases"),
    ]


def _why_points(points: int, support: int) -> str:
    if points >= support:
        return f"all {support:,} cells fit into the payload"
    if points >= MOST_POINTS:
        return f"of {support:,} cells; clients answer at most {MOST_POINTS:,} by default"
    return f"as many of {support:,} cells as fit into the payload at once"


def design_reasons(
    best: DesignForecast, searched: Sequence[DesignForecast], divergence: Divergence
) -> list[Reason]:
    """What the search chose, beside the best it found otherwise."""
    chosen = best.design

    def otherwise(words: str, keep: Callable[[Design], bool]) -> str:
        errors = [each.error for each in searched if keep(each.design)]
        if not errors:
            return "there was nothing to choose: every cell is asked of everybody"
        return f"predicted error {best.error:.3g}, against {min(errors):.3g} at best {words}"

    limit = "none" if chosen.maximum_step == math.inf else f"{chosen.maximum_step:.3g}"
    return [
        Reason(
            "batches",
            str(chosen.batches),
            otherwise("with another number", lambda d: d.batches != chosen.batches),
        ),
        Reason(
            "exponent",
            f"{chosen.exponent:g}",
            otherwise("with another", lambda d: d.exponent != chosen.exponent),
        ),
        Reason(
            "maximum_step",
            limit,
            otherwise(
                "with clipping" if limit == "none" else "without clipping",
                lambda d: (d.maximum_step == math.inf) != (chosen.maximum_step == math.inf),
            ),
        ),
        _correction(chosen.batches, divergence),
    ]


def _correction(batches: int, divergence: Divergence) -> Reason:
    if batches == 1:
        return Reason("correction", "not needed", "the counts of everybody are no sample")
    if not divergence.corrects:
        return Reason("correction", "none", f"the divergence {divergence.name} has none")
    why = "batches are samples, and the score of a sample is biased"
    return Reason("correction", "full", why)
