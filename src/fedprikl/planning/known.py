"""What a user knows of a federation before any data is touched, and what fits into it."""

import math
from dataclasses import dataclass, replace
from functools import partial

from fedprikl.errors import InvalidInputError
from fedprikl.planning.design import Spectrum
from fedprikl.protocol.client import Policy
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.report import message_bytes
from fedprikl.protocol.round import cohort_sizes, plan_cohort
from fedprikl.reference import Reference, one_each
from fedprikl.secure_sum.line_shares import ENTRY_BYTES, SERVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SumCost:
    """What the secure sums cost. Bytes are exact up to some fixed headers."""

    cohorts: int
    clients: int  # of the largest cohort
    neighbours: int  # key agreements of each client
    masked_bytes: int  # the counts themselves
    sent_bytes: int  # by one client in all
    received_bytes: int


UNLIKE = 10  # times as many records: another kind of client, maybe
MOST_POINTS = Policy().most_points  # what clients accept by default
REPORT_BYTES = 2 * ENTRY_BYTES  # of a number in a report to three servers: one has a seed


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What the user said. Public."""

    reference: Reference
    spectrum: Spectrum
    clients: int
    records: int
    payload: int
    cohort: int | None  # clients of one secure sum; None: what is best
    held: int = 0  # records of all clients, of which some may be drawn; 0: all are counted

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """What the plan's promises rest on and nobody has said."""
        pi, unit, found = self.reference, plan.unit, list[str]()
        kinds = [view.correlation for view in (pi.whole, *pi.views)]
        known = any(each is not None for each in kinds)
        given = known or plan.verdict.design_effect is not None
        if not given and not one_each(self.records, self.clients):
            found.append(
                f"The clients {'contribute' if unit.kind == 'client' else 'hold'} "
                f"{_many(self.records / self.clients)} records each on average, and nothing says "
                "how correlated one client's are. The false-alarm rate of the verdict holds for "
                "unrelated records only. Build the reference with the ids of clients like these "
                "(--client-column, or client=...; in a federation: of sites)."
            )
        effect = plan.verdict.design_effect
        if not known and effect is not None and effect > 1:
            found.append(
                "A design effect of your own (--design-effect) is a rough correction: where "
                "clients hold different kinds of records, the false-alarm rate is not kept. Ids "
                "of clients like these in the reference do that."
            )
        if known and effect is None:
            found += self._other_clients()
        counted = max((each.clients for each in kinds if each is not None), default=0)
        if known and effect is None and counted < 2 * self.clients:
            found.append(
                f"The reference names {counted:,} clients, fewer than twice the {self.clients:,} "
                "that are counted. How much clients differ is known from few of them, so "
                "thresholds are higher than with more: build it from more clients if you can."
            )
        if unit.kind == "client" and unit.empty == "away":
            found.append(
                "Clients without records stay away (--empty away), so whether a client has any is "
                "not protected, and the number of records tells how many have."
            )
        if unit.kind == "client" and unit.records > 1:
            found.append(
                f"Every client contributes {unit.records:,} records. One that holds fewer fills up "
                "with records of the reference. That makes a drift look smaller, never larger, so "
                "nearly all clients should hold as many (--typical-records, --per-client). Clients "
                "that hold as many weigh the same, so build the reference from equally many "
                "records of each of its clients too."
            )
        return tuple(found)

    def _other_clients(self) -> list[str]:
        """That clients of the reference seem to be of another kind, by their numbers of records."""
        views = (self.reference.whole, *self.reference.views)
        there = max(
            view.counted / view.correlation.clients
            for view in views
            if view.correlation is not None
        )
        here = (self.held or self.records) / self.clients
        if there == 0 or 1 / UNLIKE <= here / there <= UNLIKE:  # 0: Pi is exact
            return []
        return [
            f"A client of the reference holds {_many(there)} records, one of this plan "
            f"{_many(here)}. Are they the same kind of client? In a federation a client is a site, "
            "not a patient. If not, build the reference without --client-column."
        ]

    def points_that_fit(self, plan: Plan) -> int:
        """The most points whose counts, packed, fit into the payload."""
        if plan.trust == "servers":
            points = self.payload // REPORT_BYTES - self._other_entries(plan)
            return max(1, min(points, self.spectrum.cells, MOST_POINTS - plan.column_points))
        sums = plan_cohort(plan.asking(1), clients=self.largest_cohort(plan))
        first, *others = ((top * sums.clients).bit_length() for top in sums.maxima)
        points = (8 * self.payload - sum(others)) // first
        if points < 1:
            raise InvalidInputError(
                f"A payload of {self.payload} bytes has no room for a count of {first} bits beside "
                "the number of records. Allow more bytes, or lower most_records."
            )
        return min(points, self.spectrum.cells, MOST_POINTS - plan.column_points)

    @staticmethod
    def _other_entries(plan: Plan) -> int:
        """Numbers of a report beside the asked cells of the whole: of columns, of other records of
        every view, N and the mask.
        """
        return plan.column_points + len(plan.views) + 2

    def column_bytes(self, plan: Plan) -> int:
        """What the counts of the columns take, packed, with the number of records."""
        if plan.trust == "servers":
            return REPORT_BYTES * self._other_entries(plan)
        sums = plan_cohort(plan.asking(1), clients=self.largest_cohort(plan))
        without = sums.maxima[1:] if plan.points else sums.maxima  # the only count of the whole
        return replace(sums, maxima=without).ring().packed_bytes

    def cost(self, plan: Plan) -> SumCost:
        """Of the secure sums of this plan, or of a report to each of three servers.

        Per neighbour: 92 bytes of sealed shares, 20 of a tag, 40 of revealed shares sent, and 164
        of keys, 92 and 20 received (docs/secure-sum.md).
        """
        if plan.servers is not None:
            entries, signed = plan.points + self._other_entries(plan), plan.roster != ""
            lengths = partial(message_bytes, entries - 1, suite=plan.servers.suite, signed=signed)
            return SumCost(
                cohorts=1,
                clients=self.clients,
                neighbours=0,
                masked_bytes=REPORT_BYTES * entries,
                sent_bytes=sum(lengths(server=number) for number in SERVERS),
                received_bytes=0,
            )
        sums, batches = plan_cohort(plan, clients=self.largest_cohort(plan)), plan.sums.batches
        packed = sums.ring().packed_bytes
        return SumCost(
            cohorts=batches * len(cohort_sizes(plan, self.clients // batches)),
            clients=sums.clients,
            neighbours=sums.neighbours,
            masked_bytes=packed,
            sent_bytes=152 * sums.neighbours + packed,
            received_bytes=276 * sums.neighbours,
        )

    def largest_cohort(self, plan: Plan) -> int:
        """Clients of the largest secure sum."""
        return max(cohort_sizes(plan, math.ceil(self.clients / plan.sums.batches)))


def _many(records: float) -> str:
    """Records per client, for people: never like 1e+03."""
    return f"{records:,.0f}" if records >= 10 else f"{records:.2g}"
