"""Tables of many columns that `columns.py` measures on: references, populations, drifts.

Only how often each category of each column occurs is drawn, never a record, so that thousands of
populations are quick. A record has a latent class, and given the class its columns are unrelated.
With one class columns and records are independent. With several ("alike"), columns go together
through the class, and a client's records are correlated, as each client has a mixture of its own.
Given how many records have each class, the counts of different columns are independent: so drawing
column by column is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from power_worlds import clients_of, generator
from scipy import optimize

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, skewed_divergence
from fedprikl.estimation.drift_model import drifted_ratios
from fedprikl.reference import View

CATEGORIES = 12
WORLDS = {"independent": 1, "alike": 4}  # latent classes
KINDS = ("smooth", "rare", "heavy")
REFERENCE_RECORDS, PER_CLIENT = 100_000, 100
UNEVEN, CLASS_SPREAD = 1.0, 0.5  # of log probabilities: between categories, and between classes
ALIKE = 2.0  # of a client's mixture: two of its records have one class for a third of the reasons
SCORE = Score()  # KL with a skew of 1%
LEAST_GIVER = 0.9  # of its mass that a category may lose


@dataclass(frozen=True, eq=False)
class World:
    """The truth: the distribution of each column in each class, and how often a class is."""

    weights: Floats  # (classes,)
    given: Floats  # (columns, classes, categories)

    @classmethod
    def draw(
        cls, name: str, columns: int, rng: np.random.Generator, categories: int = CATEGORIES
    ) -> "World":
        """Uneven probabilities, of every column its own."""
        classes = WORLDS[name]
        usual = rng.lognormal(sigma=UNEVEN, size=(columns, 1, categories))
        own = rng.lognormal(sigma=CLASS_SPREAD, size=(columns, classes, categories))
        given = usual * own
        weights = rng.dirichlet(np.full(classes, 5.0))
        return cls(weights, given / given.sum(axis=-1, keepdims=True))

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.given)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the categories of each column."""
        return tuple(f"v{x}" for x in range(self.given.shape[-1]))

    @property
    def pi(self) -> Floats:
        """Of each column, (columns, categories)."""
        return np.asarray(np.einsum("z,jzx->jx", self.weights, self.given))

    def _classes(self, shape: tuple[int, ...], records: Ints, rng: np.random.Generator) -> Ints:
        """Records of each class, of clients that hold so many records each: (*shape, classes)."""
        if len(self.weights) == 1:
            return np.broadcast_to(records, shape)[..., None]
        return rng.multinomial(records, rng.dirichlet(ALIKE * self.weights, shape))

    def _column(self, column: int, classes: Ints, rng: np.random.Generator) -> Ints:
        parts = [
            rng.multinomial(classes[..., z], self.given[column, z])
            for z in range(len(self.weights))
        ]
        return np.asarray(sum(parts))

    def views(self, rng: np.random.Generator) -> tuple[View, ...]:
        """A public reference: every column counted from a sample, with client ids where it matters.

        Like those of `Reference.fit` on a table of these counts.
        """
        clients = REFERENCE_RECORDS // PER_CLIENT
        held = self._classes((clients,), np.full(clients, PER_CLIENT), rng)
        if len(self.weights) == 1:
            held = held.sum(axis=0)
        found = []
        for column in range(self.columns):
            counted = Reference.from_counts(self._column(column, held, rng))
            found.append(replace(counted.whole, columns=(f"c{column}",)))
        return tuple(found)

    def table(self, rng: np.random.Generator, records: int = REFERENCE_RECORDS) -> pl.DataFrame:
        """Records, one a row, of clients of 100 records each."""
        clients = records // PER_CLIENT
        held = self._classes((clients,), np.full(clients, PER_CLIENT), rng)
        rows = {}
        for column, given in enumerate(self.given):
            of_class = [
                rng.choice(len(self.labels), int(count), p=given[z])
                for of_client in held
                for z, count in enumerate(of_client)
            ]
            cell = np.concatenate(of_class)
            rows[f"c{column}"] = np.array(self.labels)[cell]
        ids = np.repeat(np.arange(clients), PER_CLIENT)
        return pl.DataFrame(rows | {"client": ids})

    def reference(self, rng: np.random.Generator, records: int = REFERENCE_RECORDS) -> Reference:
        """As a user fits it."""
        table = self.table(rng, records)
        if len(self.weights) == 1:
            return Reference.fit(table.drop("client"))
        return Reference.fit(table, client="client")

    def populations(
        self, number: int, records: int, ratios: Floats, rng: np.random.Generator
    ) -> Ints:
        """Counts of new clients, (populations, columns, categories); P / Pi = `ratios`."""
        clients = clients_of(records)
        each = np.full(clients, records // clients) + (np.arange(clients) < records % clients)
        if len(self.weights) == 1:
            classes = np.full((number, 1), records)
        else:
            classes = self._classes((number, clients), each, rng).sum(axis=1)
        held = [
            moved(self._column(column, classes, rng), self.pi[column], ratios[column], rng)
            for column in range(self.columns)
        ]
        return np.stack(held, axis=1)


def moved(held: Ints, pi: Floats, ratios: Floats, rng: np.random.Generator) -> Ints:
    """Records that leave cells which shrink, for cells which grow: Pi becomes P, and no more moves.

    >>> rng = np.random.default_rng(1)
    >>> moved(np.array([[60, 40]]), np.array([0.6, 0.4]), np.array([1.0, 1.0]), rng).tolist()
    [[60, 40]]
    """
    gain = np.maximum(pi * (ratios - 1), 0.0)
    if not gain.any():
        return held
    leave = rng.binomial(held, np.clip(1 - ratios, 0.0, 1.0))
    return np.asarray(held - leave + rng.multinomial(leave.sum(axis=-1), gain / gain.sum()))


def drift(pi: Floats, kind: str, nats: float, seed: int) -> Floats:
    """P / Pi of one column that drifted by so many nats (skewed KL); "none" is all 1."""
    if kind == "none":
        return np.ones_like(pi)
    if kind == "few":
        return _few(pi, nats, generator(seed, "few"))
    found = drifted_ratios(pi, kind, nats, SCORE, seed=seed)
    if found is None:
        raise ValueError(f"No drift of the kind {kind} is as large as {nats}.")
    return found


def _few(pi: Floats, nats: float, rng: np.random.Generator) -> Floats:
    """One cell gives mass to another one; all others stay as they are."""
    for giver in rng.permutation(len(pi)):
        taker = int(rng.choice(np.delete(np.arange(len(pi)), giver)))

        def ratios(lost: float, giver: int = giver, taker: int = taker) -> Floats:
            p = pi.copy()
            p[giver], p[taker] = pi[giver] * (1 - lost), pi[taker] + pi[giver] * lost
            return np.asarray(p / pi)

        if _size(pi, ratios(LEAST_GIVER)) >= nats:
            lost = optimize.brentq(lambda x: _size(pi, ratios(x)) - nats, 0, LEAST_GIVER)
            return ratios(float(lost))
    raise ValueError("No cell is heavy enough.")


def _size(pi: Floats, ratios: Floats) -> float:
    return float(skewed_divergence(pi, pi * ratios, skew=0.01))


def drifts(pi: Floats, kinds: Sequence[str], nats: float, seed: int) -> Floats:
    """P / Pi of every column, (columns, categories); one kind each."""
    return np.array(
        [
            drift(each, kind, nats, 1000 * seed + j)
            for j, (each, kind) in enumerate(zip(pi, kinds, strict=True))
        ]
    )
