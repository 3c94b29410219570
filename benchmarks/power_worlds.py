"""Domains, drifts and populations that `power.py` measures on. All of it is simulated in the open.

A domain is Pi over K cells, most of them in an order that has nothing to do with how heavy they
are. A kind of drift is a path from Pi along which KL grows, so that "a drift of 0.01 nats" is one
distribution. Constants of the library may be tuned on the worlds of `TUNE`, not on any other.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import skewed_divergence

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import Digits, load_compact

SKEW = 0.01
DOMAINS = ("lognormal", "digits", "flights", "bimodal", "zipf")
KINDS = ("smooth", "rare", "heavy")  # by cells of all sorts
FEW_CELLS = ("fading", "growing", "contamination", "ordinal")  # by some cells, or to others
# Names begin like this.
TUNE = ("lognormal", "flights", "blocks, 300 ids", "sizes 1.5", "giants 1.2", "even")
CARRIERS, AIRPORTS, HOURS, CLASSES = 8, 10, 5, 4  # of the flights
PER_CLIENT = 100  # records, about
REFERENCE_RECORDS = 100_000
SHORTEST = 0.95  # of the usual number of records of a quarter of the writers
LEAST_LEFT = 1e-3  # of cells that shrink: KL would grow further without anybody seeing it


def generator(seed: int, *key: object) -> np.random.Generator:
    """Randomness of its own for every task: the same whatever else is measured."""
    return np.random.default_rng([seed, *"/".join(map(str, key)).encode()])


def split(world: str) -> str:
    """Whether a world is one to tune on, or one to check on."""
    return "tune" if world.startswith(TUNE) else "check"


def clients_of(records: int) -> int:
    """How many clients hold so many records."""
    return max(12, records // PER_CLIENT)


def domain(name: str, cells: int, seed: int, data: Path | None = None) -> Floats:
    """Pi over so many cells."""
    rng = generator(seed, "domain", name, cells)
    if name == "lognormal":
        mass = rng.lognormal(size=cells)
    elif name == "digits" and data is not None:  # the codes that occur most often
        mass = np.sort(np.bincount(_digits(data).cell).astype(float))[-cells:]
        mass = rng.permutation(mass)
    elif name == "digits":
        mass = (np.arange(cells) + 2.7) ** -1.6 * rng.lognormal(sigma=0.3, size=cells)
        mass = rng.permutation(mass)
    elif name == "zipf":
        mass = rng.permutation(1 / np.arange(1.0, cells + 1))
    elif name == "bimodal":  # bins of a number, in their order
        place, width = np.linspace(0, 1, cells), rng.uniform(0.06, 0.1, 2)
        humps = [
            np.exp(-(((place - at) / w) ** 2) / 2) for at, w in ((0.3, width[0]), (0.7, width[1]))
        ]
        mass = humps[0] + rng.uniform(0.5, 1.5) * humps[1] + 0.01
    else:
        joint = Flights.draw(rng).joint.mean(axis=0)
        kept = np.sort(np.argsort(joint)[-cells:])
        mass = joint[kept]
    return np.asarray(mass / mass.sum())


def size(pi: Floats, p: Floats) -> float:
    """D(Pi || P) in nats, without skew."""
    with np.errstate(divide="ignore"):
        return float(np.sum(pi * np.log(pi / p)))


def drifted(pi: Floats, kind: str, nats: float, order: Ints | None = None) -> Floats:
    """P of a kind of drift with D(Pi || P) = nats, at most `largest`.

    smooth: a tilt along the cells, or along another `order` of them. rare: the lighter half of the
    cells shrinks. heavy: the heaviest cell shrinks. fading: the median cell does. growing: mass
    moves into the rarest twelfth of the cells. contamination: a mixture with another distribution,
    Pi with its cells in another order. ordinal: a share of every cell moves to the next one. gone:
    the heaviest cell vanishes, whatever the size.
    """
    if kind == "gone":
        return shrunk(pi, np.arange(len(pi)) == np.argmax(pi), 0.0)
    if nats == 0:
        return pi
    path, end = _path(pi, kind, order)
    if size(pi, path(end)) <= nats:  # but for rounding, the largest one
        return path(end)
    return path(optimize.brentq(lambda at: size(pi, path(at)) - nats, 0.0, end, xtol=1e-12))


def largest(pi: Floats, kind: str) -> float:
    """The size of the largest drift of a kind."""
    path, end = _path(pi, kind)
    return (1 - 1e-9) * size(pi, path(end))


def _path(
    pi: Floats, kind: str, order: Ints | None = None
) -> tuple[Callable[[float], Floats], float]:
    cells, rank = len(pi), np.argsort(np.argsort(pi))
    if kind == "smooth":
        place = np.linspace(-1.0, 1.0, cells)
        place = place if order is None else place[order]
        return lambda at: _normal(pi * np.exp(at * place)), 10.0
    mixed = {
        "growing": _normal(np.where(rank < max(1, cells // 12), pi, 0.0)),
        "contamination": np.roll(pi, max(1, cells // 2)) if order is None else pi[order],
        "ordinal": np.append(0.0, pi[:-1]) + np.append(np.zeros(cells - 1), pi[-1]),
    }
    if kind in mixed:
        return lambda at: mixture(pi, mixed[kind], at), 1 - LEAST_LEFT
    chosen = {"rare": rank < cells // 2, "heavy": rank == cells - 1, "fading": rank == cells // 2}
    return lambda at: shrunk(pi, chosen[kind], math.exp(-at)), -math.log(LEAST_LEFT)


def mixture(pi: Floats, other: Floats, share: float) -> Floats:
    """Pi with this share of another distribution."""
    return np.asarray((1 - share) * pi + share * other)


def with_outside(p: Floats, share: float = 0.0) -> Floats:
    """P over the cells and, last, out of the domain."""
    return np.append((1 - share) * p, share)


def shrunk(pi: Floats, chosen: np.ndarray, factor: float) -> Floats:
    """Pi with the mass of the chosen cells multiplied by a factor."""
    return _normal(np.where(chosen, factor * pi, pi))


def _normal(mass: Floats) -> Floats:
    return np.asarray(mass / mass.sum())


def truths(pi: Floats, held: Ints) -> Floats:
    """D(Pi || skew Pi + (1 - skew) P) of the very records, per population."""
    p = held / held.sum(axis=1, keepdims=True)
    return np.asarray(-np.log(SKEW + (1 - SKEW) * p / pi) @ pi)


def skewed(pi: Floats, p: Floats) -> float:
    """The same of a distribution."""
    return float(skewed_divergence(pi, p, skew=SKEW))


@dataclass(frozen=True, eq=False)
class Flights:
    """Records of a carrier, an airport and an hour; every class of clients has its own of each."""

    joint: Floats  # (classes, carriers * airports * hours)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Flights":
        """Classes whose columns are unrelated; the mixture's are not."""
        parts = [
            rng.dirichlet(np.full(levels, 1.5), CLASSES) for levels in (CARRIERS, AIRPORTS, HOURS)
        ]
        joint = np.einsum("ca,cb,cd->cabd", *parts).reshape(CLASSES, -1)
        return cls(joint)

    def clients(self, number: int, records: int, rng: np.random.Generator) -> Ints:
        """Counts per client and cell. A client is mostly of one class, so its records are alike."""
        shares = rng.dirichlet(np.full(CLASSES, 0.3), number)
        return rng.multinomial(records, shares @ self.joint)


@dataclass(frozen=True, eq=False)
class Source:
    """A public reference, and clients that have not drifted from what it was drawn from."""

    reference: Reference
    clients: int
    records: int  # of all clients, the same in every population
    draw: Callable[[np.random.Generator], Ints]  # a population: (clients, cells, "other" last)


def public(held: Ints, *, ids: bool) -> tuple[Reference, Callable[[Ints], Ints]]:
    """A reference of these public clients, and how counts of others are told in its cells.

    Cells that no public client has seen are out of its domain.
    """
    seen = held.sum(axis=0) > 0

    def place(counts: Ints) -> Ints:
        return np.column_stack([counts[:, seen], counts[:, ~seen].sum(axis=1)])

    kept = held[:, seen]
    return Reference.from_counts(kept if ids else kept.sum(axis=0)), place


BLOCKS = tuple(
    f"blocks, {ids} ids, {clients} clients"
    for ids in (1500, 300, 60)
    for clients in (40, 60, 120, 240)
)
SIZES = tuple(f"sizes {sigma}{ids}" for sigma in (1.5, 2) for ids in (", ids", ""))
GIANTS = ("giants 1.2, 100 ids, 60 clients", "giants 1.4, 400 ids, 150 clients")
FEW = ("2 cells", "5 cells", "zipf, 1,000 cells", "two records a cell", "bimodal")
EVEN = (
    "even, 62 cells, 20,000 rows",
    "even, 110 cells, 1,500 rows",
    "even, 7,000 cells, 4,000 rows",
)
WRITERS = ("writers, one digit", "writers, all digits")  # with `--data`
ALARMS = ("lognormal", "flights", *BLOCKS, *SIZES, *GIANTS, *FEW, *EVEN)


def source(world: str, rng: np.random.Generator, data: Path | None) -> Source:
    """One reference of a world, and its clients.

    lognormal: 62 cells, unrelated records. flights: clients of latent classes. blocks: a client
    belongs to one category of a column and holds its cells only. sizes: unrelated records of
    clients whose sizes are lognormal. giants: clients of few cells each, whose sizes are Pareto's
    with this exponent. even: equally likely cells, of which the reference has so many rows. Others:
    few, many or sparse cells.
    """
    if world in WRITERS:
        digit = int(rng.integers(10)) if "one" in world else None
        return _written(_digits(data or Path()), digit, rng)
    if world.startswith("blocks"):
        ids, clients = (int(part.split()[0]) for part in world.split(", ")[1:])
        return _in_blocks(ids, clients, rng)
    if world.startswith("giants"):
        kind, *numbers = world.split(", ")
        ids, clients = (int(part.split()[0]) for part in numbers)
        return _of_giants(float(kind.split()[1]), ids, clients, rng)
    if world == "flights":
        flights = Flights.draw(rng)
        return _correlated(lambda n, r: flights.clients(n, PER_CLIENT, r), 1000, 200, rng)
    if world in EVEN:
        cells, rows = (int(part.split()[0].replace(",", "")) for part in world.split(", ")[1:])
        return _unrelated(np.full(cells, 1 / cells), 200, 100, 0.0, rng, ids=False, rows=rows)
    sigma = float(world.split(",")[0].split()[1]) if world.startswith("sizes") else 0.0
    name, cells, clients, each = {
        "2 cells": ("lognormal", 2, 100, 100),
        "5 cells": ("lognormal", 5, 100, 100),
        "zipf, 1,000 cells": ("zipf", 1000, 200, 100),
        "two records a cell": ("lognormal", 250, 50, 10),
        "bimodal": ("bimodal", 40, 80, 100),
        "lognormal": ("lognormal", 62, 400, 100),
    }.get(world, ("lognormal", 10, 1000, 60))  # so that noise for whole clients hides little
    pi = domain(name, cells, int(rng.integers(2**31)))
    return _unrelated(pi, clients, each, sigma, rng, ids=world.endswith("ids"))


def _in_blocks(ids: int, clients: int, rng: np.random.Generator) -> Source:
    """14 categories of unequal sizes, with up to 25 cells each; like aircraft of carriers."""
    categories = 14
    weights = _normal(1 / np.arange(1.0, categories + 1))
    inside = [rng.dirichlet(np.full(int(cells), 0.7)) for cells in rng.integers(8, 26, categories)]
    starts = np.cumsum([0, *map(len, inside)])

    def draw(number: int, rng: np.random.Generator) -> Ints:
        held = np.zeros((number, starts[-1]), np.int64)
        chosen = rng.choice(categories, number, p=weights)
        for row, own in zip(held, chosen, strict=True):
            row[starts[own] : starts[own + 1]] = rng.multinomial(PER_CLIENT, inside[own])
        return held

    return _correlated(draw, ids, clients, rng)


def _of_giants(exponent: float, ids: int, clients: int, rng: np.random.Generator) -> Source:
    """30 lognormal cells, of which a client holds few; one client may have half of all records."""
    pi = domain("lognormal", 30, int(rng.integers(2**31)))

    def draw(number: int, rng: np.random.Generator) -> Ints:
        weights = _normal(rng.pareto(exponent, number) + 1)
        sizes = 1 + rng.multinomial((PER_CLIENT - 1) * number, weights)
        return rng.multinomial(sizes, rng.dirichlet(2 * pi, number))

    return _correlated(draw, ids, clients, rng)


def _correlated(
    draw: Callable[[int, np.random.Generator], Ints],
    ids: int,
    clients: int,
    rng: np.random.Generator,
) -> Source:
    reference, place = public(draw(ids, rng), ids=True)
    return Source(reference, clients, clients * PER_CLIENT, lambda rng: place(draw(clients, rng)))


def _unrelated(
    pi: Floats,
    clients: int,
    each: int,
    sigma: float,
    rng: np.random.Generator,
    *,
    ids: bool,
    rows: int = REFERENCE_RECORDS,
) -> Source:
    """Records of Pi, whoever holds them; sizes of clients are lognormal, of mean `each`."""

    def draw(number: int, rng: np.random.Generator) -> Ints:
        weights = _normal(rng.lognormal(sigma=sigma, size=number))
        return rng.multinomial(1 + rng.multinomial((each - 1) * number, weights), pi)

    held = draw(1000, rng) if ids else rng.multinomial(rows, pi)[None]
    reference, place = public(held, ids=ids)
    return Source(reference, clients, clients * each, lambda rng: place(draw(clients, rng)))


def _written(digits: Digits, digit: int | None, rng: np.random.Generator) -> Source:
    """Codes of a digit, or of all: half of the writers are public, quarters of the others not.

    Populations are cut to the same number of records, which some of the last writers lack.
    """
    mine = np.flatnonzero(digits.label == digit) if digit is not None else np.arange(len(digits))
    codes, cell = np.unique(digits.code[mine], return_inverse=True)
    _, writer = np.unique(digits.writer[mine], return_inverse=True)
    held = np.zeros((writer.max() + 1, len(codes)), np.int64)
    np.add.at(held, (writer, cell), 1)
    known, others = np.array_split(held[rng.permutation(len(held))], 2)
    reference, place = public(known, ids=True)
    clients = len(others) // 4
    records = round(SHORTEST * float(others.sum()) / 4)

    def draw(rng: np.random.Generator) -> Ints:
        chosen = others[rng.permutation(len(others))[:clients]]
        before = np.cumsum(chosen, axis=None).reshape(chosen.shape) - chosen
        return place(np.clip(records - before, 0, chosen))

    return Source(reference, clients, records, draw)


_LOADED: dict[Path, Digits] = {}


def _digits(data: Path) -> Digits:
    if data not in _LOADED:
        _LOADED[data] = load_compact(data / "femnist_digits.npz")
    return _LOADED[data]
