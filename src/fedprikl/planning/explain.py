"""Why a plan is as it is: every parameter with its reason, from the numbers of the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fedprikl.divergence import Divergence, divergence_named
from fedprikl.planning.design import Design, DesignForecast
from fedprikl.planning.known import MOST_POINTS
from fedprikl.planning.ways import Way
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question

BEST_LIMIT = "the best of several limits where a heavy cell is gone or nearly so"


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
        room_reason(plan),
        Reason(
            "points",
            f"{plan.points:,}",
            _why_points(plan.points, support),
        ),
    ]


def room_reason(plan: Plan) -> Reason:
    """Why a client may hold so many records."""
    why = "the room for one client's records sets the bits of a count"
    return Reason("most_records", f"{plan.sums.most_records:,}", why)


def noise_reasons(plan: Plan) -> list[Reason]:
    """What the releases do to the noise of a trusted aggregator."""
    other = "gaussian" if plan.question.noise == "laplace" else "laplace"
    why = f"no larger than {other} noise for {_releases(plan)}"
    return [Reason("noise", plan.question.noise, why), epsilon_reason(plan)]


def epsilon_reason(plan: Plan) -> Reason:
    """What one release may spend."""
    each = f"of each of {_releases(plan)}" if plan.budget.releases > 1 else "of the release"
    return Reason("epsilon", f"{plan.budget.epsilon:.4g}", each)


def _releases(plan: Plan) -> str:
    return f"{plan.budget.releases} release{'s'[: plan.budget.releases > 1]}"


def way_reason(taken: Way, for_size: Way, ways: Sequence[Way], counts: Way | None) -> Reason:
    """Why the first answer is released as it is; `for_size` is the best way for the size alone."""
    error = f"predicted error {taken.typical:.3g}"
    if counts is None:
        others = [f"{way.typical:.3g} with {way.name}" for way in ways if way is not taken]
        against = f", against {' and '.join(others)}" if others else ""
        why = f"{error}{against}; noisy counts need every cell to be asked"
    elif taken is not for_size:
        why = (
            f"{error}, against {for_size.typical:.3g} with {for_size.name}, but they find smaller "
            "drifts of some kind"
        )
    elif taken is counts:
        why = f"{error}; every other way has a larger one, or at some drift far too large a one"
    else:
        why = (
            f"{error}, against {counts.typical:.3g} with noisy counts, and at no drift much worse "
            "than they are"
        )
    return Reason("release", taken.name, why)


def share_reasons(plan: Plan) -> list[Reason]:
    """What part of the budget each question has."""
    return [
        Reason(f"share of {each.divergence}", f"{each.share:.3g}", _why_share(each, plan))
        for each in plan.about_whole
    ]


def _why_share(question: Question, plan: Plan) -> str:
    if len(plan.questions) == 1:
        return "the only question has the whole budget"
    if question.release == "counts":
        return "read off the noisy counts, which have the shares of all that are read off them"
    if question is plan.question:
        return "the size of the drift has what the verdict does not need"
    return "so that its noise is well below the spread it has without drift, within limits"


def _why_points(points: int, support: int) -> str:
    if points >= support:
        return f"all {support:,} cells fit into the payload"
    if points >= MOST_POINTS:
        return f"of {support:,} cells; clients answer at most {MOST_POINTS:,} by default"
    return f"as many of {support:,} cells as fit into the payload at once"


def design_reasons(
    best: DesignForecast,
    searched: Sequence[DesignForecast],
    divergence: Divergence,
    question: Question,
) -> list[Reason]:
    """What the search chose, beside the best it found otherwise."""
    chosen = best.design

    def otherwise(words: str, keep: Callable[[Design], bool]) -> str:
        errors = [each.error for each in searched if keep(each.design)]
        if not errors:
            return "there was nothing to choose: every cell is asked of everybody"
        return f"predicted error {best.error:.3g}, against {min(errors):.3g} at best {words}"

    limit = "none" if question.maximum_step is None else f"{question.maximum_step:.3g}"
    why_limit = {
        "counts": "noisy counts need none",
        "adaptive": BEST_LIMIT,
        "value": otherwise(
            "with clipping" if limit == "none" else "without clipping",
            lambda d: (d.maximum_step == math.inf) != (chosen.maximum_step == math.inf),
        ),
    }
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
        Reason("maximum_step", limit, why_limit[question.release]),
        _correction(chosen.batches > 1, divergence),
    ]


def _correction(samples: bool, divergence: Divergence) -> Reason:
    if not samples:
        return Reason("correction", "not needed", "the counts of everybody are no sample")
    if not divergence.corrects:
        return Reason("correction", "none", f"the divergence {divergence.name} has none")
    why = "batches are samples, and the score of a sample is biased"
    return Reason("correction", "full", why)
