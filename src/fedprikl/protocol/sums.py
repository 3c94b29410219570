"""The secure sums of a plan: what clients hand in, what is opened, which noise it has and costs.

Three objects own what follows from whom the clients trust with exact sums: `ScoredSum` (the
aggregator, which adds the noise), `ServersSum` (three servers, none of which sees a sum) and
`NoisyHistogram` (nobody: every client adds a share of the noise).
What is made of opened sums is in `answering.py`, which a client does not need.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import (
    AccountedRelease,
    Calibrated,
    Charge,
    Counts,
    InverseSensitivityMechanism,
    LookedMechanism,
    Mechanism,
    NoiseSource,
    Numbers,
    ServersNoise,
    SharedCounts,
    SharedMechanism,
    calibrate,
    compose_charges,
    share_out,
    total_epsilon,
)
from fedprikl.privacy.server_noise import HONEST, ServersMechanism
from fedprikl.protocol.keys import SMALLEST
from fedprikl.protocol.plan import Plan, Trust
from fedprikl.protocol.question import Question
from fedprikl.reference import QueryPoints, Reference, View, distinct_points, spread_points
from fedprikl.secure_sum import DEFAULT_FAILURE, Degree, SumPlan, choose_degree
from fedprikl.secure_sum.line_runtime import MASK_DELTA

LARGEST_MARK = 2**32  # of insecure noise
FINE = 2**10  # s: steps per record in which three servers compute a tv


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSum:
    """SECRET: what one cohort, or several of a batch, sum to."""

    counts: tuple[Ints, ...] = field(repr=False)  # of the asked cells of each view of the plan
    records: int = field(repr=False)
    noise_variance: float = 0.0  # of the clients' own noise on each count
    insecure: bool = False  # whether any client's noise is not from a secure source

    def __add__(self, other: "OpenedSum") -> "OpenedSum":
        return OpenedSum(
            tuple(one + more for one, more in zip(self.counts, other.counts, strict=True)),
            self.records + other.records,
            self.noise_variance + other.noise_variance,
            self.insecure or other.insecure,
        )


@dataclass(frozen=True, eq=False)
class QuestionNoise:
    """The noise of a trusted aggregator for a group of questions (`Plan.groups`).

    Made once: the ledger reserves its charge, it draws, and the release states it.
    """

    questions: tuple[Question, ...]
    law: Calibrated | InverseSensitivityMechanism | LookedMechanism

    @property
    def is_counts(self) -> bool:
        """Whether it is on every count, from which the questions are answered."""
        return self.questions[0].release == "counts"

    @property
    def charge(self) -> Charge:
        """What the ledger reserves."""
        charge: Charge = self.law.charge if isinstance(self.law, Calibrated) else self.law
        return charge


@dataclass(frozen=True, eq=False)
class CohortSums:
    """What follows from a plan for the secure sum of a cohort, whoever is trusted."""

    plan: Plan
    shares_noise: ClassVar[bool] = False  # whether every client adds a share of the noise

    @property
    def blocks(self) -> list[int]:
        """How many counts each view has with that of all other records, after its asked cells."""
        return [view.points + 1 for view in self.plan.views]

    @property
    def score(self) -> Score:
        """Of the first question."""
        return self.score_of(self.plan.question)

    def score_of(self, question: Question) -> Score:
        """Of exact counts of the whole: corrected for small batches of clients whose records are
        correlated, with limited steps. Of columns, which everybody is asked, and of noisy counts,
        which are public and debiased by simulation: neither.
        """
        if question.release == "counts" or not question.of_whole:
            return question.score(correction=0.0, limited=False)
        return question.score(correction=self.plan.verdict.client_effect, limited=True)

    def draw_points(self, pi: Floats, rng: np.random.Generator) -> QueryPoints:
        """Points of all batches, pooled where several are asked the same cell."""
        asked, batches = self.plan.whole, self.plan.sums.batches
        return spread_points(pi, asked.points, batches=batches, exponent=asked.exponent, rng=rng)

    def degree(self, clients: int) -> Degree:
        """How many neighbours each client of a cohort has, and how many of them reveal its mask.

        With noise shares, whoever gives the clients their places is not trusted either. Only in a
        complete graph is no place surrounded by colluders.
        """
        complete = self.shares_noise and self.plan.roster != ""
        return _degree(clients, self.plan.sums.dropout, self.plan.sums.corruption, complete)

    def minimum(self, clients: int) -> int:
        """The fewest inputs with which a sum may be opened."""
        return self.degree(clients).threshold + 1

    def smallest_cohort(self, roster: int) -> int:  # noqa: ARG002  nobody relies on the others
        """The fewest clients of a cohort: a sum of fewer hides nobody."""
        return SMALLEST

    def check_parts(self) -> None:
        """Refuses a plan whose parts cost more together than it says. One noise is one part."""

    def possible_records(self, included: int, *, said: int) -> int:
        """Of a cohort of so many clients: known, if each contributes equally many.

        Else what the clients say together, as far as it is possible.
        """
        if self.plan.unit.kind == "client":
            return self.plan.unit.records * included
        return min(said, self.plan.sums.most_records * included)


class ScoredSum(CohortSums):
    """What follows from a trusted aggregator: it makes numbers or noisy counts of exact sums."""

    @cached_property
    def noises(self) -> tuple[QuestionNoise, ...]:
        """Each has its share of the plan's epsilon and delta.

        Together they cost what the plan says (`spent`): less than their epsilons add up to.
        """
        plan, groups = self.plan, self.plan.groups
        shares = [math.fsum(question.share for question in group) for group in groups]
        epsilons = share_out(plan.budget.epsilon * plan.budget.parts, shares)
        deltas = share_out(plan.budget.delta, shares)
        return tuple(map(self._noise, groups, epsilons, deltas))

    def _noise(
        self, questions: tuple[Question, ...], epsilon: float, delta: float
    ) -> QuestionNoise:
        """With this budget. All records that a unit contributes are in a cell of every view."""
        first, views = questions[0], len(questions[0].views)
        if first.release == "adaptive":
            return QuestionNoise(questions, InverseSensitivityMechanism(epsilon=epsilon))
        if first.look is not None:
            share, switch = first.look.share, first.look.switch
            law = LookedMechanism(epsilon=epsilon, share=share, switch=switch)
            return QuestionNoise(questions, law)
        counts = Counts(2 * views, self.plan.contribution_bound)
        on = counts if first.release == "counts" else Numbers(1.0, views)
        return QuestionNoise(questions, Calibrated(on, epsilon, delta, first.noise))

    def noise_of(self, question: Question) -> QuestionNoise:
        """The noise that answers a question of the plan."""
        return next(noise for noise in self.noises if question in noise.questions)

    @property
    def column_counts(self) -> Mechanism:
        """The noise on every count of the columns."""
        law = self.noise_of(self.plan.about_columns[-1]).law
        assert isinstance(law, Calibrated)  # noqa: S101  counts have no adaptive noise
        mechanism: Mechanism = law.noise
        return mechanism

    def maxima(self, clients: int) -> tuple[int, ...]:  # noqa: ARG002
        """The largest value of each entry of a client's vector.

            counts of the asked cells of each view, records

        Counts have twice the room they need: the aggregator folds impossible sums back into what
        is possible (`possible_counts`), and folding takes a ring twice as large.
        """
        most, counts = self.plan.sums.most_records, sum(view.points for view in self.plan.views)
        return (2 * most,) * counts + (most,)

    def vector(
        self,
        counts: Sequence[Ints],
        records: int,
        *,
        sums: SumPlan,  # noqa: ARG002
        source: NoiseSource,  # noqa: ARG002  the aggregator adds the noise
        randomness: Callable[[int], bytes],  # noqa: ARG002
    ) -> Ints:
        """What a client hands to the secure sum of a cohort. SECRET."""
        return np.concatenate([*counts, [records]]).astype(np.int64)

    def open(self, total: Ints, *, clients: int, included: int) -> OpenedSum:  # noqa: ARG002
        """The sum of a cohort. One that cannot be right is made possible."""
        top = self.plan.sums.most_records * included
        records = self.possible_records(included, said=int(total[-1]))
        parts = _split(total[:-1], [view.points for view in self.plan.views])
        return OpenedSum(
            tuple(possible_counts(part, top=top, records=records) for part in parts), records
        )

    def charge(self, cohorts: Sequence[int]) -> Charge:  # noqa: ARG002
        """What a release costs, known before any sum is. `cohorts` are their sizes."""
        self.check_parts()
        return self.composed

    @property
    def composed(self) -> Charge:
        """All noises of a release, as one charge."""
        return compose_charges([noise.charge for noise in self.noises])

    @cached_property
    def spent(self) -> float:
        """What a release costs by the ledger's account, at the plan's delta."""
        return total_epsilon([self.composed], delta=self.plan.budget.delta)

    def check_parts(self) -> None:
        """Refuses a plan whose parts cost more together than it says: anybody may have written it.

        Where they add up to its epsilon there is nothing to compute.
        """
        budget = self.plan.budget
        if budget.parts > 1 and not self.spent <= budget.epsilon:
            raise InvalidInputError(
                f"The parts of a release of this plan cost epsilon {self.spent:.6g} together, and "
                f"it says {budget.epsilon:.6g}. Make it again with `fedprikl plan`."
            )

    def client_charge(self, clients: int) -> Charge | None:  # noqa: ARG002
        """What a client of a cohort charges to a ledger of its own: the aggregator's will do."""
        return None


def possible_counts(opened: Ints, *, top: int, records: int) -> Ints:
    """Counts of at least 0 that sum to at most `records`, near the opened ones.

        f(h) = h up to `top`, then falling:  max(0, 2 top - h)
        g_i  = C_i - C_(i-1),   C_i = min(records, f(h_1) + ... + f(h_i))

    Counts that are possible stay as they are. The ring is at least 2 `top` around, so f moves by at
    most 1 if h does, also where it wraps. A record that leaves one cell for another moves g in the
    same way or not at all: the clipped cumulative sums differ by 1 between the two cells, up to the
    first place where they reach `records`. Only where an entry is beyond `top`, which no honest
    cohort reaches, can a record move g like two records: such a liar can double epsilon, and learns
    nothing from whether there is a release.
    """
    folded = np.where(opened <= top, opened, np.maximum(2 * top - opened, 0))
    clipped = np.minimum(np.cumsum(np.minimum(folded, records)), records)
    possible: Ints = np.diff(clipped, prepend=0)
    return possible


class NoisyHistogram(CohortSums):
    """What follows from an untrusted aggregator: noise shares, and counts that are public."""

    shares_noise: ClassVar[bool] = True

    def draw_points(self, pi: Floats, rng: np.random.Generator) -> QueryPoints:
        """Points of all batches; several batches are asked different cells, as none is pooled."""
        asked, batches = self.plan.whole, self.plan.sums.batches
        if batches > 1:
            return distinct_points(pi, asked.points, batches=batches, rng=rng)
        return super().draw_points(pi, rng)

    @cached_property
    def share(self) -> Callable[[int], SharedMechanism]:
        """The noise that each client of a cohort of so many adds.

        Made once for each size: drawn, charged and stated.
        """
        return cache(self._make_share)

    def _make_share(self, clients: int) -> SharedMechanism:
        """For the honest clients of every sum that can be opened.

        A sum can be opened with `minimum` inputs, of which a share `corruption` of the cohort may
        collude and subtract its own noise: the rest must suffice. At least one share is discounted:
        whoever takes part knows its own and sees the release.
        """
        plan, minimum = self.plan, self.minimum(clients)
        honest = minimum - max(1, int(np.ceil(plan.sums.corruption * clients)))
        if honest < 1:
            raise InvalidInputError(
                f"Of {minimum} inputs none would be honest for certain. Use larger cohorts, or a "
                "smaller corruption."
            )
        sparse = self.degree(clients).neighbours < clients - 1
        on = SharedCounts(
            shares=honest,
            coordinates=2 * len(plan.views),  # a record is in one count of each
            contribution=plan.contribution_bound,
            failure=DEFAULT_FAILURE if sparse else 0.0,  # a complete graph leaves none to chance
        )
        budget, law = plan.budget, plan.questions[0].noise
        return calibrate(on, epsilon=budget.epsilon, delta=budget.delta, law=law)

    def worst_share(self, cohorts: Sequence[int]) -> SharedMechanism:
        """The noise of the least protected cohort: a record is in one cohort only."""
        delta = self.plan.budget.delta
        return max(map(self.share, cohorts), key=lambda share: share.epsilon(delta))

    def minimum(self, clients: int) -> int:
        """The fewest inputs with which a sum may be opened: their noise must suffice."""
        least = super().minimum(clients)
        return max(least, int(np.floor((1 - self.plan.sums.dropout) * clients)))

    def smallest_cohort(self, roster: int) -> int:
        """The fewest clients of a cohort, of a roster of so many, that may rely on each other.

        Up to a share `corruption` of a cohort may collude. Whoever deals the cohorts could deal all
        colluders to one client; so a cohort is the whole roster, but for as many as may vanish.
        """
        return max(SMALLEST, int(np.floor((1 - self.plan.sums.dropout) * roster)))

    def maxima(self, clients: int) -> tuple[int, ...]:
        """The largest value of each entry of a client's vector.

            noisy counts of the asked cells and of all other records of each view, records, insecure

        Noise may be negative, so noisy entries are shifted up by its reach. `insecure` is a random
        number from 1 for a client whose noise is not from a secure source, and 0 for all others:
        whoever wants to cancel the mark of another has to guess it.
        """
        most, reach = self.plan.sums.most_records, self.share(clients).reach
        return (most + 2 * reach,) * sum(self.blocks) + (most, LARGEST_MARK)

    def vector(
        self,
        counts: Sequence[Ints],
        records: int,
        *,
        sums: SumPlan,
        source: NoiseSource,
        randomness: Callable[[int], bytes],
    ) -> Ints:
        """What a client hands to the secure sum of a cohort. SECRET.

        A client whose noise is not secure says so in the last entry, which marks the release. Noise
        is shifted by the reach that all of the cohort were told, which the aggregator takes off.
        """
        share = self.share(sums.clients)
        reach = (sums.maxima[0] - self.plan.sums.most_records) // 2
        exact = np.concatenate([np.append(block, records - block.sum()) for block in counts])
        noise = np.clip(share.draw_share(len(exact), source), -reach, reach)
        mark = 1 + int.from_bytes(randomness(4), "little") if source.insecure else 0
        return np.append(exact + noise + reach, [records, mark]).astype(np.int64)

    def open(self, total: Ints, *, clients: int, included: int) -> OpenedSum:
        """The sum of a cohort: noisy counts of each view, all other records last."""
        share = self.share(clients)
        return OpenedSum(
            counts=tuple(_split(total[:-2] - included * share.reach, self.blocks)),
            records=self.possible_records(included, said=int(total[-2])),
            noise_variance=included * share.share_variance,
            insecure=bool(total[-1]),
        )

    def charge(self, cohorts: Sequence[int]) -> Charge:
        """What a release costs, known before any sum is. `cohorts` are their sizes."""
        return self.worst_share(cohorts).charge(self.plan.budget.delta)

    def client_charge(self, clients: int) -> Charge | None:
        """What a client of a cohort charges to a ledger of its own."""
        return self.share(clients).charge(self.plan.budget.delta)


class ServersSum(ScoredSum):
    """What follows from three servers: each holds a share of the sums and adds a share of noise.

    They release noisy counts, and of tv the whole number (`server_answer.py`)

        V = sum_x max(0, C_x - s h_x),    C_x = s N Pi(x), rounded,    TV = V / (s N)

    which one record moves by at most s.
    """

    def _noise(
        self, questions: tuple[Question, ...], epsilon: float, delta: float
    ) -> QuestionNoise:
        first, views, k = questions[0], len(questions[0].views), self.plan.contribution_bound
        on = SharedCounts(HONEST, 2 * views, k)
        if first.release == "value":
            cells = sum(view.points for view in self.plan.views if view.columns in first.views)
            on = SharedCounts(HONEST, views, k * FINE, failure=2 * cells * MASK_DELTA)
        return QuestionNoise(questions, ServersNoise(on, epsilon, delta, first.noise))

    @property
    def left_over(self) -> AccountedRelease:
        """What delta pays beside the laws of the noises: how they are drawn, and comparisons."""
        rests = [servers_law(noise).left_over for noise in self.noises]
        return AccountedRelease(
            proved_epsilon=math.fsum(each.proved_epsilon for each in rests),
            proved_delta=math.fsum(each.proved_delta for each in rests),
        )

    @property
    def composed(self) -> Charge:
        """All noises of a release, and what delta pays beside them, as one charge."""
        return compose_charges([*(noise.charge for noise in self.noises), self.left_over])

    @cached_property
    def after_loss(self) -> tuple[tuple[QuestionNoise, ServersMechanism], ...]:
        """The noises if one server is lost: on counts only, off which all answers are read.

        Their laws are others, and compose otherwise: so their epsilons just add up to the plan's.
        """
        counted = [noise for noise in self.noises if noise.is_counts]
        parts = self.plan.budget.parts
        laws = [servers_law(noise) for noise in counted]
        return tuple(
            (noise, replace(law, epsilon=law.epsilon / parts).after_loss)
            for noise, law in zip(counted, laws, strict=True)
        )

    @cached_property
    def spent_after_loss(self) -> float:
        """What a release with one server lost costs, at the plan's delta."""
        return total_epsilon([self.composed_after_loss], delta=self.plan.budget.delta)

    @property
    def composed_after_loss(self) -> Charge:
        """All noises of a release with one server lost, as one charge."""
        charges = (law.charges(servers_law(noise).delta) for noise, law in self.after_loss)
        return compose_charges([part for parts in charges for part in parts])

    def maxima(self, clients: int) -> tuple[int, ...]:  # noqa: ARG002
        """The largest value of each entry of a client's vector: blocks of all views, records."""
        return (self.plan.sums.most_records,) * (sum(self.blocks) + 1)

    def vector(
        self,
        counts: Sequence[Ints],
        records: int,
        *,
        sums: SumPlan,  # noqa: ARG002
        source: NoiseSource,  # noqa: ARG002  the servers add the noise
        randomness: Callable[[int], bytes],  # noqa: ARG002
    ) -> Ints:
        """What a client splits into shares: counts of each view, others last; then N. SECRET."""
        blocks = [np.append(block, records - block.sum()) for block in counts]
        return np.concatenate([*blocks, [records]]).astype(np.int64)


def servers_law(noise: QuestionNoise) -> ServersNoise:
    """The law of a noise of three servers."""
    assert isinstance(noise.law, ServersNoise)  # noqa: S101  `ServersSum` makes no other
    return noise.law


MODES: dict[Trust, type[ScoredSum] | type[NoisyHistogram]] = {
    "aggregator": ScoredSum,
    "none": NoisyHistogram,
    "servers": ServersSum,
}


def trust_of(plan: Plan) -> ScoredSum | NoisyHistogram:
    """The object that owns what follows from whom the plan trusts: vectors, noise and charges.

    >>> from fedprikl.protocol import AskedView, Budget, Plan, Question, trust_of
    >>> asked = {"views": (AskedView(points=3),), "questions": (Question(release="counts"),)}
    >>> who = {"population": "p", "reference": 64 * "0", "trust": "none"}
    >>> trust_of(Plan(budget=Budget(epsilon=1.0), **who, **asked)).shares_noise
    True
    """
    return MODES[plan.trust](plan)


def asked_views(plan: Plan, reference: Reference) -> tuple[View, ...]:
    """The reference's columns and pairs that a plan asks about, in the plan's order."""
    return tuple(reference.views[place] for place in view_places(plan, reference))


def view_places(plan: Plan, reference: Reference) -> list[int]:
    """Where the asked columns stand among the views of the reference."""
    places = {view.columns: place for place, view in enumerate(reference.views)}
    if not all(asked.columns in places for asked in plan.columns):
        raise InvalidInputError("The plan asks about columns that the reference does not have.")
    found = [places[asked.columns] for asked in plan.columns]
    if [reference.views[place].size for place in found] != [each.points for each in plan.columns]:
        raise InvalidInputError("The plan asks for another number of counts than a column has.")
    return found


def _split(counts: Ints, sizes: Sequence[int]) -> list[Ints]:
    return np.split(counts, np.cumsum(sizes)[:-1])


@cache
def _degree(clients: int, dropout: float, corruption: float, complete: bool) -> Degree:
    return choose_degree(clients, dropout=dropout, corruption=corruption, complete=complete)
