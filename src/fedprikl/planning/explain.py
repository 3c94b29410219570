"""Why a plan is as it is: every parameter with its reason, from the numbers of the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fedprikl.planning.design import Design, DesignForecast
from fedprikl.planning.release_budget import ReleaseBudget
from fedprikl.protocol.plan import Plan

__all__ = ["Reason", "common_reasons", "design_reasons"]


@dataclass(frozen=True, slots=True)
class Reason:
    """A parameter of the plan, its value and why."""

    parameter: str
    value: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return asdict(self)


def common_reasons(
    plan: Plan, *, budget: ReleaseBudget | None, releases: int, support: int, most_points: int
) -> list[Reason]:
    """What does not depend on a search."""
    found = [
        Reason(
            "skew",
            f"{plan.skew:g}",
            "fixed in advance: it defines what is estimated, "
            + plan.score.divergence.target("skew Pi + (1 - skew) P"),
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
            f"{plan.points:,}",
            _why_points(plan, support, most_points),
        ),
    ]
    if budget is not None:
        other = "gaussian" if budget.noise == "laplace" else "laplace"
        found.append(
            Reason(
                "noise",
                budget.noise,
                f"smaller than {other} noise for {releases} release{'s'[: releases > 1]}: "
                f"{budget.gain:.3g} times the sensitivity each",
            )
        )
        found.append(
            Reason("epsilon", f"{budget.epsilon:.4g}", f"of each of {releases} planned releases")
        )
    return found


def _why_points(plan: Plan, support: int, most_points: int) -> str:
    if plan.points >= support:
        return f"all {support:,} cells fit into the payload"
    if plan.points >= most_points:
        return f"of {support:,} cells; clients answer at most {most_points:,} by default"
    return f"as many of {support:,} cells as fit into the payload at once"


def design_reasons(best: DesignForecast, searched: Sequence[DesignForecast]) -> list[Reason]:
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
        Reason(
            "correction",
            "full" if chosen.batches > 1 else "not needed",
            "batches are samples, and the score of a sample is biased"
            if chosen.batches > 1
            else "the counts of everybody are no sample",
        ),
    ]
