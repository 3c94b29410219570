"""The small parts of the Flower app, one by one."""

from pathlib import Path

import pytest

from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.federation import Step
from fedprikl.flower_app.journal import Journal
from fedprikl.flower_app.metrics import RoundMetrics, read_counters, write_metrics
from fedprikl.flower_app.progress import parse_line
from fedprikl.flower_app.settings import NodeSettings, RoundSettings


def test_a_claim_is_granted_once_across_processes(tmp_path: Path) -> None:
    for _ in range(2):
        journal = Journal(tmp_path / "journal", 7)
        granted = [journal.claim("ab12", step) for step in (Step.ADVERTISE, Step.REVEAL)]
        assert granted == ([True, True] if _ == 0 else [False, False])
    assert Journal(tmp_path / "journal", 8).claim("ab12", Step.REVEAL)
    files = list((tmp_path / "journal").iterdir())
    assert all(file.stat().st_size == 0 and file.stat().st_mode & 0o077 == 0 for file in files)


def test_rounds_stay_closed_in_every_step_whatever_comes_after(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 7)
    for round_id in ("aa", "bb"):
        for step in (Step.ADVERTISE, Step.SHARE):
            assert journal.claim(round_id, step)
    assert not any(journal.claim("aa", step) for step in (Step.ADVERTISE, Step.SHARE))
    assert len(list(tmp_path.iterdir())) == 4


def test_a_journal_that_cannot_be_kept_stops_the_client(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeploymentError, match="Cannot write the journal"):
        Journal(tmp_path / "file" / "journal", 7).claim("aa", Step.SHARE)
    with pytest.raises(DeploymentError, match="letters and digits"):
        Journal(tmp_path, 7).claim("../../etc", Step.SHARE)


def test_metrics_add_up_over_rounds_and_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.prom"
    this = RoundMetrics(
        released=True,
        refused=2,
        lost={"input": 1, "echo": 0},
        seconds={"input": 3.25},
        left={'a "name"\\': 0.5},
    )
    write_metrics(path, this)
    write_metrics(path, this)
    write_metrics(path, RoundMetrics())
    assert read_counters(path) == {
        'fedprikl_rounds_total{outcome="released"}': 2,
        'fedprikl_rounds_total{outcome="failed"}': 1,
        'fedprikl_clients_lost_total{step="input"}': 2,
        'fedprikl_clients_lost_total{step="echo"}': 0,
        "fedprikl_clients_refused_total": 4,
    }
    write_metrics(path, this)
    text = path.read_text()
    assert '# TYPE fedprikl_step_seconds gauge\nfedprikl_step_seconds{step="input"} 3.25' in text
    assert 'fedprikl_epsilon_left{population="a \\"name\\"\\\\"} 0.5' in text
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.prom"]


def test_lines_of_a_run_are_told_from_flowers() -> None:
    assert parse_line("\x1b[92mINFO\x1b[0m: something") is None
    assert parse_line("[fedprikl] input: 3 of 4\n") == ("progress", "input: 3 of 4")
    assert parse_line("\x1b[0m[fedprikl] release: {}") == ("release", "{}")
    assert parse_line("[fedprikl] no release: too few") == ("failure", "too few")


def test_run_config_is_checked(tmp_path: Path) -> None:
    settings = RoundSettings.of({"home": str(tmp_path), "plan": "other.json", "clients": 20})
    assert (settings.plan, settings.clients) == (tmp_path / "other.json", 20)
    for bad in ({"plan": "../plan.json"}, {"plan": 3}, {"wait": -1}, {"clients": True}):
        with pytest.raises(InvalidInputError):
            RoundSettings.of(bad)


def test_the_home_is_the_hosts_unless_the_run_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path))
    assert RoundSettings.of({"home": ""}).home.folder == tmp_path
    monkeypatch.delenv("FEDPRIKL_HOME")
    assert RoundSettings.of({}).home.folder == Path.home() / ".fedprikl"


def test_a_sites_policy_comes_from_its_own_config() -> None:
    config = {"data": "d.csv", "reference": "r.json", "organiser": "ab", "largest-epsilon": 0.5}
    settings = NodeSettings.of(config | {"most-points": 20, "smallest-cohort": 10})
    assert settings.policy.organiser == "ab"
    assert settings.policy.largest_epsilon == 0.5
    assert (settings.policy.most_points, settings.policy.smallest_cohort) == (20, 10)
    with pytest.raises(DeploymentError, match="lacks `organiser`"):
        NodeSettings.of(config | {"organiser": ""})


def test_what_a_roster_needs_is_in_the_sites_folder_unless_it_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path))
    config: dict[str, object] = {"data": "d.csv", "reference": "r.json", "organiser": "ab"}
    usual = NodeSettings.of(config)
    assert (usual.identity, usual.roster) == (tmp_path / "identity.pem", tmp_path / "roster.txt")
    assert usual.ledger == tmp_path / "ledger.db"
    assert usual.load_identity() is None
    assert usual.load_roster() is None
    assert not usual.policy.require_roster
    own = NodeSettings.of(
        config | {"identity": "a.pem", "roster": "b.txt", "ledger": "c.db", "require-roster": True}
    )
    assert (own.identity, own.roster, own.ledger) == (Path("a.pem"), Path("b.txt"), Path("c.db"))
    assert own.policy.require_roster
    with pytest.raises(InvalidInputError, match="true or false"):
        NodeSettings.of(config | {"require-roster": 1})
