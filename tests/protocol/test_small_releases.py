"""Nothing that is printed lies outside of what is possible, or outside of its interval."""

import math
from collections import Counter
from collections.abc import Iterable

import pytest

from fedprikl.protocol import Release
from tests.protocol.small_releases import SmallRelease, small_release

pytestmark = pytest.mark.slow

LARGEST = {"tv": 1.0, "js": math.log(2), "kl": math.log(100), "out_of_domain": 1.0}


def check_statistics(release: Release) -> None:
    for verdict in release.verdicts:
        for each in verdict.statistics:
            largest = LARGEST.get(each.name, math.inf)
            assert each.threshold < largest
            assert each.value <= largest
            assert each.value >= 0 or each.name == "counts"
        if verdict.findable is not None:
            assert 0 < verdict.findable <= 1


def check_answers(release: Release) -> None:
    of_columns = (answer for column in release.columns for answer in column.answers)
    for answer in (*release.answers, *of_columns):
        largest = LARGEST[answer.divergence]
        assert 0 <= answer.value <= largest
        assert answer.interval is not None
        for limits in filter(None, (answer.interval, answer.guaranteed)):
            assert 0 <= limits[0] <= answer.value <= limits[1] <= largest
        assert answer.no_drift is not None
        assert 0 <= answer.no_drift <= largest
    for column in release.columns:
        for cell in column.cells:
            assert 0 <= cell.interval[0] <= cell.share <= cell.interval[1] <= 1


def check(found: Iterable[SmallRelease]) -> Counter[str | None]:
    outcomes = Counter[str | None]()
    for each in found:
        assert each.release.is_about(each.plan)
        assert Release.from_bytes(each.release.to_bytes()) == each.release
        assert len(each.release.verdicts) == 1 + len(each.release.columns)
        check_statistics(each.release)
        check_answers(each.release)
        outcomes[each.release.outcome] += 1
    return outcomes


def test_numbers_of_random_small_releases_are_possible() -> None:
    assert min(check(map(small_release, range(20))).values()) > 1  # all outcomes occur


@pytest.mark.validation
def test_the_same_of_ten_thousand() -> None:
    assert len(check(map(small_release, range(1_000, 11_000)))) == 3
