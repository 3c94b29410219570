"""Planning with a trusted aggregator: all designs are searched, and ways to release compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial

import numpy as np

from fedprikl.estimation.no_drift import public_simulation
from fedprikl.planning.design import Design, DesignForecast, search_designs
from fedprikl.planning.drift_cases import DriftCase, drift_cases, least, six_digits
from fedprikl.planning.explain import (
    Reason,
    common_reasons,
    design_reasons,
    noise_reasons,
    share_reasons,
    way_reason,
)
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import Compared, PlannedRound
from fedprikl.planning.release_budget import (
    AdditiveNoise,
    ReleaseBudget,
    largest_epsilon,
    split_budget,
)
from fedprikl.planning.smallest import smallest_drifts
from fedprikl.planning.trial_round import TrialRound
from fedprikl.planning.ways import Way, best_limit, best_way, regrets_less
from fedprikl.privacy import Calibrated, Charge, NoiseKind
from fedprikl.protocol import question_noise
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import ADAPTIVE, Question, ReleaseOption
from fedprikl.protocol.scored_sum import ScoredSum

DRAWS = 400  # populations without drift
QUIET = 0.35  # noise over the spread of a statistic without drift: more would cost power
LEAST, MOST = 0.03, {"tv": 0.55}  # of the budget, for one further question
USUAL_MOST = 0.15
HOPELESS = 4.0  # times the most: the noise would still be twice the spread, and drown the statistic
MOST_TOGETHER = 0.5  # of all further questions: the first one is the size
MOST_BESIDE_COUNTS = 0.08  # where the counts tell the size and most of the verdict
BESIDE_LOUD_COUNTS = (0.25, 0.2, 0.16, 0.12)  # where their noise is loud: what the size can spare
BATCHES = (1, 2, 4, 8, 16, 32, 64)
COHORT = 50  # clients of a secure sum
FOR_THE_VERDICT = 1.5  # times the error that noisy counts may have, if they see more


def needed_shares(
    trial: TrialRound, questions: Sequence[Question], calibrated: Calibrated
) -> Mapping[str, float]:
    """The share of each further question whose answer has noise of its own.

    The least for which the noise is at most 0.35 of the spread that the statistic has without drift
    anyway: from there on more budget hardly helps the verdict. Where that is far out of reach, the
    least that is given at all. `calibrated` is the noise of the whole budget of a release.
    """
    counts = trial.no_drift.counts(DRAWS, public_simulation())
    found = {}
    for question in questions:
        score = question.score(correction=trial.plan.verdict.client_effect, limited=True)
        spread = float(np.std(trial.before_noise(counts, score)))
        whole = calibrated.for_sensitivity(trial.sensitivity(score)).standard_deviation
        most = MOST.get(question.divergence, USUAL_MOST)
        wanted = whole / (QUIET * spread) if spread > 0 else most
        hopeless = wanted > HOPELESS * most
        found[question.divergence] = LEAST if hopeless else float(np.clip(wanted, LEAST, most))
    total = sum(found.values())
    scale = min(1.0, MOST_TOGETHER / total) if total else 1.0
    return {name: six_digits(scale * share) for name, share in found.items()}


LIMITS = (math.inf, 0.8, 0.65, 0.5)  # of adaptive noise: shares of the largest step
NOISES: tuple[AdditiveNoise, ...] = ("laplace", "gaussian")


def plan_trusted(known: Known, draft: Plan) -> PlannedRound:
    """The plan with the best design and way. The draft's budget is for all releases together."""
    total, delta = draft.budget.total
    budget = split_budget(epsilon=total, delta=delta, releases=draft.budget.releases)
    draft = draft.changed(cohort=known.cohort_of(COHORT))
    searched = _search(known, draft, budget)
    best = least(searched, lambda each: each.error)
    options = _Options(known, draft, best.design, budget)
    taken, plan = options.best, options.best.plan

    def doublings() -> dict[str, float]:
        wider = replace(known, payload=2 * known.payload)
        richer = draft.changed(epsilon=2 * total, total_epsilon=2 * total)
        fits = taken.trial.whole  # then there is nothing more to ask
        return {
            "payload": taken.typical if fits else plan_trusted(wider, draft).error,
            "epsilon": plan_trusted(known, richer).error,
        }

    return PlannedRound(
        plan=plan,
        releases=draft.budget.releases,
        forecasts=taken.forecasts,
        cost=known.cost(plan),
        find_smallest=cache(lambda: smallest_drifts(taken.trial)),
        find_doublings=cache(doublings),
        find_comparison=cache(lambda: tuple(_compared(way, taken) for way in options.ways)),
        predict=taken.predict,
        notes=known.notes(plan),
        reasons=(
            *common_reasons(plan, support=known.spectrum.cells),
            options.reason,
            *share_reasons(plan),
            *noise_reasons(plan),
            *design_reasons(best, searched, taken.trial.score.divergence, plan.question),
        ),
    )


def _compared(way: Way, taken: Way) -> Compared:
    return Compared(way.name, way.forecasts, way is taken)


def _search(known: Known, draft: Plan, budget: ReleaseBudget) -> list[DesignForecast]:
    """Forecasts of all designs that fit, for one number with additive noise."""
    points = {
        batches: known.points_that_fit(draft.changed(batches=batches))
        for batches in BATCHES
        if batches == 1 or known.clients // batches >= draft.sums.cohort
    }
    return search_designs(
        known.spectrum,
        score=ScoredSum(draft).score,
        records=known.records,
        points=points,
        noise_per_sensitivity=budget.noise_per_sensitivity,
        client_effect=draft.verdict.client_effect,
        moved=draft.contribution_bound,
    )


@dataclass(frozen=True, eq=False)
class _Options:
    """The ways to release the answers of one design."""

    known: Known
    draft: Plan
    design: Design
    budget: ReleaseBudget  # of one number
    _affordable: dict[tuple[tuple[str, float], ...], tuple[NoiseKind, float]] = field(
        default_factory=dict
    )

    @cached_property
    def best(self) -> Way:
        """The one that is taken: the best for the size, or noisy counts for the verdict."""
        taken, counts, whole = self.for_size, self.counts, self._whole
        # Few plans get further: the verdict is costly to simulate.
        if counts is None or whole is None or taken is counts or len(self.draft.questions) == 1:
            return taken
        near = counts.trial.loud or counts.typical <= FOR_THE_VERDICT * taken.typical
        if not near or not counts.is_no_worse(whole, allowed=FOR_THE_VERDICT):
            return taken
        found = (smallest_drifts(way.trial) | {"size": way.typical} for way in (counts, taken))
        return counts if regrets_less(*found) else taken

    @cached_property
    def for_size(self) -> Way:
        """The one with the least error that never loses much to noisy counts."""
        others = [way for way in self.ways if way is not self.counts]
        return best_way(others, self.counts, self._whole)

    @property
    def reason(self) -> Reason:
        """Why it is taken."""
        return way_reason(self.best, self.for_size, self.ways, self.counts)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """Additive noise, adaptive noise and noisy counts, as far as each is possible."""
        found = [self._way("value", self.design.maximum_step)]
        if self.draft.question.divergence in ADAPTIVE:
            ways = [self._way("adaptive", limit) for limit in self._limits]
            found.append(best_limit(ways, self._whole))
        return tuple(found if self.counts is None else [*found, self.counts])

    @property
    def _limits(self) -> list[float]:
        """Maximum steps to try; infinite: none."""
        largest = self._first.largest_step
        return [six_digits(share * largest) if share < 1 else math.inf for share in LIMITS]

    @cached_property
    def counts(self) -> Way | None:
        """Noisy counts: if every cell is asked of everybody, and cohorts are not told apart.

        Where their noise is loud, they leave more of the budget to `tv`, as much as is possible
        before the size suffers.
        """
        quiet, whole = self._quiet_counts, self._whole
        if quiet is None or whole is None or not quiet.trial.loud or "tv" not in self._shares:
            return quiet
        sharing = (self._way("counts", math.inf, beside) for beside in BESIDE_LOUD_COUNTS)
        able = (way for way in sharing if way.is_no_worse(whole, allowed=FOR_THE_VERDICT))
        return next(able, quiet)

    @cached_property
    def _quiet_counts(self) -> Way | None:
        if not self._first.whole:
            return None
        return self._way("counts", math.inf)

    @cached_property
    def _whole(self) -> Way | None:
        """A textbook's noisy counts with the whole budget: what other ways are measured against."""
        if self._quiet_counts is None:
            return None
        (first, *_) = self._quiet_counts.plan.questions
        plan = replace(self._quiet_counts.plan, questions=(replace(first, share=1.0),))
        return Way(replace(self._first, plan=self._afforded(plan), textbook=True), self._cases)

    @cached_property
    def _first(self) -> TrialRound:
        """A round of the design, before a way is chosen: its points serve all ways."""
        known, questions = self.known, self._questions("value", math.inf, {})
        design = self.design
        plan = self.draft.asking(design.points, design.exponent)
        plan = plan.changed(batches=design.batches, questions=questions)
        return TrialRound.of(plan, known.reference, clients=known.clients, records=known.records)

    @cached_property
    def _shares(self) -> Mapping[str, float]:
        delta = self.draft.budget.total[1]
        calibrated = Calibrated(self.budget.epsilon, delta, self.budget.noise)
        return needed_shares(self._first, self.draft.questions[1:], calibrated)

    def _way(
        self, release: ReleaseOption, maximum_step: float, beside: float = MOST_BESIDE_COUNTS
    ) -> Way:
        shares = self._shares
        if release == "counts":
            shares = {name: min(share, beside) for name, share in shares.items() if name == "tv"}
        questions = self._questions(release, maximum_step, shares)
        plan = self._afforded(replace(self._first.plan, questions=questions))
        return Way(replace(self._first, plan=plan), self._cases)

    @cached_property
    def _cases(self) -> tuple[DriftCase, ...]:
        return drift_cases(self._first.pi, self._first.score)

    def _afforded(self, plan: Plan) -> Plan:
        """With the noise and the epsilon of which all releases fit into the budget."""
        charged = tuple((question.release, question.share) for question in plan.questions)
        if charged not in self._affordable:  # a maximum step costs nothing
            best = least((self._with_noise(plan, noise) for noise in NOISES), _loudness)
            self._affordable[charged] = best.question.noise, best.budget.epsilon
        noise, epsilon = self._affordable[charged]
        return plan.with_noise(noise).changed(epsilon=epsilon)

    def _with_noise(self, plan: Plan, noise: AdditiveNoise) -> Plan:
        total, delta = self.draft.budget.total
        kind = plan.with_noise(noise)
        epsilon = largest_epsilon(
            partial(_charge, kind), epsilon=total, delta=delta, releases=plan.budget.releases
        )
        return kind.changed(epsilon=epsilon)

    def _questions(
        self, release: ReleaseOption, maximum_step: float, shares: Mapping[str, float]
    ) -> tuple[Question, ...]:
        """All of them, of one design. Those without a share of their own divide what is left."""
        asked = self.draft.questions
        left = (1 - math.fsum(shares.values())) / (len(asked) - len(shares))
        found = []
        for question in asked:
            name, first = question.divergence, question is asked[0]
            way = release
            if not first and (release != "counts" or name in shares):
                way = "adaptive" if name in ADAPTIVE else "value"
            limited = first and way != "counts" and maximum_step < math.inf
            found.append(
                replace(
                    question,
                    share=shares.get(name, left),
                    maximum_step=maximum_step if limited else None,
                    release=way,
                )
            )
        return tuple(found)


def _charge(plan: Plan, epsilon: float) -> Charge:
    return ScoredSum(plan.changed(epsilon=epsilon)).charge(())


def _loudness(plan: Plan) -> float:
    """Of the noise on the first answer, to compare the same way of release only."""
    noise = next(each for each in ScoredSum(plan).noises if plan.question in each.questions)
    match noise:
        case question_noise.ValueNoise():
            return noise.calibrated.for_sensitivity(1.0).standard_deviation
        case question_noise.AdaptiveNoise():
            return 1 / noise.charge.epsilon
        case question_noise.CountsNoise():
            return noise.charge.standard_deviation
