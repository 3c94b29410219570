"""What leaves `estimate` is a function of public quantities and of noised values.

Two folders differ in one record. The noise is replaced by one that makes the noised value the same
for both. Then every byte that leaves must be the same: terminal, JSON, release, report, exit code.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedprikl import records
from fedprikl.checks import Floats, Ints
from fedprikl.cli.app import app
from fedprikl.front import comparing, local_parties
from fedprikl.protocol import RoundResult, SignedPlan, run_round
from tests.cli.test_round_commands import call, folder, runner
from tests.protocol.worlds import InsecureNoNoise

pytestmark = pytest.mark.slow

__all__ = ["folder"]  # a fixture

NEIGHBOURS = {
    "another known value": b"71.0,basic",
    "a value that the reference does not know": b"46.0,platinum",
    "a number that is none": b"many,basic",
    "a combination": b"99999.9,plus",
    "missing": b",",
    "an invalid byte": b"46.0,\xff\xfe",
    "too many fields": b"46.0,basic,basic,basic",
    "too few fields": b"46.0",
    "a very long field": b"46.0," + b"x" * 5_000_000,
}


# A hash chain under a salt that never leaves the ledger, and the signature over it.
RANDOM = re.compile('("(hash|signature)": "|<th scope="row">signature</th><td>)[0-9a-f]+')


class InsecureConstantNoise(InsecureNoNoise):
    """A noised value that is the same for all data."""

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:  # noqa: ARG002
        return np.full_like(np.asarray(values, dtype=np.float64), 0.25)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        return self.laplace(values, scale=sigma)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:  # noqa: ARG002
        return np.arange(np.size(counts), dtype=np.int64)

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        return self.integer_laplace(counts, scale=sigma)


def prepare(folder: Path) -> list[bytes]:
    """A plan; the rows of the client whose last record is replaced."""
    call("reference", "public.csv", "-o", "ref.json")
    call("plan", "ref.json", "--clients", "12", "--records", "720", "--releases", "2")
    # Adaptive noise cannot be made such that its value is the same for all data.
    plan = SignedPlan.load("plan.json").plan
    ways: dict[str, Any] = {"adaptive": "value"}
    asked = [replace(each, release=ways.get(each.release, each.release)) for each in plan.questions]
    changed = SignedPlan(replace(plan, questions=tuple(asked)))
    Path("plan.json").write_text(json.dumps(changed.to_dict()))
    return (folder / "clients" / "site3.csv").read_bytes().splitlines()


def all_that_leaves(folder: Path, rows: list[bytes], *options: str) -> dict[str, str]:
    """Of the first release from a new ledger."""
    (folder / "ledger.db").unlink(missing_ok=True)
    return next_release(folder, rows, *options)


def next_release(folder: Path, rows: list[bytes], *options: str) -> dict[str, str]:
    (folder / "clients" / "site3.csv").write_bytes(b"\n".join(rows) + b"\n")
    for name in ("release.json", "report.html"):
        (folder / name).unlink(missing_ok=True)
    result = runner.invoke(app, ["estimate", "plan.json", "clients", *options])
    files = {name: (folder / name) for name in ("release.json", "report.html")}
    left = {
        "exit code": str(result.exit_code),
        "exception": repr(result.exception),
        "stdout": result.stdout,
        "stderr": result.stderr,
        **{name: path.read_text() if path.exists() else "" for name, path in files.items()},
    }
    return {name: RANDOM.sub("(random)", text) for name, text in left.items()}


def fix_chance(monkeypatch: pytest.MonkeyPatch, source: Any, round_id: int = 0) -> None:
    """The same round id, points, cohorts and time in both runs, and the given noise."""
    at = SignedPlan.load("plan.json").plan.validity.valid_from

    def fixed(*arguments: Any, **settings: Any) -> RoundResult:
        chance: dict[str, Any] = {
            "rng": np.random.default_rng(0),
            "randomness": lambda size: round_id.to_bytes(size),
        }
        return run_round(*arguments, **(settings | chance | {"source": source}))

    monkeypatch.setattr(local_parties, "run_round", fixed)
    monkeypatch.setattr(comparing, "now", lambda: at)


@pytest.mark.parametrize("record", NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_one_record_changes_nothing_but_the_noised_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch, record: bytes
) -> None:
    rows = prepare(folder)
    fix_chance(monkeypatch, InsecureConstantNoise())
    first = all_that_leaves(folder, rows)
    assert first["exit code"] == "0", first
    assert all_that_leaves(folder, [*rows[:-1], record]) == first


def test_nor_as_json(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = prepare(folder)
    fix_chance(monkeypatch, InsecureConstantNoise())
    first = all_that_leaves(folder, rows, "--json")
    unknown = NEIGHBOURS["a value that the reference does not know"]
    assert all_that_leaves(folder, [*rows[:-1], unknown], "--json") == first


def test_nor_whether_it_has_changed_since_the_last_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that only wrote down new records would show it by its number of entries."""
    rows = prepare(folder)
    seconds = []
    for record in (rows[-1], b"71.0,basic"):
        fix_chance(monkeypatch, InsecureConstantNoise())
        all_that_leaves(folder, rows)
        fix_chance(monkeypatch, InsecureConstantNoise(), round_id=1)
        seconds.append(next_release(folder, [*rows[:-1], record]))
    assert seconds[0]["exit code"] == "0"
    assert seconds[0] == seconds[1]


def test_that_comparison_sees_a_record_where_there_is_no_noise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = prepare(folder)
    fix_chance(monkeypatch, InsecureNoNoise())
    first = all_that_leaves(folder, rows)
    unknown = NEIGHBOURS["a value that the reference does not know"]
    second = all_that_leaves(folder, [*rows[:-1], unknown])
    assert {name for name in first if first[name] != second[name]} == {
        "stdout",
        "release.json",
        "report.html",
    }


def test_no_time_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow count looks like a fast one."""
    rows = prepare(folder)
    fix_chance(monkeypatch, InsecureConstantNoise())
    first = all_that_leaves(folder, rows)
    count = records.count_all

    def slowly(*arguments: Any, **named: Any) -> Any:
        import time

        time.sleep(1.2)
        return count(*arguments, **named)

    monkeypatch.setattr(local_parties, "count_all", slowly)
    assert all_that_leaves(folder, rows) == first
