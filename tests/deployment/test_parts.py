"""The small parts of the Flower app, one by one."""

import json
from pathlib import Path

import pytest
from deploy.small_world import set_up_aggregator, write_plan, write_policy, write_sites

from fedprikl.deployment.progress import failure_line, parse_line, printable
from fedprikl.deployment.settings import Home, NodeSettings, RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import SignedPlan
from fedprikl.records import fit_reference
from fedprikl.reference import Reference


def test_lines_of_a_run_are_told_from_flowers() -> None:
    assert parse_line("\x1b[92mINFO\x1b[0m: something") is None
    assert parse_line("[fedprikl] input: 3 of 4\n") == ("progress", "input: 3 of 4")
    assert parse_line("\x1b[0m[fedprikl] release: {}") == ("release", "{}")
    assert parse_line("[fedprikl] no release: too few") == ("failure", "too few")


@pytest.mark.parametrize(
    "evil",
    [
        "\x1b[2J\x1b[1;1H",  # clears the screen
        "\x1b]0;title\x07",
        "\x1b]8;;http://evil\x1b\\",
        "\x9b31m",
        "\x1bc\x07\x08\r",
        "\u202e\u2028\u200b",  # turns the text around; a line end; nothing to see
        "\n[fedprikl] release: {}",
    ],
)
def test_no_character_does_more_than_show_itself(evil: str) -> None:
    """On the way to the log, and again on the way from the relay to a terminal."""
    told = failure_line(f"because {evil}of this")
    assert told.isprintable()
    found = parse_line(f"[fedprikl] input: {evil}3 of 4")
    assert found is not None
    assert found[0] == "progress"
    assert found[1].isprintable()
    assert found[1].startswith("input: ")
    assert found[1].endswith("3 of 4")
    assert not printable("a\x00b\x7f\x85").isspace()
    assert printable(evil).isprintable()


def test_run_config_is_checked(tmp_path: Path) -> None:
    config = {"plan": "other.json", "clients": 20, "request": "00ff"}
    settings = RoundSettings.of(config, home=tmp_path)
    assert (settings.plan, settings.clients) == (tmp_path / "other.json", 20)
    assert settings.request == "00ff"
    for bad in (
        {"plan": "../plan.json"},
        {"plan": "\x1b[2J"},
        {"plan": 3},
        {"wait": -1},
        {"wait": float("inf")},
        {"clients": True},
        {"clients": 3.5},
        {"request": "0" * 65},
        {"request": "00FF"},
        {"request": "00\n"},
        {"request": 7},
        {"step_timeout": 5.0},
        {"bogus": 1},
    ):
        with pytest.raises(InvalidInputError) as raised:
            RoundSettings.of(bad)
        assert str(raised.value).isprintable()


def test_the_home_is_the_hosts_whatever_the_run_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path))
    assert RoundSettings.of({}).home.folder == tmp_path
    with pytest.raises(InvalidInputError, match="A run cannot choose the aggregator's folder"):
        RoundSettings.of({"home": "/elsewhere"})
    monkeypatch.delenv("FEDPRIKL_HOME")
    assert RoundSettings.of({}).home.folder == Path.home() / ".fedprikl"


def test_what_a_roster_needs_is_in_the_sites_folder_unless_it_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path))
    policy = write_policy(tmp_path, "ab" * 32, require_roster=True)
    config: dict[str, object] = {"data": "d.csv", "policy": str(policy)}
    usual = NodeSettings.of(config)
    assert (usual.home.identity, usual.home.roster) == (
        tmp_path / "identity.pem",
        tmp_path / "roster.txt",
    )
    assert usual.home.ledger == tmp_path / "ledger.db"
    assert usual.load_identity() is None
    assert usual.load_roster() is None
    assert usual.policy.limits.require_roster
    own = NodeSettings.of(config | {"identity": "a.pem", "roster": "b.txt", "ledger": "c.db"})
    home = own.home
    assert (home.identity, home.roster, home.ledger) == (Path("a.pem"), Path("b.txt"), Path("c.db"))
    with pytest.raises(InvalidInputError, match="of a simulated site"):
        NodeSettings.of({"partition-id": 3, "policy": "x"})
    with pytest.raises(DeploymentError, match="lacks `data`"):
        NodeSettings.of({"policy": "x"})
    with pytest.raises(DeploymentError, match="There is no policy"):
        NodeSettings.of({"data": "d.csv"})


def test_plans_and_references_lie_side_by_side_and_are_found_by_fingerprint(
    tmp_path: Path,
) -> None:
    (data, *_) = write_sites(tmp_path, sites=1, rows=30)
    home = Home(tmp_path / "aggregator")
    home.folder.mkdir()
    set_up_aggregator(home.folder, tmp_path / "public.csv")
    first = SignedPlan.load(home.folder / "plan.json").plan
    home.plans.mkdir()
    home.references.mkdir()
    fit_reference(data).save(home.references / "other.json")
    other = Reference.load(home.references / "other.json").fingerprint
    second = write_plan(home.folder, "plans/weekly.json", reference=other).plan
    for plan in (first, second):
        asked = RoundSettings.of({"plan": plan.fingerprint}, home=home.folder)
        assert SignedPlan.load(asked.plan).plan == plan
        found = home.find_reference(plan.reference)
        assert found is not None
        assert found.fingerprint == plan.reference
    unsigned = json.dumps(SignedPlan(second).to_dict())
    (home.folder / "draft.json").write_text(unsigned, encoding="utf-8")
    (home.plans / "weekly.json").rename(home.plans / f"{second.fingerprint}.json")
    asked = RoundSettings.of({"plan": second.fingerprint}, home=home.folder)
    assert asked.plan.parent == home.plans
    asked.plan.rename(home.plans / "weekly.json")
    (home.folder / "draft.json").unlink()
    with pytest.raises(InvalidInputError) as refused:
        RoundSettings.of({"plan": 64 * "f"}, home=home.folder)
    for words in ("The aggregator does not have the plan ffffffffffffffff", "(weekly.json)"):
        assert words in str(refused.value)
    assert first.fingerprint[:16] in str(refused.value)
    assert home.find_reference(64 * "f") is None
    said = home.wrong_reference(64 * "f", "the aggregator")
    assert said.startswith("the plan is about the reference ffffffffffffffff, and the aggregator")
    assert {first.reference[:16], other[:16]} <= set(said.replace(",", " ").split())
