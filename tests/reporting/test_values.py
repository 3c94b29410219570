"""Typical values and data quality: in words, beside the reference that they are about."""

import math
import re
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from fedprikl.monitoring.status import BudgetFacts
from fedprikl.protocol import Release
from fedprikl.reference import Reference
from fedprikl.reference.columns import Bins, Times
from fedprikl.reporting import ColumnValues, release_page, release_summary, spending_words
from fedprikl.reporting.values import Typical
from tests.reporting.releases import PLAN, RECORDS, column, release, with_values

SECOND = 10**6


@pytest.fixture(scope="module")
def scene() -> tuple[Release, Reference]:
    return with_values()


@pytest.fixture(scope="module")
def values(scene: tuple[Release, Reference]) -> ColumnValues:
    return ColumnValues(scene[0], PLAN, scene[1])


def test_columns_of_numbers_and_times_have_a_median(values: ColumnValues) -> None:
    assert list(values.typical) == ["delay", "distance", "day"]
    for found in values.typical.values():
        low, high = found.interval
        assert low <= found.now <= high
    before, now, between = values.typical["day"].texts
    assert all(re.fullmatch(r"2024-\d\d-\d\d", text) for text in (before, now))
    assert re.fullmatch(r"2024-\d\d-\d\d to 2024-\d\d-\d\d", between)


def test_the_median_before_is_that_of_the_reference() -> None:
    numbers = list(range(1, 101))
    reference = Reference.fit(pl.DataFrame({"age": numbers, "other": ["a", "b"] * 50}))
    (age, _) = reference.views
    scene = release([column(age.columns, age.labels)], reference=reference.fingerprint)
    found = ColumnValues(scene, PLAN, reference).typical["age"]
    assert found.before == np.quantile(numbers, 0.5, method="inverted_cdf") == 50


@pytest.mark.parametrize(
    ("bins", "now", "interval", "words"),
    [
        (Bins("a", (0.0, 8.0)), 3.0, (0.0, 8.0), "median 0, now 3 (95% interval: 0 to 8)"),
        (Bins("a", (0.0, 8.0)), math.inf, (8.0, math.inf), "now over 8 (95% interval: over 8)"),
        (Bins("a", (0.0, 8.0)), -math.inf, (-math.inf, 8.0), "now up to 0 (95% interval: up to 8)"),
        (Bins("a", (0.5, 8.0)), 3.14159, (0.5, 8.0), "now 3.1 (95% interval: 0.5 to 8)"),
        (Bins("a", (0.0, 0.02)), 0.0123, (-math.inf, math.inf), "now 0.012 (95% interval: any num"),
        (Times("t", (0, 3600 * SECOND)), 60.0 * SECOND, (0, 3600 * SECOND), "1970-01-01 00:01:00"),
    ],
)
def test_words(bins: Bins, now: float, interval: tuple[float, float], words: str) -> None:
    found = Typical(column=bins, before=bins.edges[0], now=now, interval=interval)
    assert words in found.words


def test_each_column_says_what_is_missing_new_or_outermost(values: ColumnValues) -> None:
    kinds = {(each.column, each.what.partition(":")[0]) for each in values.quality}
    assert ("delay", "missing") in kinds
    assert {("distance", "outermost"), ("distance", "new"), ("carrier", "new")} <= kinds
    assert ("distance", "missing") not in kinds  # the reference has none: they count as new
    whats = [each.what for each in values.quality if each.column == "distance"]
    assert "new: no number, or missing" in whats
    for each in values.quality:
        assert each.interval[0] <= each.now <= each.interval[1]
    changed = [bool(each.change) for each in values.quality]
    assert all(first >= second for first, second in pairwise(changed))


def test_new_values_are_those_of_the_noisy_count(values: ColumnValues) -> None:
    (new,) = [e for e in values.quality if (e.column, e.what[:3]) == ("carrier", "new")]
    assert new.before == 0
    assert new.now == pytest.approx(900 / RECORDS, abs=300 / RECORDS)
    assert new.interval[0] > 0


def test_without_its_reference_nothing_is_told(scene: tuple[Release, Reference]) -> None:
    found_release, reference = scene
    for other in (None, Reference.from_counts([3, 4])):
        found = ColumnValues(found_release, PLAN, other)
        lines = list(found.lines(found_release.columns))
        assert (found.typical, found.quality, lines) == ({}, [], [])
        assert "Data quality" not in release_page(found_release, PLAN, {}, reference=other)
    page = release_page(found_release, PLAN, {"budget": "1 + 1 = 2"}, reference=reference)
    for text in ("Typical values", "Data quality", "Budget: 1 + 1 = 2."):
        assert text in page
    assert "Typical values and data quality" in release_summary(found_release, PLAN, (), reference)


def test_the_terminal_and_the_page_say_the_same(
    values: ColumnValues, scene: tuple[Release, Reference]
) -> None:
    lines = "\n".join(values.lines(scene[0].columns))
    page = release_page(scene[0], PLAN, {}, reference=scene[1])
    for found in values.typical.values():
        assert found.words in lines
        assert all(text in page for text in found.texts)


@pytest.mark.parametrize("seed", range(20))
def test_a_budget_adds_up_as_it_is_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    epsilon = float(10 ** rng.uniform(-4, 2))
    spent = epsilon * rng.random()
    budget = BudgetFacts(epsilon=epsilon, delta=1e-6, spent=spent, left=epsilon - spent)
    words = spending_words(budget, spent * rng.random())
    pattern = r"this release (\S+) \+ before (\S+) = (\S+) of (\S+) .*; (\S+) is left"
    found = re.match(pattern, words)
    assert found, words
    added, before, total, whole, left = map(float, found.groups())
    assert added + before == pytest.approx(total, abs=epsilon * 1e-6)
    assert total + left == pytest.approx(whole, abs=epsilon * 1e-6)
    assert total == pytest.approx(spent, rel=0.01, abs=epsilon * 0.01)


def test_a_release_that_adds_less_than_it_is_alone_says_so() -> None:
    budget = BudgetFacts(epsilon=1.0, delta=1e-6, spent=0.744, left=0.256)
    assert "alone, this release is 0.449" in spending_words(budget, 0.449, 0.449)
    assert "alone" not in spending_words(budget, 0.444, 0.3)


def test_every_part_of_a_page_says_the_same_of_new_values(
    scene: tuple[Release, Reference], values: ColumnValues
) -> None:
    """The chart, data quality, and the table of all categories."""
    text = release_page(scene[0], PLAN, {}, reference=scene[1])
    (carrier,) = (each for each in scene[0].columns if each.name == "carrier")
    found = values.new(carrier)
    assert found is not None
    assert found.now > 0.01
    _, what, before, now, between, change = found.row
    assert f">{what}</text>" in text
    assert f"other: {what}" not in text
    assert "not in the reference&#x27;s list" not in text
    count = f"{carrier.counts.out_of_domain[0]:,.0f}"
    row = "".join(f"<td>{each}</td>" for each in (before, now, between, count, change))
    assert f'<th scope="row">{what}</th>{row}' in text
    plain = re.sub(' data-name="[^"]*"', "", text)
    assert f"<td>{what}</td><td>{before}</td><td>{now}</td><td>{between}</td>" in plain
