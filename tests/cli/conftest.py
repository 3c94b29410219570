"""A folder as `fedprikl reference` and `fedprikl plan` leave it, made once and copied."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fedprikl import PlannedRound, Reference
from fedprikl.cli import plan_command
from fedprikl.planning import plan_round
from tests.cli.test_round_commands import call, write_rows


@pytest.fixture(scope="session", autouse=True)
def _equal_plans_are_made_once() -> Iterator[None]:
    """A plan takes seconds, what is said of it as many, and most commands here plan the same."""
    made: dict[Any, PlannedRound] = {}

    def plan(reference: Any, **known: Any) -> PlannedRound:
        pi = Reference.of(reference)
        key = pi.fingerprint, repr(sorted(known.items()))
        if key not in made:
            made[key] = plan_round(pi, **known)
        return made[key]

    with patch.object(plan_command, "plan_round", plan):
        yield


@pytest.fixture(scope="session")
def _planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    rng = np.random.default_rng(2)
    write_rows(folder / "public.csv", rng, 2000, 40.0)
    (folder / "clients").mkdir()
    for i in range(6):
        write_rows(folder / "clients" / f"site{i}.csv", rng, 60, 46.0)
    before = Path.cwd()
    os.chdir(folder)
    try:
        call("reference", "public.csv", "-o", "ref.json")
        call("plan", "ref.json", "--clients", "6", "--records", "360", "--key", "organiser.pem")
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def planned(_planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with six clients, ref.json and plan.json; it is the working directory."""
    folder = tmp_path / "planned"
    shutil.copytree(_planned, folder)
    monkeypatch.chdir(folder)
    return folder
