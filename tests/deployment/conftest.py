"""Flower's processes say once which run they serve; here one process serves them all."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.deployment.fake_grid import FakeFederation

flwr = pytest.importorskip("flwr", reason="Flower is an extra")


@pytest.fixture(autouse=True)
def task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 999)


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "FakeFederation":
    from tests.deployment.fake_grid import FakeFederation

    return FakeFederation.make(tmp_path, monkeypatch)
