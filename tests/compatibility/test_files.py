"""Files of every released version are read, verified and continued by the current software."""

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedprikl as fk
from fedprikl.deployment.policy import load_policy
from fedprikl.deployment.site_memory import SiteMemory, read_memory
from fedprikl.errors import PolicyRefusal
from fedprikl.monitoring.history import History
from fedprikl.privacy import Head, Ledger
from fedprikl.protocol import Plan, Step
from fedprikl.protocol.noised_round import NoisedRound
from tests.compatibility.make import AT, FOLDER, KEY, KINDS, LOGGED, RECORDS, invited
from tests.monitoring.small_series import World, over, quick_folder

RELEASED = sorted(path for path in FOLDER.parent.glob("[0-9]*.*") if path.is_dir())
ROUNDING = 1e-9  # relative: other processors compose charges by other last digits


@pytest.fixture(params=RELEASED, ids=lambda path: path.name)
def made(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy of the files of one version: git keeps no permissions, and tests write."""
    with quick_folder() as folder:
        shutil.copytree(request.param, folder / "made")
        for path in (folder / "made").rglob("*.db"):
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)
        yield folder / "made"


def expected(folder: Path, name: str) -> Any:
    return json.loads((folder / "expected.json").read_text())[name]


def test_there_are_files_of_a_release() -> None:
    assert RELEASED


@pytest.mark.parametrize("name", KINDS)
def test_a_release_verifies(made: Path, name: str) -> None:
    release = fk.verify(
        made / f"release-{name}.json", key=KEY.public, plan=made / f"plan-{name}.json"
    )
    known = expected(made, "rounds")["releases"][name]
    assert release.fingerprint == known["fingerprint"]
    assert [each.value for each in release.answers] == known["values"]
    assert release.drifted is known["drifted"]


def test_one_changed_digit_is_noticed(made: Path) -> None:
    path = made / "release-aggregator.json"
    document = json.loads(path.read_text())
    document["release"]["answers"][0]["value"] += 0.125
    path.write_text(json.dumps(document))
    with pytest.raises(fk.FedPriKLError):
        fk.verify(path, key=KEY.public)


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_is_read_and_signed(made: Path, name: str) -> None:
    signed = fk.SignedPlan.load(made / f"plan-{name}.json")
    assert signed.is_signed_by(KEY.public)
    assert Plan.from_dict(signed.plan.to_dict()) == signed.plan


def test_a_reference_keeps_its_fingerprint(made: Path) -> None:
    found = fk.Reference.load(made / "reference.json")
    assert found.fingerprint == expected(made, "rounds")["reference"]
    assert fk.SignedPlan.load(made / "plan-none.json").plan.reference == found.fingerprint


def test_noised_numbers_of_a_round_that_was_cut_off_are_read(made: Path) -> None:
    found = NoisedRound.from_bytes((made / "noised-round.json").read_bytes())
    assert NoisedRound.from_bytes(found.to_bytes()) == found


def test_a_ledger_charges_on_and_is_never_cheaper(made: Path) -> None:
    known = expected(made, "rounds")
    with Ledger.open(made / "ledger.db", anchor=Head(**known["head"])) as ledger:
        spent = {each.population: each.spent for each in ledger.accounts()}
        assert spent.keys() == known["spent"].keys()
        for population, before in known["spent"].items():
            assert spent[population] >= before * (1 - ROUNDING)
        charge = ledger.reservation("begun").charge  # the process that died stays charged
        with pytest.raises(fk.BudgetExceededError):
            ledger.reserve("aggregator", charge, round_id="more", at=AT)
        ledger.set_budget("open", epsilon=9, delta=1e-6, at=AT)
        ledger.reserve("open", charge, round_id="more", at=AT)
        assert ledger.account("open").spent > 1.5 * known["spent"]["open"]


def test_a_series_goes_on(made: Path) -> None:
    with History.open(made / "series" / "history.db", create=False) as history:
        world = World(made / "series", history.read().plan)
    known = expected(made, "series")
    assert world.verify() == 2
    assert world.states(over(1)) == known["states"]
    world.grow(2)
    status = world.monitor(over(2), key=KEY)
    assert [point.state for point in status.points][:3] == ["released"] * 3
    assert world.verify() == 3
    with Ledger.open(world.ledger) as ledger:
        assert ledger.account("clients").spent >= known["spent"] * (1 - ROUNDING)


def test_a_policy_says_what_it_said(made: Path) -> None:
    found = load_policy(made / "policy.toml")
    assert found.organisers == {"hospitals": KEY.public}
    assert (found.approve, found.epsilon_per_year) == ("always", 2.0)
    assert found.limits.require_roster is True


def test_a_site_remembers(made: Path) -> None:
    memory = SiteMemory(made / "site.db", RECORDS)
    assert len(read_memory(made / "site.db").rounds) == 2
    for name in ("counted", "begun"):
        with pytest.raises(PolicyRefusal, match="answered already"):
            memory.begin(invited(name), most_counts=9, at=AT)
    memory.go_on("begun", Step.SHARE)
    with pytest.raises(PolicyRefusal, match="as often as"):
        memory.count(invited("begun"), most_counts=9, at=AT, log=lambda: LOGGED)
