"""Flower's processes say once which run they serve; here one process serves them all."""

import pytest

flwr = pytest.importorskip("flwr", reason="Flower is an extra")


@pytest.fixture(autouse=True)
def task_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 999)
