"""Flower's processes say once which run they serve; here one process serves them all."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

if TYPE_CHECKING:
    from tests.deployment.fake_grid import FakeFederation

flwr = pytest.importorskip("flwr", reason="Flower is an extra")


@pytest.fixture(autouse=True)
def task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 999)


@pytest.fixture(scope="module", autouse=True)
def _no_pool() -> Iterator[None]:
    """Flower's relay keeps its connections until its process ends; here the process goes on."""
    flower = sys.modules.get("flwr.supercore.sql_mixin")
    if flower is None:
        yield
        return
    from sqlalchemy import NullPool

    made = partial(flower.create_engine, poolclass=NullPool)
    with patch.object(flower, "create_engine", made):
        yield


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "FakeFederation":
    from tests.deployment.fake_grid import FakeFederation

    return FakeFederation.make(tmp_path, monkeypatch)
