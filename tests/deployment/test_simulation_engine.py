"""Flower's own simulation engine with 50 nodes, some of which are lost."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.loopback import Loopback
from deploy.small_world import set_up_aggregator, write_sites

from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.protocol import Step
from tests.deployment.losing import DIES

pytestmark = pytest.mark.validation

pytest.importorskip("ray", reason="the simulation engine is an extra of Flower")

REPOSITORY = Path(__file__).parent.parent.parent
NODES = 50


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("simulation")
    with pytest.MonkeyPatch.context() as patch, Loopback(folder) as federation:
        patch.setenv("PYTHONPATH", f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        home = federation.aggregator
        write_sites(home, sites=NODES, rows=40)
        set_up_aggregator(home, home / "public.csv", cohort=25, releases=2)
        shutil.copy(home / "plan.json", folder / "plan.json")
        federation.start_simulation()
        yield federation
    assert federation.left_behind() == []


def test_fifty_nodes_complete_though_some_are_lost(engine: Loopback) -> None:
    """One round: starting fifty nodes takes a minute, and nodes that stay are in it as well."""
    app = engine.folder / "app"
    app.mkdir()
    text = (APP_FOLDER / "pyproject.toml").read_text(encoding="utf-8")
    losing = text.replace("fedprikl.deployment.flower.client:app", "tests.deployment.losing:app")
    assert losing != text
    (app / "pyproject.toml").write_text(losing)
    result = engine.federate(
        *("--app", str(app), "--clients", str(NODES), "--json"),
        *("--federation-config", f"num-supernodes={NODES} client-resources-num-cpus=1"),
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    unsent = [step for step in DIES.values() if step in (Step.SHARE, Step.INPUT)]
    included = sum(cohort["included"] for cohort in document["release"]["cohorts"])
    assert included == NODES - len(unsent)
    progress = "\n".join(document["progress"])
    assert "50 clients in 2 cohorts of 25 to 25" in progress
    assert sum(map(int, re.findall(r"(\d+) lost", progress))) == len(DIES)
