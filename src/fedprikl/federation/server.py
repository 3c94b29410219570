"""The server: holds Pi and the plan, asks the questions, receives the release and nothing else."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedprikl.errors import InvalidInputError
from fedprikl.federation.plan import Plan, SignedPlan
from fedprikl.federation.release import Release
from fedprikl.federation.round import Cohort, Round, cohort_sizes, plan_cohort, plan_nonce
from fedprikl.reference import QueryPoints, Reference, distinct_points, iid_points, spread_points
from fedprikl.secure_sum import SumPlan

__all__ = ["Server"]


class Server:
    """Draws the points, deals the clients into batches and cohorts, checks the release.

    Holds: Pi, the plan, the points. May never see: an un-noised sum or score.
    """

    def __init__(self, signed: SignedPlan, reference: Reference) -> None:
        if signed.plan.reference != reference.fingerprint:
            raise InvalidInputError("The plan is about another reference. Plan again.")
        self._signed = signed
        self._reference = reference

    def open_round(
        self,
        clients: Sequence[str],
        *,
        rng: np.random.Generator,
        randomness: Callable[[int], bytes],
        identities: Mapping[str, bytes] | None = None,
    ) -> Round:
        """A fresh round for the named clients. `rng` draws the points and deals: all public.

        `identities` are their public keys, used if the plan names a roster.
        """
        plan = self._signed.plan
        if len(set(clients)) < len(clients):
            raise InvalidInputError("A client is named twice.")
        if len(clients) < 3 * plan.batches:
            raise InvalidInputError(
                f"{len(clients)} clients are too few for {plan.batches} batches: a secure sum "
                "needs at least 3. Use fewer batches."
            )
        known = identities or {}
        if plan.roster and not known.keys() >= set(clients):
            raise InvalidInputError(
                "The plan names a roster, so every client needs its identity. Run the round where "
                "the clients have theirs, or plan without a roster."
            )
        round_id = randomness(16).hex()
        points = self._draw_points(rng)
        shuffled = [clients[i] for i in rng.permutation(len(clients))]
        cohorts = []
        for batch, members in enumerate(_split(shuffled, plan.batches)):
            cells = points.cells[points.batch == batch]
            for group in _split(members, len(cohort_sizes(plan, len(members)))):
                if plan.roster:
                    sums = _known_cohort(plan, round_id, len(cells), [known[n] for n in group])
                else:
                    sums = plan_cohort(plan, len(group), len(cells), randomness)
                cohorts.append(Cohort(batch, tuple(group), cells, sums))
        return Round(round_id, self._signed, points, tuple(cohorts))

    def accept(self, this: Round, message: bytes, *, aggregator: str) -> Release:
        """The release of a round, if the aggregator made it and it is about this very plan."""
        release = Release.from_bytes(message)
        if not release.is_signed_by(aggregator):
            raise InvalidInputError("The release is not signed by the aggregator.")
        if release.round_id != this.round_id or release.plan != this.plan.fingerprint:
            raise InvalidInputError("The release belongs to another round or plan.")
        return release

    def _draw_points(self, rng: np.random.Generator) -> QueryPoints:
        plan, pi = self._signed.plan, self._reference.probabilities
        if plan.estimator == "paper":
            return iid_points(pi, plan.points, batches=plan.batches, rng=rng)
        if plan.estimator == "exact" or plan.batches == 1:
            return spread_points(
                pi, plan.points, batches=plan.batches, exponent=plan.exponent, rng=rng
            )
        return distinct_points(pi, plan.points, batches=plan.batches, rng=rng)


def _known_cohort(plan: Plan, round_id: str, points: int, roster: Sequence[bytes]) -> SumPlan:
    nonce = plan_nonce(plan, round_id)
    return plan_cohort(plan, len(roster), points, lambda _: nonce, roster)


def _split(items: Sequence[str], parts: int) -> list[list[str]]:
    """Into so many parts of nearly equal size."""
    return [list(part) for part in np.array_split(np.array(items, dtype=object), parts)]
