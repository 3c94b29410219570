"""The answer of three servers: noise first, on shares, then one vector of numbers is opened.

`answer` runs at each server, over a `Runtime` (`secure_sum/line_runtime.py`). A server hands in its
share of the sums of all reports. What is opened, in this order: the number of records N, which is
public (of whole clients it is known and not opened); numbers that are uniform whatever the counts
are, inside comparisons; and the noised numbers of the release.

Of a tv, V = sum_x F(C_x - s h_x) with F(u) = max(0, u) for all sums that honest clients can have.
Modulo a prime, F must come down again somewhere, or lying clients could put a sum at the place
where it jumps and see there what no noise hides: so F falls from a quarter of the prime on,

    F(u) = u up to q,    2 q - u up to half of the prime,    0 beyond,    q = floor(prime / 4)

and one record moves it by at most s everywhere, up or down.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, ReleaseRefused
from fedprikl.privacy import NoiseSource
from fedprikl.privacy.server_noise import JointLaplace, ServersMechanism
from fedprikl.protocol.answering import Noised, places_of
from fedprikl.protocol.server_share import add_rows
from fedprikl.protocol.sums import FINE, QuestionNoise, ServersSum, servers_law
from fedprikl.reference import QueryPoints
from fedprikl.secure_sum.line_runtime import Runtime, coins, multiply, negative
from fedprikl.secure_sum.line_shares import PRIME, SERVERS, Field, add, from_field, times, to_field

QUARTER = PRIME // 4
COINS_AT_ONCE = 16_384  # some 100 MiB
_PRIME = np.uint64(PRIME)


@dataclass(frozen=True, eq=False)
class ServersAnswer:
    """What three servers release of a plan: which numbers, with which noise. Public."""

    trust: ServersSum
    points: Sequence[QueryPoints]  # of each view of the plan
    lost: bool = False  # whether one server is

    def __post_init__(self) -> None:
        servers = self.trust.plan.servers
        if self.lost and (servers is None or servers.lost == "nothing"):
            raise ReleaseRefused(
                "One server is lost, and the plan releases nothing without it. Nothing was opened "
                "and no budget was spent."
            )
        if self.lost:
            self.trust.plan.check_lost()

    @property
    def noises(self) -> tuple[QuestionNoise, ...]:
        """The noises that are drawn, in this order."""
        return tuple(each for each in self.trust.noises if each.is_counts or not self.lost)

    def draw_noise(self, source: NoiseSource) -> Ints:
        """SECRET: what one server draws by itself, for every number that is released.

        0 where the servers draw together.
        """
        drawn, after_loss = [], dict(self.trust.after_loss) if self.lost else {}
        for each in self.noises:
            size = self._size(each)
            mechanism = after_loss[each] if self.lost else servers_law(each).noise
            alone = isinstance(mechanism, ServersMechanism)
            drawn.append(mechanism.draw(size, source) if alone else np.zeros(size, np.int64))
        return np.concatenate(drawn)

    async def draw_together(self, runtime: Runtime, randomness: Callable[[int], bytes]) -> Field:
        """Shares of the noise that the servers draw together, for every number."""
        drawn = []
        for each in self.noises:
            joint = None if self.lost else servers_law(each).joint
            size = self._size(each)
            if joint is None:
                drawn.append(np.zeros(size, np.uint64))
            else:
                drawn.append(await laplace_noise(runtime, joint, size, randomness))
        return np.concatenate(drawn)

    def _size(self, noise: QuestionNoise) -> int:
        places = places_of(self.trust.plan, noise)
        return sum(self.trust.blocks[i] for i in places) if noise.is_counts else len(places)

    def view(self, place: int, vector: Field) -> Field:
        """The block of one view: the counts of its asked cells, and of all other records."""
        ends = np.cumsum(self.trust.blocks)
        return vector[ends[place] - self.trust.blocks[place] : ends[place]]

    @property
    def _variances(self) -> tuple[float, ...]:
        """Of the noise, where it is not the planned one."""
        laws = [law for _, law in self.trust.after_loss if self.lost]
        return tuple(law.standard_deviation**2 for law in laws)

    def read(self, numbers: Ints, records: int, *, insecure: bool) -> Noised:
        """The released numbers as what they are."""
        values, counts, rest = list[tuple[float, ...]](), list[tuple[float, ...]](), numbers
        for noise in self.noises:
            own, rest = np.split(rest, [self._size(noise)])
            if noise.is_counts:
                sizes = [self.trust.blocks[i] for i in places_of(self.trust.plan, noise)]
                blocks = np.split(own.astype(np.float64), np.cumsum(sizes)[:-1])
                counts += [tuple(block.tolist()) for block in blocks]
            else:
                unit = (1 - noise.questions[0].skew) / (FINE * records)
                values.append(tuple((unit * own).tolist()))
        return Noised(
            records=(records,),
            values=tuple(values),
            counts=tuple(counts),
            variances=self._variances,
            insecure=insecure,
        )


def expected_steps(points: QueryPoints, records: int, fine: int = FINE) -> Ints:
    """C_x = s N Pi(x) in whole numbers, whose sums over neighbouring cells are off by at most 1.

    >>> from fedprikl.reference import all_points
    >>> expected_steps(all_points([0.25, 0.25, 0.5]), 10, 1).tolist()
    [3, 2, 5]
    """
    if not np.allclose(points.weights, points.pi, rtol=1e-12, atol=0):
        raise InvalidInputError(
            "Three servers compute a tv where every cell is asked. Plan again with "
            "release='counts' for the whole."
        )
    reached = np.floor(np.cumsum(points.pi * (fine * records)) + 0.5)
    return np.diff(reached, prepend=0.0).astype(np.int64)


def rising(u: Ints) -> Ints:
    """F(u), of numbers nearest to 0 modulo the prime.

    >>> rising(np.array([-3, 0, 3, QUARTER + 2])).tolist() == [0, 0, 3, QUARTER - 2]
    True
    """
    return np.where(u < 0, 0, np.where(u < QUARTER, u, 2 * QUARTER - u))


async def answer(
    runtime: Runtime,
    asked: ServersAnswer,
    share: Field,
    *,
    included: int,
    source: NoiseSource,
    randomness: Callable[[int], bytes] = os.urandom,
    noise: Ints | None = None,
) -> Noised:
    """The noised numbers of a release, from a share of the sums of so many reports.

    All noise is drawn, and added on shares, before anything that depends on counts is opened.
    `noise` takes the place of all that this server would draw: in tests.
    """
    if asked.lost is (len(runtime.present) == len(SERVERS)):
        raise InvalidInputError("Whether a server is lost is decided before any noise is drawn.")
    own = asked.draw_noise(source) if noise is None else noise
    drawn = list((await runtime.deal(to_field(own), runtime.present)).values())
    if noise is None:
        drawn.append(await asked.draw_together(runtime, randomness))
    records = await _records(runtime, asked.trust, share, included)
    parts = []
    for each in asked.noises:
        places = places_of(asked.trust.plan, each)
        if each.is_counts:
            parts += [asked.view(place, share) for place in places]
        else:
            short = await _shortfall(runtime, asked, places, share, records)
            parts.append(await _rising(runtime, short, randomness))
    opened = await runtime.open(add([np.concatenate(parts), *drawn]))
    return asked.read(from_field(opened), records, insecure=source.insecure)


async def laplace_noise(
    runtime: Runtime, law: JointLaplace, size: int, randomness: Callable[[int], bytes] = os.urandom
) -> Field:
    """Shares of so many discrete Laplace variables, of which no server knows anything."""
    digits, parts = law.digits, []
    weights = np.concatenate(
        [to_field(2 ** np.arange(digits)), to_field(-(2 ** np.arange(digits)))]
    )
    each = max(1, COINS_AT_ONCE // len(weights))
    for start in range(0, size, each):
        some = min(each, size - start)
        chances = np.tile(np.concatenate([law.chances, law.chances]), some)
        tossed = (await coins(runtime, chances, randomness)).reshape(some, -1)
        parts.append(add_rows(times(tossed, weights[None]).T))
    return np.concatenate(parts)


async def _records(runtime: Runtime, trust: ServersSum, share: Field, included: int) -> int:
    """N, as far as it is possible; refused where nobody holds a record."""
    plan = trust.plan
    said = 0
    if plan.unit.kind == "record":
        said = max(0, int(from_field(await runtime.open(share[-1:]))[0]))
    records = trust.possible_records(included, said=said)
    if records == 0:
        raise ReleaseRefused(
            "The reports hold no records. Nothing but that was opened; the budget stays charged."
        )
    return records


async def _shortfall(
    runtime: Runtime,
    asked: ServersAnswer,
    places: Sequence[int],
    share: Field,
    records: int,
) -> list[Field]:
    """Shares of C_x - s h_x of the asked cells of each view.

    C_x follows from the plan and N, but real numbers are rounded differently on other processors:
    so the first server deals its own, instead of each taking another.
    """
    expected = [to_field(expected_steps(asked.points[place], records)) for place in places]
    first = runtime.present[0]
    dealt = (await runtime.deal(np.concatenate(expected), (first,)))[first]
    ends, fine = np.cumsum([len(each) for each in expected])[:-1], np.array([FINE], np.uint64)
    return [
        (own + (_PRIME - times(asked.view(place, share)[:-1], fine))) % _PRIME
        for place, own in zip(places, np.split(dealt, ends), strict=True)
    ]


async def _rising(
    runtime: Runtime, short: Sequence[Field], randomness: Callable[[int], bytes]
) -> Field:
    """Shares of sum_x F(u_x) of each view.

        F(u) = A u + A B (2 q - 2 u),    A = [u >= 0],  B = [u >= q]

    Of a view, products are added up before they are shared anew.
    """
    u = np.concatenate(short)
    quarter = np.uint64(QUARTER)
    moved = (u + (_PRIME - quarter)) % _PRIME
    signs = await negative(runtime, np.concatenate([u, moved]), randomness)
    first, second = np.split((1 + _PRIME - signs) % _PRIME, 2)
    both = await multiply(runtime, first, second)
    turn = 2 * (quarter + (_PRIME - u) % _PRIME) % _PRIME
    products = (times(first, u) + times(both, turn)) % _PRIME
    ends = np.cumsum([len(each) for each in short])[:-1]
    sums = [add_rows(part[:, None]) for part in np.split(products, ends)]
    return await runtime.reshare(np.concatenate(sums))
