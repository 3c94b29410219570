"""Plans and releases that somebody wrote by hand: what makes no sense is refused."""

from datetime import UTC, date, datetime

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.protocol import AskedView, Budget, Plan, Question
from fedprikl.protocol.series import series_until


def _plan(**changes: object) -> Plan:
    content: dict[str, object] = {
        "population": "p",
        "reference": 64 * "0",
        "budget": Budget(epsilon=1.0),
        "views": (AskedView(points=3),),
        "questions": (Question(),),
    }
    return Plan(**(content | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("less", [{"total_epsilon": 0.5}, {"total_delta": 1e-9}])
def test_all_releases_do_not_cost_less_than_one(less: dict[str, float]) -> None:
    document = _plan(budget=Budget(epsilon=1.0, releases=4, **less)).to_dict()
    with pytest.raises(InvalidInputError, match="smaller than that of one"):
        Plan.from_dict(document)


def test_counts_have_one_noise() -> None:
    asked = (
        Question(share=0.5, release="counts", noise="laplace"),
        Question(share=0.5, release="counts", noise="gaussian", divergence="tv"),
    )
    with pytest.raises(InvalidInputError, match="have one noise"):
        _plan(questions=asked)


def test_unknown_fields_cannot_steer_a_terminal_or_a_log() -> None:
    document = _plan().to_dict() | {"\x1b[2J\nfake line": 1}
    with pytest.raises(InvalidInputError, match="unknown fields") as refused:
        Plan.from_dict(document)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("count", "noise"),
    [
        (1e308, CountNoise(sd=3.0)),
        (5.0, CountNoise(sd=1e200)),
        (5.0, CountNoise(sd=-1.0)),
        (5.0, CountNoise(sd=1e-320, scale=1.5)),
        (5.0, CountNoise(sd=3.0, scale=1e300)),
    ],
)
def test_impossible_counts_are_refused(count: float, noise: CountNoise) -> None:
    with pytest.raises(InvalidInputError, match="damaged"):
        NoisyCounts.of([count, 1.0], [10], [noise])


def test_noise_may_vanish() -> None:
    assert NoisyCounts.of([5.0, 1.0], [6], [CountNoise(sd=0.0, scale=1e-9)]).counts == (5.0,)


@pytest.mark.parametrize("first", [None, date(9000, 1, 1)])
def test_the_calendar_ends(first: date | None) -> None:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    with pytest.raises(InvalidInputError, match="beyond the calendar"):
        series_until("quarter", date(9999, 12, 31), first=first, now=now)
