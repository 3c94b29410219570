"""`fedprikl reference` as a user types it."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from fedprikl import FedPriKLError, Reference
from fedprikl.cli.app import app, main
from fedprikl.records import open_records

runner = CliRunner()
FRAME = pl.DataFrame(
    {
        "city": ["Basel", "Bern", "Basel", "[red]Zug"] * 5,
        "age": [float(age) for age in range(20)],
        "ward": ["007", "7", "1", "007"] * 5,
        "a,b": [1, 2, 3, 4] * 5,
    }
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    FRAME.write_csv(tmp_path / "census.csv")
    return tmp_path / "census.csv"


def run(*arguments: object) -> Any:
    return runner.invoke(app, ["reference", *map(str, arguments)])


def refusal(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, FedPriKLError), result.output
    assert result.stdout == ""
    return str(result.exception)


def test_it_prints_columns_and_the_heaviest_cells(data: Path, tmp_path: Path) -> None:
    result = run(data, "-o", tmp_path / "ref.json", "--columns", "city,age", "--bins", 2)
    assert result.exit_code == 0, result.output
    for words in (
        "city",
        "categories",
        "bins",
        "up to 9",
        "city=[red]Zug",
        "20 records in 6 cells",
    ):
        assert words in result.stdout
    saved = Reference.load(tmp_path / "ref.json")
    expected = Reference.fit(FRAME, columns=["city", "age"], bins=2)
    assert saved.fingerprint == expected.fingerprint


def test_json_is_one_object(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "ref.json"
    options = ("--columns", 'ward,"a,b"', "--bins", 3, "--categorical", '"a,b"', "--json")
    result = run(data, "-o", output, *options)
    document = json.loads(result.stdout)
    assert document["reference"] == str(output)
    assert document["fingerprint"] == Reference.load(output).fingerprint
    assert (document["records"], document["cells"]) == (20, 4)
    assert document["columns"][0] == {
        "name": "ward",
        "kind": "categories",
        "levels": 3,
        "first_levels": ["1", "007", "7"],
    }
    assert document["columns"][1]["kind"] == "categories"
    assert document["heaviest"][0] == {"cell": "ward=1, a,b=3", "probability": 0.25}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_levels_agree_with_clients_of_either_format(tmp_path: Path, suffix: str) -> None:
    csv, parquet = tmp_path / "data.csv", tmp_path / "data.parquet"
    FRAME.write_csv(csv)
    FRAME.write_parquet(parquet)
    output = tmp_path / "ref.json"
    assert run(tmp_path / f"data{suffix}", "-o", output).exit_code == 0
    reference = Reference.load(output)
    for client in (csv, parquet, FRAME):
        assert (
            open_records(client).count(reference).counts.tolist() == reference.whole.mass.tolist()
        )


def test_a_column_that_is_nearly_numeric_is_noted(tmp_path: Path) -> None:
    data, output = tmp_path / "a.csv", tmp_path / "ref.json"
    rows = [f"{i}.5,{i % 3}" for i in range(470)]
    data.write_text("delay,ward\n" + "\n".join([*rows, "[late],1", "late,2", "NA,1"]))
    result = run(data, "-o", output)
    assert result.exit_code == 0
    noted = " ".join(result.stderr.split())
    assert "Column 'delay' is taken as categories, although 470 of its 472 values" in noted
    assert "'[late]', 'late' are not" in noted
    assert "Column 'ward'" not in noted
    assert "leave it out with --columns ward" in noted  # 472 values in 473 records
    document = json.loads(run(data, "-o", output, "--force", "--json").stdout)
    assert document["columns"][0]["kind"] == "categories"
    assert len(document["notes"]) == 3
    options = ("--force", "--json", "--missing", "NA,late,[late]")
    result = run(data, "-o", output, *options)
    document = json.loads(result.stdout)
    assert (document["columns"][0]["kind"], document["notes"]) == ("bins", [])
    client = tmp_path / "client.csv"
    client.write_text("delay,ward\nlate,1\n,1\n3,1\n")
    counted = open_records(client).count(Reference.load(output))
    assert [int(view[-1]) for view in counted.views] == [0, 0]


def test_pairs_and_columns_only(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "ref.json"
    options = ("--bins", 2, "--pair", "city,age", "--pair", 'ward,"a,b"')
    document = json.loads(run(data, "-o", output, *options, "--json").stdout)
    assert document["joint"] is True
    columns = [view["columns"] for view in document["views"]]
    assert columns == [["city"], ["age"], ["ward"], ["a,b"], ["city", "age"], ["ward", "a,b"]]
    assert document["views"][0] == {"columns": ["city"], "cells": 3, "icc": None}
    pairs = [("city", "age"), ("ward", "a,b")]
    expected = Reference.fit(FRAME, bins=2, pairs=pairs)
    assert Reference.load(output).fingerprint == expected.fingerprint
    result = run(data, "-o", output, "--force", "--columns-only", *options)
    assert "20 records, compared by 4 columns, each by itself" in " ".join(result.stdout.split())
    assert "pairs: city and age, ward and a,b" in result.stdout
    assert "heaviest" not in result.stdout
    assert not Reference.load(output).joint
    assert "takes two columns" in refusal(data, "-o", tmp_path / "x.json", "--pair", "city")
    assert "columns among" in refusal(data, "-o", tmp_path / "x.json", "--pair", "city,zip")


def test_a_wide_table_is_built_without_joint_cells(tmp_path: Path) -> None:
    wide = {f"c{i}": [float(i * row % 17) for row in range(40)] for i in range(1, 31)}
    pl.DataFrame(wide).write_csv(tmp_path / "wide.csv")
    document = json.loads(run(tmp_path / "wide.csv", "-o", tmp_path / "r.json", "--json").stdout)
    assert (document["joint"], document["cells"], document["records"]) == (False, 0, 40)
    assert (len(document["views"]), document["heaviest"]) == (30, [])
    assert document["notes"] == []


def test_separator_encoding_and_gzip(tmp_path: Path) -> None:
    data, output = tmp_path / "a.csv.gz", tmp_path / "ref.json"
    with gzip.open(data, "wb") as file:
        file.write("stadt|tag\nZürich|2020-01-01\nBern|2020-01-02\n".encode("cp1252"))
    options = ("--separator", "|", "--encoding", "cp1252", "--json", "--bins", 1)
    document = json.loads(run(data, "-o", output, *options).stdout)
    assert [column["kind"] for column in document["columns"]] == ["categories", "times"]
    assert document["columns"][0]["first_levels"] == ["Bern", "Zürich"]
    tabbed = tmp_path / "b.csv"
    tabbed.write_text("stadt\ttag\nBern\t2020-01-01\n")
    assert run(tabbed, "-o", output, "--force", "--separator", "tab").exit_code == 0
    assert "at line 2" in refusal(data, "-o", tmp_path / "c.json", "--separator", "|")
    assert "one character" in refusal(data, "-o", tmp_path / "c.json", "--separator", "||")
    assert "UTF-8" in refusal(data, "-o", tmp_path / "c.json", "--encoding", "utf-16")


def test_an_existing_file_is_kept_unless_forced(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "ref.json"
    output.write_text("precious")
    assert "--force" in refusal(data, "-o", output)
    assert output.read_text() == "precious"
    assert run(data, "-o", output, "--force").exit_code == 0
    Reference.load(output)


def test_the_data_itself_is_never_overwritten(data: Path) -> None:
    before = data.read_bytes()
    assert "never overwritten" in refusal(data, "-o", data, "--force")
    assert data.read_bytes() == before


def test_bad_input_says_what_to_do(data: Path, tmp_path: Path) -> None:
    output = tmp_path / "ref.json"
    assert "no folder" in refusal(data, "-o", tmp_path / "none" / "ref.json")
    assert "no file" in refusal(tmp_path / "none.csv", "-o", output)
    assert "no column 'x'" in refusal(data, "-o", output, "--columns", "x")
    assert "is a folder" in refusal(tmp_path, "-o", output)
    assert "at least one column" in refusal(data, "-o", output, "--columns", "")
    assert not output.exists()
    output.write_text("old")
    assert "no file" in refusal(tmp_path / "none.csv", "-o", output, "--force")
    assert output.read_text() == "old"


def test_wrong_usage_exits_with_2(data: Path, tmp_path: Path) -> None:
    assert run(data).exit_code == 2
    assert run(data, "-o", tmp_path / "ref.json", "--bins", 0).exit_code == 2


def test_help_has_an_example() -> None:
    assert "fedprikl reference census.csv -o ref.json" in " ".join(run("--help").stdout.split())


def test_it_needs_no_data_frame_library(data: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules |= dict.fromkeys(['pandas', 'polars', 'pyarrow']); "
        "from fedprikl.cli import main; main()"
    )
    arguments = ["reference", str(data), "-o", str(tmp_path / "ref.json"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 20


def test_a_failure_exits_with_1_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.csv").write_text("a,b\nSECRET\n")
    arguments = [str(tmp_path / "bad.csv"), "-o", str(tmp_path / "ref.json"), "--json"]
    monkeypatch.setattr(sys, "argv", ["fedprikl", "reference", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    printed = capsys.readouterr()
    assert stop.value.code == 1
    assert printed.out == ""
    assert "at line 2" in printed.err
    assert "SECRET" not in printed.err


def test_names_in_public_data_do_not_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("a\033[2Jb,n\n\033[31mx,1\ny,2\nx,3\n")
    result = run(path, "-o", tmp_path / "ref.json")
    plan = ("--clients", "40", "--records", "3000", "--explain", "-o", str(tmp_path / "plan.json"))
    planned = runner.invoke(app, ["plan", str(tmp_path / "ref.json"), *plan])
    for said in (result.stdout, planned.stdout):
        assert "\033" not in said
        assert "\ufffd" in said


def test_numbers_with_decimal_commas_are_noted(tmp_path: Path) -> None:
    """They are categories, thousands of them; those written with a point are numbers."""
    path = tmp_path / "census.csv"
    lines = [f"{n / 8:.2f};{n}".replace(".", ",") for n in range(400)]
    path.write_text("\n".join(["weight;count", *lines]))
    result = run(path, "-o", tmp_path / "ref.json", "--separator", ";", "--json")
    notes = json.loads(result.stdout)["notes"]
    (found,) = (note for note in notes if "decimal commas" in note)
    assert "'weight'" in found
    assert "Write them with a point" in found
    path.write_text(path.read_text().replace(",", "."))
    result = run(path, "-o", tmp_path / "ref.json", "--separator", ";", "--json", "--force")
    assert "decimal commas" not in result.stdout


def test_very_many_categories_are_noted_also_beside_clients(tmp_path: Path) -> None:
    path = tmp_path / "census.csv"
    lines = [f"c{n % 40},k{n % 250},z{n % 7}" for n in range(1000)]
    path.write_text("\n".join(["who,code,zone", *lines]))
    result = run(path, "-o", tmp_path / "ref.json", "--client-column", "who", "--json")
    notes = [each for each in json.loads(result.stdout)["notes"] if "categories, with" in each]
    (found,) = notes
    assert "'code' has 250 categories, with 4 records each" in found


def test_the_correlation_says_of_what_it_is_and_names_the_column_with_the_largest(
    tmp_path: Path,
) -> None:
    path = tmp_path / "census.csv"
    lines = [f"c{n % 40},{n % 40 % 2},{n // 40 % 5}" for n in range(1000)]
    path.write_text("\n".join(["who,home,day", *lines]))
    shown = run(path, "-o", tmp_path / "ref.json", "--client-column", "who").stdout
    assert "in the cells, and largest in column 'home': 1.000" in " ".join(shown.split())
