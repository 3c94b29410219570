"""`fedprikl site policy`, `check`, `requests`, `approve`, `deny` and `log`."""

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deploy.small_world import set_up_aggregator, write_plan, write_policy, write_sites
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.cli.running import watch_certificates
from fedprikl.deployment import site_check
from fedprikl.deployment.policy import load_policy
from fedprikl.deployment.provisioning import add_reference
from fedprikl.deployment.settings import Home, SiteStart, now
from fedprikl.deployment.site_log import SiteLog
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.deployment.tls import first_end, write_certificates, write_node_key
from fedprikl.errors import PolicyRefusal
from fedprikl.protocol import Invitation, Roster, Server, SignedPlan, SigningKey
from fedprikl.reference import Reference
from tests.cli.test_round_commands import fails

runner = CliRunner()
RELAY = "relay.example.org:9443"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site's folder with everything in it, a relay that answers, and one plan."""
    monkeypatch.delenv("FEDPRIKL_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (data, *_) = write_sites(tmp_path, sites=4, rows=30)
    data.rename(tmp_path / "records.csv")
    folder = tmp_path / "site"
    folder.mkdir()
    set_up_aggregator(folder, tmp_path / "public.csv")
    key = SigningKey.load(folder / "organiser.pem").public
    write_policy(folder, key, approve="new plans").rename(folder / "policy.toml")
    write_node_key(folder / "node")
    write_certificates(folder, host="relay.example.org", days=90)
    answers(monkeypatch, folder)
    return folder


def answers(monkeypatch: pytest.MonkeyPatch, folder: Path, *, ahead: float = 0.0) -> None:
    def look(_: str, roots: Path) -> tuple[float, datetime]:
        return ahead, first_end(roots)

    monkeypatch.setattr(site_check, "look_at_relay", look)
    assert folder.is_dir()


def check(*more: str) -> tuple[int, dict[str, list[str]], dict[str, list[str]]]:
    """The exit code, what is well and what is wrong, by what was looked at."""
    line = ["site", "check", RELAY, "--folder", "site", "--data", "records.csv", "--json", *more]
    done = runner.invoke(app, line)
    assert done.exception is None or done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    found: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
    for each in document["findings"]:
        found[each["wrong"]].setdefault(each["what"], []).append(each["words"])
    assert document["well"] is (not found[1])
    return done.exit_code, *found


def asked(folder: Path, name: str = "plan.json") -> Invitation:
    signed, home = SignedPlan.load(folder / name), Home(folder)
    rng = np.random.default_rng(1)
    server = Server(signed, Reference.load(home.reference))
    this = server.open_round([str(n) for n in range(5)], rng=rng, randomness=lambda n: bytes(n))
    return Invitation.to_member(this, this.cohorts[0], 0)


def test_a_site_that_is_ready_has_nothing_wrong(site: Path) -> None:
    code, well, wrong = check()
    assert (code, wrong) == (0, {})
    plan = SignedPlan.load(site / "plan.json").plan.fingerprint[:16]
    assert well[f"plan {plan}"] == ["would be answered after a yes (new plans)"]
    assert set(well) >= {"policy", "references", "data", "node key", "relay", "disk"}


def test_a_database_is_named_as_a_table_and_how_it_is_given(site: Path) -> None:
    assert site.is_dir()
    head, *rows = [line.split(",") for line in Path("records.csv").read_text().split()]
    with sqlite3.connect("clinic.db") as file:
        file.execute(f"CREATE TABLE visits ({', '.join(head)})")
        marks = ", ".join("?" * len(head))
        file.executemany(f"INSERT INTO visits VALUES ({marks})", rows)  # noqa: S608
    file.close()
    line = ["site", "check", RELAY, "--folder", "site", "--json", "--data"]
    done = runner.invoke(app, [*line, "sqlite:clinic.db", "--table", "visits"])
    assert "the table has the columns of the reference" in done.stdout
    done = runner.invoke(app, [*line, "clinic.db"])
    assert "--data sqlite:clinic.db" in done.stdout


def test_everything_that_is_wrong_is_said_at_once(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("records.csv").write_text("age\n3\n")  # a column is missing
    (site / "node").write_text("no key")
    keys = [f"{SigningKey.generate().public} other{n}" for n in range(3)]
    (site / "roster.txt").write_text("\n".join(keys))
    (site / "log.db").write_text("nonsense")
    write_certificates(site, days=5)
    answers(monkeypatch, site, ahead=900.0)
    write_plan(site, "dear.json", epsilon=1.5)
    text = (site / "policy.toml").read_text()
    (site / "policy.toml").write_text("largest-epsilon = 1.2\n" + text)
    monkeypatch.setattr(site_check, "ROOM", 1e18)
    code, _, wrong = check()
    assert code == 1
    assert "'plan'" in wrong["data"][0]
    assert "ssh-keygen" in wrong["node key"][0]
    assert "no identity" in wrong["roster"][0]
    assert "900 s ahead" in wrong["relay"][0]
    assert "ends in" in wrong["relay"][0]
    assert "not a site log" in wrong["memory and log"][0]
    assert "MB left" in wrong["disk"][0]
    (site / "log.db").unlink()
    _, _, wrong = check()
    dear = SignedPlan.load(site / "dear.json").plan.fingerprint[:16]
    words = wrong[f"plan {dear}"][0]
    assert "no part: epsilon 1.5 exceeds the limit 1.2 (largest-epsilon)." in words


def test_a_column_of_the_policy_that_no_reference_has_is_named(site: Path) -> None:
    policy = site / "policy.toml"
    text = policy.read_text()
    policy.write_text('columns = ["age", "plan"]\n' + text)
    assert check()[1]["policy columns"] == ["`columns` names age, plan"]
    policy.write_text('columns = ["age", "paln"]\n' + text)
    _, _, wrong = check()
    assert "`columns` of" in wrong["policy columns"][0]
    assert "names 'paln', which no reference here has" in wrong["policy columns"][0]


def test_a_reference_that_lies_there_twice_is_named_once(site: Path) -> None:
    home = Home(site)
    add_reference(home, home.reference)
    known = Reference.load(home.reference).fingerprint[:16]
    assert home.wrong_reference("ab" * 32, "this site").endswith(f"this site has {known}")


def test_a_check_in_the_wrong_folder_says_where_to_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path / "elsewhere"))
    done = runner.invoke(app, ["site", "check", "--data", "records.csv"])
    assert "call this in the folder in which it did, or give --folder" in str(done.exception)


@pytest.mark.usefixtures("site")
def test_records_that_look_wrong_are_shown_and_change_nothing() -> None:
    """What is wrong, and the exit code, must not depend on records: they decide who takes part."""
    line = ["site", "check", RELAY, "--folder", "site", "--data", "records.csv"]
    before = runner.invoke(app, line)
    assert "LOOK" not in before.output
    Path("records.csv").write_bytes(b"age,plan\n" + b"480,basic\n" * 30 + b"480,b\xe4sic\n" * 9)
    after = runner.invoke(app, line)
    assert before.exit_code == after.exit_code == 0
    assert "nothing is wrong" in after.output
    text = " ".join(after.stdout.split())
    assert "9 of the first 39 records cannot be read" in text
    assert "--encoding" in text
    assert "column 'age': 100% of the first 30 records" in text
    found = json.loads(runner.invoke(app, [*line, "--json"]).stdout)["findings"]
    assert {each["what"] for each in found if each["look"]} == {"data"}
    assert not any(each["wrong"] for each in found)


def test_a_plan_that_a_year_does_not_allow_is_wrong(site: Path) -> None:
    """Before the first release and after one: as the running site counts it."""
    text = (site / "policy.toml").read_text()
    (site / "policy.toml").write_text("largest-epsilon-per-year = 0.5\n" + text)
    own = f"plan {SignedPlan.load(site / 'plan.json').plan.fingerprint[:16]}"
    assert "a year would cost a record epsilon 1 " in check()[2][own][0]
    assert "(largest-epsilon-per-year)" in check()[2][own][0]
    (site / "policy.toml").write_text("largest-epsilon-per-year = 1.2\nmost-counts = 3\n" + text)
    assert own in check()[1]
    log, policy = SiteLog(site / "log.db"), load_policy(site / "policy.toml")
    log.send(asked(site), replace(policy, approve="always"), at=now())
    write_plan(site, "second.json", epsilon=0.9)
    second = SignedPlan.load(site / "second.json").plan.fingerprint[:16]
    assert "a year would cost a record" in check()[2][f"plan {second}"][0]


def test_a_misspelt_policy_and_a_missing_reference_are_wrong(site: Path) -> None:
    text = (site / "policy.toml").read_text()
    (site / "policy.toml").write_text("larges-epsilon = 1\n" + text)
    (site / "ref.json").unlink()
    code, _, wrong = check()
    assert code == 1
    assert "Did you mean largest-epsilon?" in wrong["policy"][0]
    assert not any(what.startswith("plan") for what in wrong)  # the policy is said once
    assert "There is no reference" in wrong["references"][0]


def test_plans_of_two_references_are_each_checked_against_their_own(site: Path) -> None:
    """Found by fingerprint; without its reference, both fingerprints are named."""
    (site / "references").mkdir()
    other = site / "references" / "other.json"
    Reference.from_counts([3, 4]).save(other)
    write_plan(site, "second.json", reference=Reference.load(other).fingerprint, points=2)
    second = SignedPlan.load(site / "second.json").plan
    assert Home(site).find_reference(second.reference) is not None
    other.unlink()
    code, _, wrong = check()
    assert code == 1
    (words,) = wrong[f"plan {second.fingerprint[:16]}"]
    assert second.reference[:16] in words
    assert Reference.load(site / "ref.json").fingerprint[:16] in words


def test_a_plan_that_was_replaced_is_not_wrong_and_not_answered(site: Path) -> None:
    old = SignedPlan.load(site / "plan.json").plan.fingerprint[:16]
    keys = [f"{SigningKey.generate().public} other{n}" for n in range(3)]
    write_plan(site, "newer.json", serial=7)
    newer = SignedPlan.load(site / "newer.json").plan.fingerprint[:16]
    write_plan(site, "elsewhere.json", serial=3, roster=Roster.parse("\n".join(keys)).fingerprint)
    gone = SignedPlan.load(site / "elsewhere.json").plan.fingerprint[:16]
    code, well, wrong = check()
    assert (code, wrong) == (0, {})
    for each in (old, gone):
        assert well[f"plan {each}"][0].startswith("replaced by a plan with the serial 7")
    assert well[f"plan {newer}"][0].startswith("would be answered")


def test_a_plan_that_was_counted_may_expire_and_a_kit_that_was_not_may_not(site: Path) -> None:
    ends = SignedPlan.load(site / "plan.json").plan.validity.valid_until
    later = (datetime.fromisoformat(ends) + timedelta(days=1)).isoformat()
    place = site.parent / "records.csv"
    checked = SiteStart(
        home=Home(site),
        data=place,
        relay=RELAY,
        roots=site / "ca.pem",
        node_key=site / "node",
    )

    def plans() -> list[tuple[bool, str]]:
        found = site_check.check_site(checked, at=later)
        return [(each.wrong, each.words) for each in found if each.what.startswith("plan ")]

    ((wrong, words),) = plans()
    assert wrong
    assert "expired" in words
    log, policy = SiteLog(site / "log.db"), load_policy(site / "policy.toml")
    with pytest.raises(PolicyRefusal):
        log.check(asked(site), policy, at=now())
    log.decide(1, yes=True, by="somebody", at=now())
    log.send(asked(site), policy, at=now())
    assert plans() == [(False, "it has expired: it is not answered any more")]
    (site / "plan.json").unlink()
    assert plans() == [(False, "it has expired: it is not answered any more")]


def test_a_plan_that_would_be_refused_for_counts_is_not_called_answered(site: Path) -> None:
    """Its own releases are used up: that is how it ends. A further plan is against most-counts."""
    own = SignedPlan.load(site / "plan.json").plan.fingerprint[:16]
    write_plan(site, "second.json", epsilon=0.9)
    second = SignedPlan.load(site / "second.json").plan.fingerprint[:16]
    memory, invitation = SiteMemory(site / "site.db", site.parent / "records.csv"), asked(site)
    memory.begin(invitation, most_counts=1, at=now())
    assert check()[2] == {}
    log, policy = (
        SiteLog(site / "log.db"),
        replace(load_policy(site / "policy.toml"), approve="always"),
    )
    memory.count(
        invitation, most_counts=1, at=now(), log=lambda: log.send(invitation, policy, at=now())
    )
    code, well, wrong = check()
    assert code == 1
    (words,) = wrong[f"plan {second}"]
    assert "its records were counted 1 of 1 times (most-counts): it would be refused" in words
    assert well[f"plan {own}"] == [
        "its records were counted 1 of 1 times (releases): it is not answered any more"
    ]
    assert well["memory and log"] == ["whole; counts left once so far"]


def test_a_plan_that_was_only_asked_replaces_none(site: Path) -> None:
    """A person has not said yes to it, so the site still answers the older one."""
    old = SignedPlan.load(site / "plan.json").plan.fingerprint[:16]
    write_plan(site, "newer.json", serial=7)
    with pytest.raises(PolicyRefusal):
        SiteLog(site / "log.db").check(
            asked(site, "newer.json"), load_policy(site / "policy.toml"), at=now()
        )
    (site / "newer.json").unlink()
    _, well, _ = check()
    assert well[f"plan {old}"][0].startswith("would be answered")


def test_a_person_reads_what_is_asked_says_yes_and_reads_what_left(site: Path) -> None:
    log, policy = SiteLog(site / "log.db"), load_policy(site / "policy.toml")
    invitation = asked(site)
    assert "nothing waits" in runner.invoke(app, ["site", "requests", "--folder", "site"]).stdout
    with pytest.raises(PolicyRefusal, match="waits"):
        log.check(invitation, policy, at=now())
    shown = runner.invoke(app, ["site", "requests", "--folder", "site"]).stdout
    for words in ("request 1, waiting: small world", "epsilon 1, delta 1e-06", "whole table"):
        assert words in shown
    approve = ["site", "approve", "1", "--folder", "site"]
    doubtful = runner.invoke(app, approve, input="n\n")
    assert doubtful.exit_code == 1
    assert log.read().requests[1].state == "waiting"
    assert "ask again" in runner.invoke(app, approve, input="y\n").stdout
    log.check(invitation, policy, at=now())
    log.send(invitation, policy, at=now())
    listed = runner.invoke(app, ["site", "log", "--folder", "site"]).stdout
    assert "approved request 1" in listed
    assert "counts left once" in listed
    places = [listed.index(words) for words in ("asked for a yes", "approved", "left, masked")]
    assert places == sorted(places)  # by time
    document = json.loads(runner.invoke(app, ["site", "log", "--folder", "site", "--json"]).stdout)
    assert [each["event"] for each in document["entries"]] == ["asked", "approved", "sent"]
    assert document["spent_in_a_year"] == pytest.approx(1.0, rel=1e-6)
    sent = document["entries"][-1]
    assert (sent["organiser"], sent["epsilon"], sent["views"]) == ("small world", 1, ["the whole"])
    write_plan(site, "second.json", epsilon=0.5)
    with pytest.raises(PolicyRefusal, match="waits"):
        log.check(asked(site, "second.json"), policy, at=now())
    again = runner.invoke(app, ["site", "requests", "--folder", "site"]).stdout
    assert "these records were counted once already" in again
    assert "with this release, those of 365 days cost a record epsilon 1.5" in again
    assert "already" not in shown
    denied = runner.invoke(app, ["site", "deny", "1", "--folder", "site", "--yes"])
    assert "denied" in denied.stdout
    with pytest.raises(PolicyRefusal, match="said no"):
        log.check(invitation, policy, at=now())
    listed = runner.invoke(app, ["site", "log", "--folder", "site"]).stdout
    told = [listed.index(words) for words in ("approved request 1", "denied request 1")]
    assert told == sorted(told)  # the yes that was taken back was said all the same
    assert all(line[10] == "T" and line[16] == "Z" for line in listed.splitlines()[:4])


@pytest.mark.parametrize("line", [["requests"], ["log"], ["approve", "1"], ["deny", "1"]])
def test_a_folder_of_no_site_is_no_all_clear(
    line: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "FEDPRIKL_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "empty") if name == "HOME" else "")
    said = fails(monkeypatch, capsys, "site", *line)
    assert "is no folder of a site" in said
    assert "--folder" in said
    assert "is no folder" in fails(monkeypatch, capsys, "site", *line, "--folder", "sitee")
    assert not (tmp_path / "sitee").exists()


def test_the_folder_of_the_ten_minutes_is_found_without_its_name(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(site.parent / "home"))
    with pytest.raises(PolicyRefusal):
        SiteLog(site / "log.db").check(asked(site), load_policy(site / "policy.toml"), at=now())
    (site / "member.json").write_text("{}")
    shown = runner.invoke(app, ["site", "requests"])
    assert "request 1, waiting" in shown.stdout
    assert f"the site's folder: {site}" in "".join(shown.stderr.split("\n"))  # it was a guess
    monkeypatch.delenv("FEDPRIKL_HOME")
    usual = site.parent / "home" / ".fedprikl"
    usual.mkdir(parents=True)
    (usual / "policy.toml").write_text("")
    assert "Both site and" in fails(monkeypatch, capsys, "site", "requests")


def test_a_policy_is_written_whole_and_never_over_another(tmp_path: Path) -> None:
    path = str(tmp_path / "policy.toml")
    line = ["site", "policy", f"north={64 * 'a'}", "-o", path]
    assert runner.invoke(app, line).exit_code == 0
    assert load_policy(Path(path)).organisers == {"north": 64 * "a"}
    assert runner.invoke(app, line).exit_code != 0
    bad: list[Any] = ["site", "policy", "north=nothex", "-o", str(tmp_path / "other.toml")]
    assert runner.invoke(app, bad).exit_code != 0
    assert not (tmp_path / "other.toml").exists()


def test_certificates_days_are_in_the_metrics_and_a_warning_comes_in_time(tmp_path: Path) -> None:
    said: list[str] = []
    write_certificates(tmp_path, days=90)
    watch_certificates(tmp_path / "metrics.prom", [tmp_path / "server.pem"], said.append)
    text = (tmp_path / "metrics.prom").read_text()
    assert said == []
    assert 'fedprikl_certificate_days{file="server.pem"} 90' in text
    write_certificates(tmp_path, days=10)
    watch_certificates(tmp_path / "metrics.prom", [tmp_path / "server.pem"], said.append)
    (words,) = said
    assert "The certificate ends in 10 days" in words
    assert first_end(tmp_path / "server.pem") - datetime.now(UTC) < timedelta(days=11)
    watch_certificates(tmp_path / "metrics.prom", [tmp_path / "gone.pem"], said.append)
    assert "gone.pem" in said[-1]
