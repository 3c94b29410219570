"""What is known is refused before anything is counted, asked or charged."""

import json
import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.front import comparing, local_parties
from fedprikl.privacy import Ledger
from fedprikl.protocol import Policy, SignedPlan, SigningKey
from tests.cli.test_round_commands import call, fails

pytestmark = pytest.mark.slow

ESTIMATE = ("estimate", "plan.json", "clients")


def change_plan(**changes: Any) -> None:
    """The organiser signs another plan."""
    plan = SignedPlan.load("plan.json").plan.changed(**changes)
    signed = SignedPlan.sign(plan, SigningKey.load("organiser.pem"))
    Path("plan.json").write_text(json.dumps(signed.to_dict()))


@pytest.fixture
def refused(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Calls a command that must fail without a count; its words on one line."""

    def refuse(*line: str) -> str:
        before = {path: path.read_bytes() for path in planned.rglob("*") if path.is_file()}
        with monkeypatch.context() as patch:
            patch.setattr(local_parties, "count_all", None)
            said = " ".join(fails(monkeypatch, capsys, *line).split())
        unchanged = {path for path, content in before.items() if path.read_bytes() == content}
        assert unchanged >= before.keys() - {planned / "ledger.db"}
        assert not {planned / "release.json", planned / "report.html"} & set(planned.iterdir())
        return said

    return refuse


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"epsilon": 2.5, "total_epsilon": 2.5}, "--largest-epsilon"),
        ({"epsilon": 1e6, "total_epsilon": 1e6}, "--largest-epsilon"),
        ({"delta": 1e-4, "total_delta": 1e-4}, "--largest-delta"),
    ],
)
def test_the_limit_is_the_users_not_the_plans(
    planned: Path, refused: Any, changes: dict[str, float], option: str
) -> None:
    change_plan(**changes)
    assert f"Raise {option}" in refused(*ESTIMATE)
    assert not (planned / "ledger.db").exists()
    largest = str(changes[option.removeprefix("--largest-")])
    call(*ESTIMATE, option, largest)


@pytest.mark.parametrize("largest", ["nan", "0", "-1"])
@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_a_limit_that_limits_nothing_is_refused(
    planned: Path, refused: Any, name: str, largest: str
) -> None:
    change_plan(epsilon=50.0, total_epsilon=50.0)
    assert f"largest-{name} is " in refused(*ESTIMATE, f"--largest-{name}", largest)
    assert not (planned / "ledger.db").exists()
    with pytest.raises(InvalidInputError, match=f"largest-{name} is nan"):
        Policy(**{f"largest_{name}": math.nan})  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["same folder", "copy", "renamed", "one file", "linked"])
def test_a_new_name_is_no_new_budget(planned: Path, refused: Any, how: str) -> None:
    call(*ESTIMATE)
    for name in ("release.json", "report.html"):
        (planned / name).unlink()
    change_plan(population="other people")
    folder = "clients" if how == "same folder" else "elsewhere"
    if how == "copy":
        shutil.copytree("clients", folder)
    if how == "renamed":
        Path("clients").rename(folder)
    if how == "linked":
        Path(folder).symlink_to("clients")
    if how == "one file":  # of people who were counted before, among new ones
        shutil.copytree("clients", folder)
        for path in Path(folder).iterdir():
            if path.name != "site0.csv":
                path.write_text(path.read_text() + "46.0,basic\n")
    said = refused("estimate", "plan.json", folder)
    assert "A new name is no new budget" in said
    assert "'clients'" in said
    with Ledger.open("ledger.db") as book:
        assert book.populations() == ("clients",)


def test_other_records_may_have_another_name(planned: Path) -> None:
    """So that the refusal above is about the records."""
    call(*ESTIMATE)
    shutil.copytree("clients", "elsewhere")
    for path in Path("elsewhere").iterdir():
        path.write_text(path.read_text() + "46.0,basic\n")
    change_plan(population="other people")
    call("estimate", "plan.json", "elsewhere", "--force")
    with Ledger.open(planned / "ledger.db") as book:
        assert book.populations() == ("clients", "other people")


@pytest.mark.parametrize(
    "changes",
    [
        {"valid_until": "2020-06-01T00:00:00+00:00", "valid_from": "2020-01-01T00:00:00+00:00"},
        {"valid_until": "2999-06-01T00:00:00+00:00", "valid_from": "2999-01-01T00:00:00+00:00"},
    ],
    ids=["expired", "not yet"],
)
def test_a_plan_that_is_not_valid_now(planned: Path, refused: Any, changes: dict[str, str]) -> None:
    change_plan(**changes)
    said = refused(*ESTIMATE)
    assert f"valid from {changes['valid_from']} until {changes['valid_until']}" in said
    assert not (planned / "ledger.db").exists()


def test_a_plan_that_was_changed(planned: Path, refused: Any) -> None:
    document = json.loads((planned / "plan.json").read_text())
    document["plan"]["budget"]["epsilon"] = 0.9
    (planned / "plan.json").write_text(json.dumps(document))
    assert "changed after it was signed" in refused(*ESTIMATE)


@pytest.mark.parametrize("trust", ["no privacy", "paper"])
def test_a_plan_that_protects_nobody(planned: Path, refused: Any, trust: str) -> None:
    document = json.loads((planned / "plan.json").read_text())
    document["plan"]["trust"] = trust
    (planned / "plan.json").write_text(json.dumps(document))
    assert "must be one of 'aggregator', 'none'" in refused(*ESTIMATE)
    assert not (planned / "ledger.db").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"cohort": 3}, "would refuse: a sum of"), ({"batches": 3}, "too few")],
)
def test_a_plan_that_clients_would_refuse(
    planned: Path,
    refused: Any,
    changes: dict[str, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = SignedPlan.load("plan.json").plan
    one_number = replace(plan.question, release="value", share=1.0)  # counts need one batch
    change_plan(questions=(one_number,), views=(plan.whole,), **changes)
    monkeypatch.setattr(comparing, "Policy", partial(Policy, smallest_cohort=5))
    assert words in refused(*ESTIMATE)
    assert not (planned / "ledger.db").exists()


@pytest.mark.parametrize("name", ["release.json", "report.html"])
def test_nothing_is_overwritten_unasked(
    planned: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (planned / name).write_text("precious")
    said = fails(monkeypatch, capsys, *ESTIMATE)
    assert f"{name} exists already" in said
    assert (planned / name).read_text() == "precious"
    assert not (planned / "ledger.db").exists()
    call(*ESTIMATE, "--force")
    assert (planned / name).read_text() != "precious"
    assert not [path for path in planned.iterdir() if path.name.startswith(".")]


def test_a_budget_for_all_planned_releases(planned: Path, refused: Any) -> None:
    """Three weeks fit; the fourth is refused before anything is counted."""
    line = ("plan", "ref.json", "--clients", "6", "--records", "360", "--releases", "3", "--force")
    said = call(*line, "--population", "weekly").stdout
    assert "all of them together spend 1 at delta 1e-06" in " ".join(said.split())
    plan = SignedPlan.load("plan.json").plan
    assert (plan.budget.releases, plan.budget.total) == (3, (1.0, 1e-6))
    assert plan.budget.epsilon < 1
    for week in range(3):
        said = call(*ESTIMATE, "--force").output
        assert ("for 3 releases" in said) is (week == 0)
    for name in ("release.json", "report.html"):
        (planned / name).unlink()
    assert "Nothing was charged" in refused(*ESTIMATE)


def test_all_bad_files_are_named_and_may_be_left_out(planned: Path, refused: Any) -> None:
    (planned / "clients" / "bad1.csv").write_text("age,tariff\n46.0,basic\n")
    (planned / "clients" / "bad2.parquet").write_text("no parquet")
    (planned / "clients" / "bad3").mkdir()
    said = refused(*ESTIMATE)
    assert "3 files or folders" in said
    assert all(name in said for name in ("bad1.csv", "bad2.parquet", "bad3", "--skip-bad-files"))
    assert not (planned / "ledger.db").exists()
    result = call(*ESTIMATE, "--skip-bad-files", "--json")
    assert "Left out: 3 files or folders" in result.stderr
    document = json.loads(result.stdout)
    assert sorted(document["left_out"]) == ["bad1.csv", "bad2.parquet", "bad3"]
    assert sum(cohort["clients"] for cohort in document["release"]["cohorts"]) == 6


def test_too_few_good_files_are_too_few(planned: Path, refused: Any) -> None:
    for path in sorted((planned / "clients").iterdir())[2:]:
        path.write_text("")
    assert "holds 2 clients" in refused(*ESTIMATE, "--skip-bad-files")


@pytest.mark.parametrize(("separator", "character"), [(";", ";"), ("tab", "\t")])
def test_other_separators_and_encodings(
    planned: Path, refused: Any, separator: str, character: str
) -> None:
    for path in (planned / "clients").iterdir():
        path.write_bytes(path.read_bytes().replace(b",", character.encode()) + b"46.0;caf\xe9\n")
    assert "6 files or folders" in refused(*ESTIMATE)
    call(*ESTIMATE, "--separator", separator, "--encoding", "latin-1")
