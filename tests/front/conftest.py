"""A small population whose round takes little time."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprikl import InsecureSeededNoise, PlannedRound, Reference, SigningKey, compare, plan


@dataclass
class Population:
    """A reference, the rows of six clients, and a plan for two releases of them."""

    reference: Reference
    rows: list[dict[str, list[Any]]]
    planned: PlannedRound
    key: SigningKey = field(default_factory=SigningKey.generate)

    def frames(self, library: Any) -> list[Any]:
        return [library(rows) for rows in self.rows]

    def compare(self, clients: Any = None, **settings: Any) -> Any:
        """With seeded noise and points, so that two comparisons of the same records are equal."""
        fixed: dict[str, Any] = {
            "key": self.key,
            "source": InsecureSeededNoise(5),
            "rng": np.random.default_rng(5),
            "ledger": None,
        }
        clients = self.frames(pl.DataFrame) if clients is None else clients
        return compare(self.reference, clients, **({"plan": self.planned} | fixed | settings))


def make_rows(rng: np.random.Generator, records: int, mean: float) -> dict[str, list[Any]]:
    return {
        "age": [round(age, 1) for age in rng.normal(mean, 12, records)],
        "plan": rng.choice(["basic", "plus"], records).tolist(),
    }


@pytest.fixture(scope="session")
def people() -> Population:
    rng = np.random.default_rng(2)
    reference = Reference.fit(pl.DataFrame(make_rows(rng, 2000, 40.0)), bins=5)
    rows = [make_rows(rng, 60, 55.0) for _ in range(6)]
    planned = plan(reference, clients=6, records=360, epsilon=1.0, releases=2, population="people")
    return Population(reference, rows, planned)


@pytest.fixture
def folder(people: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same records as files, named so that they sort as the list does; the working folder."""
    (tmp_path / "clients").mkdir()
    for number, rows in enumerate(people.rows, start=1):
        pl.DataFrame(rows).write_csv(tmp_path / "clients" / f"client {number}.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path
