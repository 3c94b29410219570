"""Why a plan is as it is: every parameter with its reason, from the numbers of the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedprikl.divergence import Divergence, divergence_named
from fedprikl.planning.design import Design, DesignForecast
from fedprikl.planning.known import MOST_POINTS
from fedprikl.planning.rule import Choice
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question

BEST_LIMIT = "the best of several limits where a heavy cell is gone or nearly so"


@dataclass(frozen=True, slots=True)
class Reason:
    """A parameter of the plan, its value and why."""

    parameter: str
    value: str
    why: str


def plan_reasons(plan: Plan, *, support: int) -> tuple[Reason, ...]:
    """What needs no search of designs and options. `support` is the number of cells of Pi."""
    why = "the room for one client's records sets the bits of a count"
    room = Reason("most_records", f"{plan.sums.most_records:,}", why)
    found: tuple[Reason, ...] = (room, _epsilon(plan))
    if plan.points:
        target = divergence_named(plan.question.divergence).target("skew Pi + (1 - skew) P")
        why = f"fixed in advance: it defines what is estimated, {target}"
        skew = Reason("skew", f"{plan.question.skew:g}", why)
        found = skew, room, Reason("points", f"{plan.points:,}", _why_points(plan.points, support))
    if plan.is_series:
        return (*found, *_series_reasons(plan))
    return (*found, *_shares_reasons(plan)) if plan.trust == "none" and plan.points else found


def _why_points(points: int, support: int) -> str:
    if points >= support:
        return f"all {support:,} cells fit into the payload"
    if points >= MOST_POINTS:
        return f"of {support:,} cells; clients answer at most {MOST_POINTS:,} by default"
    return f"as many of {support:,} cells as fit into the payload at once"


def _epsilon(plan: Plan) -> Reason:
    """What one release may spend."""
    each = f"of each of {_releases(plan)}" if plan.budget.releases > 1 else "of the release"
    return Reason("epsilon", f"{plan.budget.epsilon:.4g}", each)


def _releases(plan: Plan) -> str:
    return f"{plan.budget.releases} release{'s'[: plan.budget.releases > 1]}"


def _series_reasons(plan: Plan) -> tuple[Reason, ...]:
    times = "once" if plan.budget.releases == 1 else f"up to {plan.budget.releases} times"
    return (
        Reason("release", "noisy counts", "those of many periods add up at no further cost"),
        Reason(
            "budget",
            f"epsilon {plan.budget.total[0]:g}",
            f"of one {plan.unit.kind} over all {plan.series.periods:,} releases, which count it "
            f"{times}",
        ),
    )


def _shares_reasons(plan: Plan) -> tuple[Reason, ...]:
    return (
        Reason("batches", "1", "each further batch would carry noise of its own"),
        Reason(
            "cohort",
            f"{plan.sums.cohort:,}",
            "as many clients in one secure sum as can be, because each sum carries its noise",
        ),
        Reason(
            "noise",
            plan.question.noise,
            "Laplace or Gaussian shares, whichever is smaller; added by the clients themselves",
        ),
        Reason("release", "noisy counts", "nobody is trusted; all answers are read off them"),
    )


def search_reasons(
    choice: Choice, plan: Plan, searched: Sequence[DesignForecast], best: DesignForecast
) -> tuple[Reason, ...]:
    """What the search of designs and the rule say, where the aggregator is trusted."""
    other = "gaussian" if plan.question.noise == "laplace" else "laplace"
    shares = (
        Reason(f"share of {each.divergence}", f"{each.share:.3g}", _why_share(each, plan))
        for each in plan.about_whole
    )
    smaller = f"no larger than {other} noise for {_releases(plan)}"
    return (
        Reason("release", choice.taken.name, _why_taken(choice)),
        *shares,
        Reason("noise", plan.question.noise, smaller),
        _epsilon(plan),
        *design_reasons(best, searched, choice.taken.score.divergence, plan.question),
    )


def _why_taken(choice: Choice) -> str:
    """Why the whole is released as it is."""
    tried = f"of {len(choice.all)} candidates ({'; '.join(each.shares for each in choice.all)})"
    every = "" if choice.complete else "; noisy counts need every cell to be asked"
    if len(choice.asked) == 1:
        return f"the smallest error {tried} that is nowhere far from noisy counts' own{every}"
    return f"the least regret {tried}, in the smallest drifts and the error of the size{every}"


def _why_share(question: Question, plan: Plan) -> str:
    if len(plan.questions) == 1:
        return "the only question has the whole budget"
    if question.release == "counts":
        return "read off the noisy counts, which have the shares of all that are read off them"
    if question is plan.question:
        return "the size of the drift has what the verdict does not need"
    return "finds drifts that spread over many cells; from the grid of shares"


def design_reasons(
    best: DesignForecast,
    searched: Sequence[DesignForecast],
    divergence: Divergence,
    question: Question,
) -> tuple[Reason, ...]:
    """What the search of designs chose, beside the best it found otherwise."""
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
        "looked": BEST_LIMIT,
        "value": otherwise(
            "with clipping" if limit == "none" else "without clipping",
            lambda d: (d.maximum_step == math.inf) != (chosen.maximum_step == math.inf),
        ),
    }
    return (
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
    )


def _correction(samples: bool, divergence: Divergence) -> Reason:
    if not samples:
        return Reason("correction", "not needed", "the counts of everybody are no sample")
    if not divergence.corrects:
        return Reason("correction", "none", f"the divergence {divergence.name} has none")
    why = "batches are samples, and the score of a sample is biased"
    return Reason("correction", "full", why)


def column_reasons(plan: Plan) -> tuple[Reason, ...]:
    """Why the columns have these shares."""
    asked = plan.columns
    if not asked:
        return ()
    pairs = any(len(view.columns) > 1 for view in asked)
    views = f"{len(asked)} columns and pairs" if pairs else f"{len(asked)} columns"
    if plan.trust == "none":
        why = "one vector of noisy counts answers everything: a record is in a count of each"
        return (Reason("columns", views, why),)
    rate = f"{100 * plan.false_alarm_of_each:.3g}%"
    values, counts = (
        math.fsum(each.share for each in plan.about_columns if each.release == option)
        for option in ("value", "counts")
    )
    more = f"{plan.column_points:,} counts more; false alarms of all: {rate}"
    return (
        Reason("columns", views, more),
        Reason("share of columns' tv", f"{values:.3g}", "finds small drifts of few records"),
        Reason(
            "share of columns' counts",
            f"{counts:.3g}",
            "tells sizes and cells, and most of the verdict where records are many",
        ),
    )
