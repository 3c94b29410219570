"""Domains, drifts and populations that `power.py` measures on. All of it is simulated in the open.

A domain is Pi over K cells, in an order that has nothing to do with how heavy they are. A kind of
drift is a path from Pi along which KL grows, so that "a drift of 0.01 nats" is one distribution.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy import optimize

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import skewed_divergence

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import Digits, load_compact

SKEW = 0.01
DOMAINS = ("lognormal", "digits", "flights")
KINDS = ("smooth", "rare", "heavy")
CARRIERS, AIRPORTS, HOURS, CLASSES = 8, 10, 5, 4  # of the flights
PER_CLIENT = 100  # records, about
REFERENCE_RECORDS = 100_000
LEAST_LEFT = 1e-3  # of cells that shrink: KL would grow further without anybody seeing it


def generator(seed: int, *key: object) -> np.random.Generator:
    """Randomness of its own for every task: the same whatever else is measured."""
    return np.random.default_rng([seed, *"/".join(map(str, key)).encode()])


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
    cells shrinks. heavy: the heaviest cell shrinks. gone: the heaviest cell vanishes, whatever the
    size.
    """
    if kind == "gone":
        return shrunk(pi, np.arange(len(pi)) == np.argmax(pi), 0.0)
    if nats == 0:
        return pi
    path, end = _path(pi, kind, order)
    return path(optimize.brentq(lambda at: size(pi, path(at)) - nats, 0.0, end, xtol=1e-12))


def largest(pi: Floats, kind: str) -> float:
    """The size of the largest drift of a kind."""
    path, end = _path(pi, kind)
    return (1 - 1e-9) * size(pi, path(end))


def _path(
    pi: Floats, kind: str, order: Ints | None = None
) -> tuple[Callable[[float], Floats], float]:
    if kind == "smooth":
        place = np.linspace(-1.0, 1.0, len(pi))
        place = place if order is None else place[order]
        return lambda at: _normal(pi * np.exp(at * place)), 10.0
    light = np.argsort(np.argsort(pi)) < len(pi) // 2
    chosen = light if kind == "rare" else np.arange(len(pi)) == np.argmax(pi)
    return lambda at: shrunk(pi, chosen, math.exp(-at)), -math.log(LEAST_LEFT)


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
class AlarmRound:
    """A public reference, and populations of clients that have not drifted from its source."""

    reference: Reference
    clients: int
    populations: Ints  # counts per cell of the reference, "other" last; as many records in each


def alarm_rounds(
    world: str, rounds: int, populations: int, seed: int, data: Path | None
) -> Iterator[AlarmRound]:
    """References drawn anew, each with so many populations."""
    for number in range(rounds):
        rng = generator(seed, "alarms", world, number)
        if data is not None and "writers" in world:
            digit = int(rng.integers(10)) if world == "writers, one digit" else None
            yield _written(_digits(data), digit, populations, rng)
        elif world == "flights":
            yield _flown(populations, rng)
        else:
            pi = domain("lognormal", 62, 1000 * seed + number)
            reference = Reference.from_counts(rng.multinomial(REFERENCE_RECORDS, pi))
            held = rng.multinomial(40_000, np.append(pi, 0.0), populations)
            yield AlarmRound(reference, clients_of(40_000), held)


def _flown(populations: int, rng: np.random.Generator) -> AlarmRound:
    """Clients of latent classes, on both sides; the reference knows its clients' ids."""
    world, clients = Flights.draw(rng), 200
    public = world.clients(1000, PER_CLIENT, rng)
    client, cell = np.nonzero(public)
    rows = np.repeat(np.arange(len(cell)), public[client, cell])
    frame = _flight_frame(cell[rows]).with_columns(client=pl.Series(client[rows]))
    reference = Reference.fit(frame, clients="client", categorical=["carrier", "airport", "hour"])
    place = reference.encode(_flight_frame(np.arange(public.shape[1])))
    held = np.zeros((populations, reference.domain.size), np.int64)
    for each in held:
        np.add.at(each, place, world.clients(clients, PER_CLIENT, rng).sum(axis=0))
    return AlarmRound(reference, clients, held)


def _flight_frame(cell: Ints) -> pl.DataFrame:
    carrier, airport, hour = np.unravel_index(cell, (CARRIERS, AIRPORTS, HOURS))
    return pl.DataFrame({"carrier": carrier, "airport": airport, "hour": hour})


def _written(
    digits: Digits, digit: int | None, populations: int, rng: np.random.Generator
) -> AlarmRound:
    """Codes of a digit, or of all: half of the writers are public, parts of the others populations.

    Each population is a quarter of the others, drawn anew. All have the same number of records: the
    last writers' surplus is left out.
    """
    mine = np.flatnonzero(digits.label == digit) if digit is not None else np.arange(len(digits))
    codes, writer = digits.code[mine].astype(str), digits.writer[mine]
    writers = rng.permutation(np.unique(writer))
    public, private = np.array_split(writers, 2)
    known = np.isin(writer, public)
    frame = pl.DataFrame({"code": codes[known], "writer": writer[known]})
    reference = Reference.fit(frame, columns=["code"], clients="writer", categorical=["code"])
    cell = reference.encode(pl.DataFrame({"code": codes}))
    clients = len(private) // 4
    chosen = [np.isin(writer, rng.permutation(private)[:clients]) for _ in range(populations)]
    records = min(int(which.sum()) for which in chosen)
    held = [np.bincount(cell[which][:records], minlength=reference.domain.size) for which in chosen]
    return AlarmRound(reference, clients, np.array(held))


_LOADED: dict[Path, Digits] = {}


def _digits(data: Path) -> Digits:
    if data not in _LOADED:
        _LOADED[data] = load_compact(data / "femnist_digits.npz")
    return _LOADED[data]
