"""What a new user reads: who was counted, which option to use, which file is meant."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from fedprikl.errors import BudgetExceededError, RecordsError
from fedprikl.estimation import JudgedStatistic, Verdict
from fedprikl.front.local_parties import find_clients
from fedprikl.privacy import Ledger, Numbers, calibrate
from fedprikl.protocol import Release
from fedprikl.records import CsvFormat
from fedprikl.reference import Reference
from fedprikl.reporting.facts import absences
from tests.cli.test_round_commands import call, fails

pytestmark = pytest.mark.slow

ESTIMATE = ("estimate", "plan.json", "clients")
PLAN = ("plan", "ref.json", "--clients", "6", "--records", "360")


def test_clients_above_the_limit_do_not_vanish_silently(planned: Path) -> None:
    said = " ".join(call(*PLAN, "--force", "--most-records", "60").stdout.split())
    assert "may hold up to 60 records (--most-records); one that holds more stays away" in said
    large = planned / "clients" / "site0.csv"
    large.write_text(large.read_text() + "46.0,basic\n")
    said = call(*ESTIMATE).stdout
    absent = (
        "1 took no part: the plan has no room for as many records as they hold (most_records 60; "
        "plan with a larger --most-records)."
    )
    page = (planned / "report.html").read_text(encoding="utf-8")
    for words in ("Counted: 5 of 6 clients.", absent):
        assert words in said
        assert words in page
    assert "Counted: 5 of 6 clients." in call("verify", "release.json").stdout


def test_reasons_are_grouped() -> None:
    one, other = absences(["it is late"] * 3 + ["it rains"], 10)
    assert (one, other) == ("3 took no part: it is late.", "1 took no part: it rains.")


def test_the_signer_is_printed_for_verify(planned: Path) -> None:
    said = call(*ESTIMATE).stdout
    (key,) = re.findall("--signer`: ([0-9a-f]{64})", said)
    assert key == Release.load(planned / "release.json").signer
    call("verify", "release.json", "--signer", key)


@pytest.mark.parametrize("what", ["older", "missing", "another"])
def test_an_older_ledger_is_refused(
    planned: Path,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its budget would be spent twice."""
    call(*PLAN, "--releases", "2", "--force")
    call(*ESTIMATE)
    shutil.copy("ledger.db", "first.db")
    call(*ESTIMATE, "-o", "second.json", "--report", "second.html")
    match what:
        case "older":
            shutil.copy("first.db", "ledger.db")
        case "missing":
            Path("ledger.db").unlink()
        case "another":
            Path("ledger.db").unlink()
            call("ledger", "--population", "clients", "--set-epsilon", "5")
            for epsilon in range(6, 20):
                call("ledger", "--population", "clients", "--set-epsilon", str(epsilon))
    before = {path.name: path.read_bytes() for path in planned.glob("*.*")}
    (planned / "elsewhere").mkdir()
    for output in ("third.json", "elsewhere/third.json"):
        said = fails(monkeypatch, capsys, *ESTIMATE, "-o", output, "--report", "third.html")
        assert "name it with --ledger" in said
    assert {path.name: path.read_bytes() for path in planned.glob("*.*")} == before


def test_releases_beside_the_output_know_the_ledger_too(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (planned / "books").mkdir()
    call(*ESTIMATE, "--ledger", "books/ledger.db")
    (planned / "books" / "ledger.db").unlink()
    said = fails(monkeypatch, capsys, *ESTIMATE, "--ledger", "books/ledger.db", "--force")
    assert "There is no ledger books/ledger.db" in said


def test_releases_of_another_key_stop_nobody(planned: Path) -> None:
    call(*ESTIMATE)
    Path("ledger.db").unlink()
    call(*ESTIMATE, "--force", "--key", "other.pem")
    assert Release.load(planned / "release.json").is_intact


def test_a_reference_that_is_not_the_plans(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call("reference", "public.csv", "-o", "other.json", "--bins", "3")
    said = fails(monkeypatch, capsys, *ESTIMATE, "--reference", "other.json")
    assert "plan.json was made with another reference than other.json" in said
    assert "(--reference)" in said
    (planned / "ref.json").unlink()
    said = fails(monkeypatch, capsys, *ESTIMATE)
    assert "There is no reference ref.json, and no other .json file" in said
    assert "with --reference" in said


def test_a_plans_reference_is_found_by_its_fingerprint(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ref.json").rename("of-march.json")
    call("reference", "public.csv", "-o", "ref.json", "--bins", "3")  # of another plan
    said = fails(monkeypatch, capsys, *ESTIMATE, "--force", "-o", "of-march.json")
    assert "is never overwritten" in said
    call(*ESTIMATE)
    assert Release.load(planned / "release.json").is_intact
    Path("of-march.json").unlink()
    said = fails(monkeypatch, capsys, *ESTIMATE, "--force")
    assert re.search(r"another reference than ref.json \(fingerprint \w{8}, not \w{8}\)", said)


def test_a_spent_budget_says_how_to_raise_it(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(*PLAN, "--population", "my phones", "--ask", "kl,tv,js", "--force")
    call(*ESTIMATE)
    said = fails(monkeypatch, capsys, *ESTIMATE, "--force")
    assert "1 is spent, 0 is left. With discrete Laplace noise of scale" in said
    assert "`fedprikl ledger --ledger ledger.db --population 'my phones' --set-epsilon 2`" in said
    assert "No further release fits." in said
    assert "No further release fits." in call("ledger").stdout
    call("ledger", "--population", "my phones", "--set-epsilon", "2")
    call(*ESTIMATE, "--force")
    assert planned


def test_a_billionth_is_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = calibrate(Numbers(0.5), epsilon=1 - 2e-9, law="laplace")
    at = "2030-01-31T12:00:00+00:00"
    with Ledger.open(tmp_path / "ledger.db") as book:
        book.set_budget("phones", epsilon=1, delta=0, at=at)
        book.reserve("phones", noise, round_id="a", at=at)
        with pytest.raises(BudgetExceededError, match=" 0 is left"):
            book.check("phones", noise)
    monkeypatch.chdir(tmp_path)
    assert "(delta 0), 0 is left." in " ".join(call("ledger").stdout.split())
    assert noise.per_unit() == "Laplace noise of scale 1 per unit of sensitivity"
    said = fails(monkeypatch, capsys, "ledger", "--ledger", "nope.db")
    assert "`fedprikl ledger --ledger nope.db --population NAME --set-epsilon 1`" in said


def test_files_with_the_same_fault_are_one_line(planned: Path) -> None:
    for i in range(20):
        (planned / "clients" / f"wrong{i:02}.csv").write_text("age;plan\n46.0;basic\n")
    (planned / "clients" / "x.csv").write_text("age\n46.0\n")
    reference = Reference.load("ref.json")
    with pytest.raises(RecordsError) as caught:
        find_clients(Path("clients"), reference, form=CsvFormat(), skip_bad=False)
    head, wrong, other, last = str(caught.value).splitlines()
    assert head.startswith("21 files or folders")
    assert "`--separator`" in wrong
    assert wrong.startswith("- clients/wrong00.csv has no column")
    assert wrong.endswith("The same is true of wrong01.csv, wrong02.csv and 17 more.")
    assert other.startswith("- clients/x.csv")
    assert last.startswith("Nothing was counted.")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("plan", "ref.json", "--clients", "360", "--records", "6"), "fewer than 360 clients"),
        ((*PLAN, "-o", "p.json", "--valid-days", "0"), "later --valid-days"),
        ((*PLAN, "-o", "p.json", "--valid-until", "2020-01-01"), "later --valid-until"),
        (
            ("plan", "public.csv", "-o", "p.json", *PLAN[2:]),
            "`fedprikl reference public.csv -o ref.json`",
        ),
        (("reference", "public.csv", "-o", "public.csv", "--force"), "never overwritten"),
    ],
)
def test_refusals_name_the_option(
    planned: Path,
    line: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert words in fails(monkeypatch, capsys, *line)
    assert not (planned / "p.json").exists()


def test_one_end_of_a_plan_is_enough(planned: Path) -> None:
    line = [*PLAN, "-o", "p.json", "--valid-days", "90", "--valid-until", "2999-01-01"]
    done = subprocess.run(
        [sys.executable, "-m", "fedprikl", *line], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
    assert not (planned / "p.json").exists()


def test_a_plan_in_words(planned: Path) -> None:
    said = " ".join(call(*PLAN, "--force").stdout.split())
    assert "1 secure sum of 6 clients" in said
    assert "false alarms: 0.5%" in said or "No drift would be found" in said
    assert planned


def test_a_crowded_reference_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"c{i % 7},d{i % 11},u{i}" for i in range(700)]
    Path("a.csv").write_text("\n".join(['one,"t,wo",id', *rows]))
    first = json.loads(call("reference", "a.csv", "-o", "r.json", "--json").stdout)["notes"]
    assert len(first) == 1
    assert "Column 'id' has almost as many values" in first[0]
    assert """--columns 'one,"t,wo"'""" in first[0]
    line = ("reference", "a.csv", "-o", "r.json", "--json", "--force")
    (second,) = json.loads(call(*line, "--columns", 'one,"t,wo"').stdout)["notes"]
    assert "77 cells for 700 records" in second
    assert "'t,wo' (11 levels), 'one' (7 levels)" in second
    assert json.loads(call(*line, "--columns", "one").stdout)["notes"] == []


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_texts_that_are_taken_as_missing_are_named(tmp_path: Path, suffix: str) -> None:
    data, output = tmp_path / f"a.{suffix}", str(tmp_path / "r.json")
    frame = pl.DataFrame(
        {"country": ["NA", "CH", "null", "DE", "NaN"] * 50, "n": [1, 2, 3, 4, None] * 50}
    )
    frame.write_csv(data) if suffix == "csv" else frame.write_parquet(data)
    line = ("reference", str(data), "-o", output, "--json", "--force")
    (note,) = json.loads(call(*line).stdout)["notes"]
    assert note.startswith("Column 'country': 'NA', 'null' is taken as missing.")
    assert "--missing" in note
    assert json.loads(call(*line, "--missing", "null").stdout)["notes"] == []
    assert json.loads(call(*line, "--columns", "n").stdout)["notes"] == []


def test_two_numbers_that_differ_look_different() -> None:
    def verdict(statistic: float, threshold: float) -> Verdict:
        seen = JudgedStatistic(name="kl", value=statistic, threshold=threshold, unit="nats")
        return Verdict(statistics=(seen,), false_alarm=0.01, design_effect=1.0)

    assert "Drift found: kl (1.00001 times its threshold);" in str(verdict(0.0321004, 0.0321001))
    assert "kl (16 times its threshold);" in str(verdict(0.5, 0.03210012))
    assert "No drift found: closest is kl (1 times its threshold);" in str(verdict(0.5, 0.5))


def test_python_m(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "fedprikl", "--version"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("fedprikl ")
