"""Monitored views and the counts of a period: from plans and releases."""

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.monitored_views import (
    MonitoredView,
    PeriodCounts,
    counts_of,
    monitored_views,
)
from fedprikl.monitoring.sequential import baseline_of
from fedprikl.protocol import Plan, Question
from fedprikl.reference import Reference
from tests.monitoring.series_worlds import MOVED, PI, drifting, view
from tests.plans import AskColumns, make_plan


def frame(rows: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {"plan": rng.choice(["basic", "plus"], rows), "site": rng.choice(list("xyz"), rows)}
    )


REFERENCE = Reference.fit(frame(3000, 0))


def plan(trust: str, *, release: str = "counts", design_effect: float | None = None) -> Plan:
    """Asks for noisy counts of the whole and of both columns."""
    return make_plan(
        population="shops",
        reference=REFERENCE.fingerprint,
        trust=trust,
        questions=(Question(share=0.5, release=release),),  # type: ignore[arg-type]
        columns=AskColumns(views=(("plan",), ("site",)), sizes=(2, 3), counts=0.5),
        design_effect=design_effect,
    )


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_counts_of_a_release(trust: str) -> None:
    """Every view has its cells, the rest, and the law of its noise."""
    asked = plan(trust)
    clients = {f"c{i}": frame(100, i) for i in range(1, 6)}
    release = fk.compare(REFERENCE, clients, asked, ledger=None).release
    found = counts_of(release, asked, REFERENCE, 3)
    views = monitored_views(asked, REFERENCE)
    assert [each.name for each in views] == ["", "plan", "site"]
    assert (found.number, found.records, found.clients) == (3, 500, 5)
    assert [len(each.counts) for each in found.views] == [len(c.points) for c in views]
    for each in found.views:
        (law,) = each.noise
        assert law.kind == "laplace"
        sums = law.variables
        assert sums == pytest.approx(1.0) if trust == "aggregator" else 1 < sums < 3
        assert abs(sum(each.numbers) - 500) < 60 * law.sd  # noise, not another count


def test_views_need_noisy_counts() -> None:
    """Released values cannot be summed over periods."""
    with pytest.raises(InvalidInputError, match="noisy counts"):
        monitored_views(plan("aggregator", release="value"), REFERENCE)


def test_a_design_effect_of_the_plan_is_that_of_one_period() -> None:
    """Var(h) = d N Pi for the records of one period; over more periods the deviation lasts."""
    whole = monitored_views(plan("none", design_effect=3.0), REFERENCE)[0]
    lasting = whole.lasting(1000, 7)[:-1]
    assert 1000 * whole.pi + 1000**2 * lasting == pytest.approx(3 * 1000 * whole.pi)
    spread = whole.spread_at(1000, 7)
    drawn = spread.between(np.array([1000])) * spread.of(whole.points.cells, whole.pi)
    assert drawn * whole.pi**2 == pytest.approx(lasting)


def test_lasting_deviations_follow_the_reference() -> None:
    """Of a counted Pi: Pi (1 - Pi) / N_reference, about."""
    counted = MonitoredView.of(Reference.from_counts(np.round(PI * 10_000).astype(int)))
    assert counted.lasting(500, 5)[:-1] == pytest.approx(PI / 10_000)
    assert not view().lasting(500, 5).any()


def test_a_baseline_has_the_shares_of_its_periods() -> None:
    """Within what its own error says."""
    periods = drifting(0, 8)
    (found,) = baseline_of([view()], periods)
    assert found.error is not None
    assert np.all(np.abs(found.pi / MOVED - 1) < 4.5 * np.sqrt(found.error[:-1]))
    (first,) = baseline_of([view()], periods[:1])
    assert first.error is not None
    assert np.all(first.error[:-1] > 5 * found.error[:-1])
    with pytest.raises(InvalidInputError, match="at least one"):
        baseline_of([view()], [])


def test_a_period_has_records() -> None:
    """An empty period is a missed one."""
    with pytest.raises(InvalidInputError, match="records"):
        PeriodCounts(number=0, records=0, clients=1, views=())
