"""The server: holds Pi and the plan, asks the questions, receives the release and nothing else."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.protocol.release import Release
from fedprikl.protocol.round import Cohort, Round, cohort_sizes, plan_cohort, sum_nonce
from fedprikl.protocol.sums import trust_of, view_places
from fedprikl.reference import Reference

SMALLEST = 3  # clients of a secure sum
NO_CELLS: Ints = np.zeros(0, dtype=np.int64)


def deal(
    plan: Plan,
    clients: Sequence[str],
    together: Sequence[Sequence[str]],
    rng: np.random.Generator,
) -> list[tuple[int, list[str]]]:
    """The batch and the members of each cohort.

    At random where nobody was dealt before. Clients who were `together` in an earlier round stay
    together; newcomers form cohorts of their own if they are enough for one, and join the smallest
    cohorts if not. With fewer earlier cohorts than batches, all are dealt anew.
    """
    kept = _kept(clients, together)
    if len(kept) >= plan.sums.batches:
        known = {name for group in kept for name in group}
        new = [name for name in clients if name not in known]
        groups = _with_newcomers(plan, kept, [new[i] for i in rng.permutation(len(new))])
        shares = np.array_split(np.arange(len(groups)), plan.sums.batches)
        return [(batch, groups[i]) for batch, share in enumerate(shares) for i in share.tolist()]
    shuffled = [clients[i] for i in rng.permutation(len(clients))]
    return [
        (batch, group)
        for batch, members in enumerate(_split(shuffled, plan.sums.batches))
        for group in _split(members, len(cohort_sizes(plan, len(members))))
    ]


def _kept(clients: Sequence[str], together: Sequence[Sequence[str]]) -> list[list[str]]:
    """The earlier cohorts without those who are gone; what is left of a tiny one joins another."""
    present = set(clients)
    groups = [[name for name in group if name in present] for group in together]
    large = [group for group in groups if len(group) >= SMALLEST]
    if not large:
        return []
    for group in groups:
        if len(group) < SMALLEST:
            min(large, key=len).extend(group)
    return large


def _with_newcomers(plan: Plan, kept: list[list[str]], new: list[str]) -> list[list[str]]:
    if len(new) >= max(plan.sums.cohort, SMALLEST):
        return kept + _split(new, len(cohort_sizes(plan, len(new))))
    for name in new:
        min(kept, key=len).append(name)
    return kept


def _split(items: Sequence[str], parts: int) -> list[list[str]]:
    """Into so many parts of nearly equal size."""
    return [list(part) for part in np.array_split(np.array(items, dtype=object), parts)]


class Server:
    """Draws the points, deals the clients into batches and cohorts, checks the release.

    Holds: Pi, the plan, the points. May never see: an un-noised sum or score.
    """

    def __init__(self, signed: SignedPlan, reference: Reference) -> None:
        if signed.plan.reference != reference.fingerprint:
            raise InvalidInputError(
                "The plan is about another reference than the one that is given. Give the "
                "reference that the plan was made with, or plan again."
            )
        self._signed = signed
        self._reference = reference

    @property
    def plan(self) -> Plan:
        """What the parties agreed on."""
        return self._signed.plan

    def open_round(
        self,
        clients: Sequence[str],
        *,
        rng: np.random.Generator,
        randomness: Callable[[int], bytes],
        identities: Mapping[str, bytes] | None = None,
        together: Sequence[Sequence[str]] = (),
        period: int | None = None,
    ) -> Round:
        """A fresh round for the named clients. `rng` draws the points and deals: all public.

        `identities` are their public keys, used if the plan names a roster. `together` are the
        cohorts of an earlier round over the same people, in order: they stay together, because the
        differences between sums over changing groups tell more and more about single clients.
        `period` is the one of the plan's series that is counted.
        """
        plan, known = self._signed.plan, identities or {}
        self._check_clients(clients, known)
        self._check_asked(period)
        round_id, points, cohorts = randomness(16).hex(), None, []
        if plan.points:
            points = trust_of(plan).draw_points(self._reference.probabilities, rng)
        for number, (batch, members) in enumerate(deal(plan, clients, together, rng)):
            cells = NO_CELLS if points is None else points.cells[points.batch == batch]
            nonce = sum_nonce(
                plan, round_id, cohort=number, batch=batch, cells=cells.tolist(), period=period
            )
            roster = [known[name] for name in members] if plan.roster else ()
            sums = plan_cohort(plan, clients=len(members), nonce=nonce, roster=roster)
            cohorts.append(Cohort(number, batch, tuple(members), cells, sums))
        return Round(round_id, self._signed, points, tuple(cohorts), self._reference, period)

    def _check_clients(self, clients: Sequence[str], identities: Mapping[str, bytes]) -> None:
        plan = self.plan
        if len(set(clients)) < len(clients):
            raise InvalidInputError("A client is named twice.")
        if len(clients) < 3 * plan.sums.batches:
            raise InvalidInputError(
                f"{len(clients)} clients are too few for {plan.sums.batches} batches: a secure sum "
                "needs at least 3. Use fewer batches."
            )
        if plan.roster and not identities.keys() >= set(clients):
            raise InvalidInputError(
                "The plan names a roster, so every client needs its identity. Run the round where "
                "the clients have theirs, or plan without a roster."
            )

    def _check_asked(self, period: int | None) -> None:
        view_places(self.plan, self._reference)  # all of them exist
        if self.plan.points and not self._reference.joint:
            raise InvalidInputError(
                "The reference has columns only, and the plan asks about the whole. Plan again."
            )
        when, cells = self.plan.when, int(np.count_nonzero(self._reference.whole.mass))
        if when.kind == "once":
            if period is not None:
                raise InvalidInputError("The plan has no series, so it has no periods.")
            return
        if period is None:
            raise InvalidInputError(
                "The plan is for a series of releases, one per period. Run what is due with "
                "`fedprikl monitor`."
            )
        when.period(period)
        if self.plan.points and self.plan.points != cells:
            raise InvalidInputError(
                f"The plan asks for {self.plan.points:,} of {cells:,} cells. A series asks for all "
                "of them, so that counts add up over time. Plan again."
            )

    def accept(self, current: Round, message: bytes, *, aggregator: str) -> Release:
        """The release of a round, if the aggregator made it and it is about this very plan."""
        release = Release.from_bytes(message)
        if not release.is_signed_by(aggregator):
            raise InvalidInputError("The release is not signed by the aggregator.")
        if release.round_id != current.round_id or not release.is_about(current.plan):
            raise InvalidInputError("The release belongs to another round or plan.")
        return release
