"""Spans of time: which records a release counted, where each record belongs to one moment.

Two releases about disjoint spans have no record in common, so none of them adds to what the other
tells about a record (parallel composition: McSherry 2009, theorem 4). What a record has lost is
the composition of the releases whose span holds its moment; what a population has spent is the
most that any record can have lost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, product

from fedprikl.errors import InvalidInputError
from fedprikl.privacy.composition import total_epsilon
from fedprikl.privacy.mechanism import Charge

__all__ = ["Span", "Spanned", "exposures", "worst_epsilon"]


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` up to, and without, `end`: ISO 8601 with an offset."""

    start: str
    end: str
    clock: str = (
        ""  # what tells the moment of a record; spans of different clocks may share records
    )

    def __post_init__(self) -> None:
        first, last = self.instants
        if not first < last:
            raise InvalidInputError("A span of time ends after it begins.")

    @property
    def instants(self) -> tuple[float, float]:
        """In seconds since 1970."""
        try:
            found = [datetime.fromisoformat(at) for at in (self.start, self.end)]
        except (TypeError, ValueError):
            found = []
        if not found or any(at.tzinfo is None for at in found):
            raise InvalidInputError("The ends of a span are ISO 8601 times with an offset.")
        return found[0].timestamp(), found[1].timestamp()

    def overlaps(self, other: "Span | None") -> bool:
        """Whether a record may be in both; None is all of them."""
        if other is None or other.clock != self.clock:
            return True
        (start, end), (first, last) = self.instants, other.instants
        return start < last and first < end


Spanned = tuple[Charge, Span | None]  # None: whatever the moment of a record


def exposures(charges: Iterable[Spanned]) -> tuple[tuple[Charge, ...], ...]:
    """What records of different moments were charged: equal charges once.

    Cost: the number of spans times how many of them overlap; of several clocks, the product.

    >>> from fedprikl.privacy import calibrate_laplace
    >>> one, two = (calibrate_laplace(epsilon=each, sensitivity=1.0) for each in (0.5, 1.0))
    >>> monday = Span("2027-01-04T00:00:00+00:00", "2027-01-05T00:00:00+00:00")
    >>> tuesday = Span("2027-01-05T00:00:00+00:00", "2027-01-06T00:00:00+00:00")
    >>> sorted(map(len, exposures([(one, monday), (two, tuesday)])))
    [0, 1, 1]
    """
    listed = list(charges)
    always = tuple(charge for charge, span in listed if span is None)
    spans = [(charge, span) for charge, span in listed if span is not None]
    clocks = {span.clock for _, span in spans}
    by_clock = [_of_clock([each for each in spans if each[1].clock == name]) for name in clocks]
    # A record has a moment by every clock, and nobody knows which moments go together.
    return tuple((*always, *chain.from_iterable(parts)) for parts in product(*by_clock))


def _of_clock(charges: Sequence[tuple[Charge, Span]]) -> list[tuple[Charge, ...]]:
    """What records of different moments were charged, by one clock; some were charged nothing."""
    events: list[tuple[float, int, int]] = []
    for number, (_, span) in enumerate(charges):
        start, end = span.instants
        events += [(start, 1, number), (end, 0, number)]  # what ends goes before what begins
    found: dict[str, tuple[Charge, ...]] = {"": ()}
    active = set[int]()
    for _, begins, number in sorted(events):
        if begins:
            active.add(number)
            now = tuple(charges[each][0] for each in sorted(active))
            found[repr(now)] = now
        else:
            active.discard(number)
    return list(found.values())


def worst_epsilon(charges: Iterable[Spanned], *, delta: float) -> float:
    """The most that all charges together tell about one record, whatever its moment."""
    return max(total_epsilon(each, delta=delta) for each in exposures(charges))
