"""Exactly k records of every client: drawn evenly, whole, and in bounded memory."""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.records import (
    Draw,
    FileRecords,
    RecordCounts,
    TimeSlice,
    count_all,
    draw_counts,
    open_records,
)
from fedprikl.records import files as csv
from fedprikl.records.counting import Randomness, draw_reference
from fedprikl.reference import BlockCode, Domain, Indices, Reference, View
from tests.false_alarm import FALSE_ALARM, looks_as_frequent

pytestmark = pytest.mark.slow

A, B = [f"a{i}" for i in range(6)], [f"b{i}" for i in range(5)]
EVERY = [(a, b) for a in A for b in B]  # one public record each, so that every pair has a cell


def frame_of(rows: list[tuple[str, str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"a": pl.String, "b": pl.String}, orient="row")


TABLE = Reference.fit(frame_of(EVERY), pairs=[("a", "b")])
NO_JOINT = Reference.fit(frame_of(EVERY), pairs=[("a", "b")], joint=False)
STRAY = Reference(  # half of the records have no joint cell; its views know more of them
    View(
        Domain(TABLE.domain.encoder, TABLE.domain.codes[:15]),
        np.append(np.ones(15), 15.0),
    ),
    TABLE.views,
)


def seeded(seed: int) -> Randomness:
    return np.random.default_rng(seed).bytes


def sums(found: RecordCounts) -> set[int]:
    return {found.total, *(int(view.sum()) for view in found.views)}


def all_counts(found: RecordCounts) -> list[list[int]]:
    return [found.counts.tolist(), *(view.tolist() for view in found.views)]


def assert_whole_records(found: RecordCounts) -> None:
    """The joint cells of TABLE are its pairs, so they tell every other view."""
    columns = [found.views[2][:-1].reshape(len(A), len(B)).sum(axis=axis) for axis in (1, 0)]
    labels = [TABLE.views[0].labels, TABLE.views[1].labels]
    for held, names, view in zip(columns, (A, B), found.views, strict=False):
        by_name = dict(zip(labels[0] if names is A else labels[1], view.tolist(), strict=False))
        assert [by_name[name] for name in names] == held.tolist()
    np.testing.assert_array_equal(found.counts, found.views[2])


value_a, value_b = st.sampled_from([*A, "strange"]), st.sampled_from([*B, "strange"])
records = st.lists(st.tuples(value_a, value_b), max_size=40)


@settings(max_examples=60, deadline=None)
@given(records, st.integers(0, 5), st.integers(1, 50), st.booleans(), st.booleans())
def test_every_draw_sums_to_k_and_holds_all_that_a_short_client_has(
    rows: list[tuple[str, str]], broken: int, k: int, joint: bool, away: bool
) -> None:
    """In the whole and in every view; lines that cannot be read are records like others."""
    draw = Draw(k, "away" if away else "reference")
    reference = TABLE if joint else NO_JOINT
    lines = ["a,b", *(f"{a},{b}" for a, b in rows), *["x,y,z"] * broken]
    held = len(rows) + broken
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.csv")
        path.write_text("\n".join(lines) + "\n")
        everything = open_records(path).count(reference)
        found = open_records(path).count(reference, draw)
    assert everything.total == held
    assert sums(found) == {0 if away and not held else k}
    for drawn, all_ in zip(all_counts(found), all_counts(everything), strict=True):
        left = np.array(all_) - np.array(drawn)
        if held >= k:
            assert (left >= 0).all()  # no record is drawn twice
        else:
            assert (left <= 0).all()  # all are there
            assert (held == 0 and away) or -left.sum() == k - held
    assert found.unreadable <= everything.unreadable
    if held <= k:
        assert found.unreadable == everything.unreadable


@settings(max_examples=60, deadline=None)
@given(records, st.integers(1, 60), st.sampled_from(["joint", "views", "some"]), st.integers(0, 99))
def test_what_fills_up_is_drawn_from_the_reference(
    rows: list[tuple[str, str]], more: int, name: str, seed: int
) -> None:
    """Record by record: in the cells and views of `draw_reference`, with the bytes that follow."""
    reference = {"joint": TABLE, "views": NO_JOINT, "some": STRAY}[name]
    frame, k = frame_of(rows), len(rows) + more
    found = open_records(frame).count(reference, Draw(k, randomness=seeded(seed)))
    everything = open_records(frame).count(reference)
    randomness = seeded(seed)
    randomness(8 * len(rows))  # the keys of the records
    counts, views = draw_reference(reference, more, randomness)
    for drawn, own, filled in zip(
        all_counts(found), all_counts(everything), [counts, *views], strict=True
    ):
        assert drawn == (np.array(own) + filled).tolist()


def contributed(held: int, k: int, law: tuple[float, float], *, repeats: bool) -> list[float]:
    """The exact chance of 0 .. k records in the first of two cells, of `held` unrelated records.

    Over all records and all keys of the draw: four of them, so shares of Pi are quarters.
    """
    pi, found = Reference.from_probabilities(law), np.zeros(k + 1)
    for first, chance in enumerate(stats.binom.pmf(np.arange(held + 1), held, law[0])):
        own = np.array([first, held - first, 0])
        if repeats:
            assert k % held == 0
            found[k // held * first] += chance
            continue
        for keys in product(range(4), repeat=k - held):
            filled = np.array(keys, dtype=np.uint64) << np.uint64(62)
            given = iter((bytes(8 * held), filled.tobytes())).__next__
            drawn = draw_counts(own, pi, Draw(k, randomness=partial(_next, given)))
            found[drawn[0]] += chance / 4 ** (k - held)
    return [float(each) for each in found]


def _next(given: Callable[[], bytes], size: int) -> bytes:
    """The bytes that were prepared; draws ask for them in order."""
    found = given()
    assert len(found) == size
    return found


@pytest.mark.parametrize("held", [0, 1, 2, 3])
def test_unrelated_records_without_drift_stay_unrelated_where_they_are_filled_up(held: int) -> None:
    """Exactly binomial, so the verdict needs to know nothing about sizes."""
    expected = stats.binom.pmf(np.arange(5), 4, 0.25)
    np.testing.assert_allclose(contributed(held, 4, (0.25, 0.75), repeats=False), expected)


def test_that_check_would_catch_records_that_are_repeated() -> None:
    for held in (1, 2):
        found = contributed(held, 4, (0.25, 0.75), repeats=True)
        assert np.abs(found - stats.binom.pmf(np.arange(5), 4, 0.25)).max() > 0.2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(EVERY), max_size=60), st.integers(1, 80), st.integers(0, 2**32))
def test_the_cell_and_all_views_of_a_record_stay_together(
    rows: list[tuple[str, str]], k: int, seed: int
) -> None:
    found = open_records(frame_of(rows)).count(TABLE, Draw(k, randomness=seeded(seed)))
    assert sums(found) == {k}
    assert_whole_records(found)


def test_drawn_records_are_told_apart() -> None:
    """Views of a pair would fit many draws: here the second column mirrors the first."""
    rows = [(A[i], B[i]) for i in range(5)] * 20
    found = open_records(frame_of(rows)).count(TABLE, Draw(30))
    table = found.views[2][:-1].reshape(len(A), len(B))
    assert table.trace() == 30


def test_files_frames_and_folders_draw_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the blocks that a file is read in, with the same random bytes."""
    monkeypatch.setattr(csv, "BLOCK", 50)
    rng = np.random.default_rng(3)
    rows = [EVERY[i] for i in rng.integers(0, len(EVERY), 300)]
    frame = frame_of(rows)
    frame.write_csv(tmp_path / "one.csv")
    frame.write_parquet(tmp_path / "one.parquet")
    (tmp_path / "folder").mkdir()
    frame[:120].write_csv(tmp_path / "folder" / "a.csv")
    frame[120:].write_parquet(tmp_path / "folder" / "b.parquet")
    for k in (1, 7, 299, 300, 301, 1000):
        expected = open_records(frame).count(TABLE, Draw(k, randomness=seeded(k)))
        sources: list[Any] = [tmp_path / name for name in ("one.csv", "one.parquet", "folder")]
        for source in [*sources, frame.to_arrow(), frame.to_pandas()]:
            found = open_records(source).count(TABLE, Draw(k, randomness=seeded(k)))
            assert all_counts(found) == all_counts(expected)
            assert sums(found) == {k}


def test_arrays_and_images_are_drawn_too() -> None:
    cells = Reference.from_counts([5, 5, 5])
    values: list[Any] = [[0, 1, 1, 9, None], np.array([0, 1, 1, 9, 7]), range(5)]
    for records in values:
        for k in (1, 3, 5, 12):
            found = open_records(records).count(cells, Draw(k))
            assert found.total == k
    white, black = np.full((28, 28), 255), np.zeros((28, 28))
    pictures = Reference.fit_images(np.stack([white, black]), code=BlockCode())
    found = open_records(np.stack([white] * 9)).count(pictures, Draw(4))
    assert found.counts.tolist() == [4, 0, 0]
    assert open_records(np.zeros((0, 28, 28))).count(pictures, Draw(4)).total == 4


def test_all_records_are_drawn_where_k_is_their_number() -> None:
    rows = EVERY[3:17]
    everything = open_records(frame_of(rows)).count(TABLE)
    found = open_records(frame_of(rows)).count(TABLE, Draw(len(rows)))
    assert all_counts(found) == all_counts(everything)


def test_one_of_one_record_is_that_record(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    for line in ("a1,b2", "a1,strange", "no,row,at all"):
        path.write_text(f"a,b\n{line}\n")
        records = open_records(path)
        found, all_ = records.count(TABLE, Draw(1)), records.count(TABLE)
        assert all_counts(found) == all_counts(all_)
        assert found.unreadable == all_.unreadable


def test_all_clients_files_are_drawn(tmp_path: Path) -> None:
    for number in range(3):
        frame_of(EVERY[: 10 * number]).write_csv(tmp_path / f"{number}.csv")
    files = {path.name: path for path in sorted(tmp_path.iterdir())}
    found = count_all(files, TABLE, draw=Draw(20))
    assert [sums(each) for each in found.values()] == [{20}] * 3
    away = count_all(files, TABLE, draw=Draw(20, empty="away"))  # 0, 10 and 20 records
    assert [sums(each) for each in away.values()] == [{0}, {20}, {20}]


def test_counts_are_drawn_like_records() -> None:
    counts, pi = np.array([3, 0, 100, 2]), Reference.from_counts([1, 1, 0])
    for k in (1, 50, 105):
        drawn = draw_counts(counts, pi, Draw(k))
        assert drawn.sum() == k
        assert (drawn <= counts).all()
    for empty in ("reference", "away"):
        drawn = draw_counts(counts, pi, Draw(240, empty))
        assert drawn.sum() == 240
        assert drawn[2:].tolist() == [100, 2]  # the reference has nothing there
        assert (drawn >= counts).all()
    assert draw_counts(counts, pi, Draw(105)).tolist() == counts.tolist()
    none = np.zeros(4, dtype=np.int64)
    assert draw_counts(none, pi, Draw(5, empty="away")).tolist() == [0, 0, 0, 0]
    drawn = draw_counts(none, pi, Draw(5))
    assert (drawn.sum(), drawn[2:].sum()) == (5, 0)


@pytest.mark.parametrize("k", [1, 3, 4, 9])
def test_a_period_is_drawn_from_its_own_records(tmp_path: Path, k: int) -> None:
    """A line that cannot be read belongs to the period whose time stands in it."""
    path = tmp_path / "data.csv"
    inside = ["a0,b0,2027-01-05"] * 3 + ["a0,b0,too much,2027-01-06"]
    path.write_text("\n".join(["a,b,at", *["a1,b1,2027-02-01"] * 50, *inside, "no,time,x,y", ""]))
    january = TimeSlice(
        "at", datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC), "UTC"
    )
    selected = FileRecords((path,), times=january)
    found = count_all({"one": selected}, TABLE, draw=Draw(k))["one"]
    assert sums(found) == {k}
    assert found.counts[0] + found.unreadable >= min(k, 4)  # the reference fills up the rest
    assert found.unreadable == 1 or k < 4
    late = replace(january, start=january.end, end=datetime(2027, 3, 1, tzinfo=UTC))
    selected = FileRecords((path,), times=late)
    assert count_all({"one": selected}, TABLE, draw=Draw(k))["one"].unreadable == 0


def test_randomness_is_the_systems_and_every_draw_is_another() -> None:
    frame = frame_of(EVERY)
    drawn = {tuple(open_records(frame).count(TABLE, Draw(10)).counts.tolist()) for _ in range(20)}
    assert len(drawn) > 17  # of (30 over 10): three repetitions happen once in 10^16 runs or so


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_a_whole_number_above_0(k: Any) -> None:
    with pytest.raises(InvalidInputError, match="records"):
        Draw(k)
    with pytest.raises(InvalidInputError, match="stays 'away'"):
        Draw(3, empty="other")  # type: ignore[arg-type]


# Uniform


def looks_uniform(subsets: Counter[tuple[int, ...]], possible: int) -> bool:
    """Whether all subsets are equally likely: chi-square, rejects fair draws at `FALSE_ALARM`."""
    seen = np.zeros(possible)
    seen[: len(subsets)] = list(subsets.values())
    return bool(stats.chisquare(seen).pvalue > FALSE_ALARM)


def drawn_in_parts(k: int, parts: tuple[int, ...], randomness: Randomness) -> Ints:
    """Which records are drawn, offered some at a time."""
    sample, start = Draw(k, randomness=randomness).sample(1), 0
    for number in parts:

        def read(places: Ints, start: int = start) -> Ints:
            return places[:, None] + start

        sample.offer(number, read)
        start += number
    return sample.drawn()[:, 0]


def subsets_drawn(
    k: int, parts: tuple[int, ...], randomness: Randomness, trials: int = 4000
) -> Counter[tuple[int, ...]]:
    """How often each set of records was drawn."""
    drawn = (drawn_in_parts(k, parts, randomness) for _ in range(trials))
    return Counter(tuple(sorted(each.tolist())) for each in drawn)


@pytest.mark.parametrize("parts", [(6,), (1, 0, 3, 2), (2, 4)])
def test_every_set_of_records_is_equally_likely(parts: tuple[int, ...]) -> None:
    subsets = subsets_drawn(3, parts, seeded(1))
    assert set(subsets) == set(combinations(range(6), 3))
    assert looks_uniform(subsets, 20)


def test_that_check_would_catch_a_late_record_that_is_drawn_a_little_more_often() -> None:
    """The keys of the second part are smaller by a quarter."""
    rng = np.random.default_rng(3)

    def randomness(size: int) -> bytes:
        keys = np.frombuffer(rng.bytes(size), dtype=np.uint64)
        return (keys // np.uint64(4) * np.uint64(3) if size == 8 * 4 else keys).tobytes()

    assert not looks_uniform(subsets_drawn(3, (2, 4), randomness), 20)


# A client without records


def test_a_client_without_records_draws_from_the_reference_or_stays_away(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("a,b\n")
    frame_of([]).write_parquet(tmp_path / "none.parquet")
    empty: list[Any] = [tmp_path / "none.csv", tmp_path / "none.parquet", frame_of([])]
    for source in empty:
        for reference in (TABLE, NO_JOINT):
            assert sums(open_records(source).count(reference, Draw(25))) == {25}
            away = open_records(source).count(reference, Draw(25, empty="away"))
            assert sums(away) == {0}
        assert_whole_records(open_records(source).count(TABLE, Draw(25)))
    assert open_records([]).count(Reference.from_counts([1, 1]), Draw(9)).total == 9


@pytest.mark.parametrize("reference", [TABLE, NO_JOINT, STRAY], ids=["joint", "views", "some"])
def test_draws_of_the_reference_follow_it_in_every_view(reference: Reference) -> None:
    k = 200_000
    counts, views = draw_reference(reference, k, seeded(5))
    laws = [reference.probabilities, *(view.probabilities for view in reference.views)]
    for drawn, law in zip([counts, *views], laws, strict=True):
        assert drawn.sum() == k
        assert not drawn[law == 0].any()
        for seen, chance in zip(drawn.tolist(), law.tolist(), strict=True):
            assert chance in (0, 1) or looks_as_frequent(seen, k, chance)


def test_strays_are_drawn_from_what_the_joint_cells_leave_of_a_view() -> None:
    """Half of the values lie in no joint cell, so the first column tells which half was drawn."""
    counts, views = draw_reference(STRAY, 1000, seeded(6))
    known, held = STRAY.views[0], TABLE.domain.codes[:15] // (len(B) + 1)
    in_cells = np.isin(known.domain.codes, held)
    assert views[0][:-1][in_cells].sum() == counts[:-1].sum()
    assert views[0][:-1][~in_cells].sum() == counts[-1]


def test_cells_without_mass_are_never_drawn() -> None:
    top = 2**64 - 1
    edges: Callable[[int], bytes] = lambda size: np.array(  # noqa: E731
        [0, top, top >> 1, (top >> 1) + 1] * (size // 32), dtype=np.uint64
    ).tobytes()
    pi = Reference(View(Domain(Indices(5), np.arange(5)), np.array([0, 0.1, 0, 0.1, 0, 0])))
    counts, views = draw_reference(pi, 400, edges)
    assert counts.tolist() == [0, 200, 0, 200, 0, 0]
    assert views == []


def test_a_view_of_strays_without_mass_is_other() -> None:
    """Masses that do not fit by a rounding error only: nothing is left for strays."""
    views = tuple(replace(view, mass=view.mass * (1 + 5e-10)) for view in TABLE.views)
    whole = replace(TABLE.whole, mass=np.append(np.ones(30), 1e-9))
    reference = Reference(whole, views)
    counts, found = draw_reference(reference, 100, lambda size: b"\xff" * size)
    assert counts[-1] == 100
    assert [int(view.sum()) for view in found] == [100] * 3


# Memory


MEASURE = """
import json, resource, sys
sys.modules |= dict.fromkeys(["pandas", "polars"])  # as if not installed
from pathlib import Path
from fedprikl.records import Draw, open_records
from fedprikl.reference import Reference
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = open_records(Path(sys.argv[2])).count(Reference.load(sys.argv[1]), Draw(int(sys.argv[3])))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([found.total, found.other, (after - before) / 1024]))
"""


@pytest.mark.parametrize("name", ["many.csv", "many.parquet"])
def test_a_million_rows_are_drawn_from_in_bounded_memory(tmp_path: Path, name: str) -> None:
    """60 MB of distinct texts and k = 20,000, within 200 MiB and no data-frame library."""
    rows = duckdb.connect().sql(
        "SELECT CASE WHEN i % 2 = 0 THEN 'red' ELSE repeat(md5(i::VARCHAR), 3) END AS city, "
        "(i % 100)::DOUBLE AS age FROM range(1000000) t(i)"
    )
    path = str(tmp_path / name)
    rows.write_csv(path) if name.endswith(".csv") else rows.write_parquet(path)
    public = pa.table({"city": ["red"] * 100, "age": [float(age) for age in range(100)]})
    Reference.fit(public).save(tmp_path / "ref.json")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "ref.json"), path, "20000"],
        capture_output=True,
        text=True,
        check=True,
    )
    total, other, mib = json.loads(done.stdout)
    assert total == 20_000
    assert looks_as_frequent(other, 20_000, 0.5)
    assert mib < 200
