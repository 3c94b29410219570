"""Windows: sums of noisy counts, read like one longer period."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.estimation import CountedView, answers_from_counts, sum_counts
from fedprikl.monitoring import periods as findings
from fedprikl.monitoring.history import History
from fedprikl.monitoring.monitored_views import MonitoredView, counts_of, monitored_views
from fedprikl.monitoring.periods import sizes_of, window_values
from fedprikl.privacy import laplace_variance
from fedprikl.reference import Reference
from tests.monitoring.series_worlds import MOVED, PI, SCALE, drifting, view
from tests.monitoring.small_series import NAMES, WEEKS, over


def test_sums_are_those_of_one_longer_period() -> None:
    """Counts, records and the variance of the noise add up; so do its Laplace variables."""
    periods = drifting(2, 2)
    both = sum_counts([period.views[0] for period in periods])
    assert both.numbers == tuple(np.sum([each.views[0].numbers for each in periods], axis=0))
    assert both.records == (8000,)
    (noise,) = both.noise
    assert noise.sd**2 == pytest.approx(4 * laplace_variance(SCALE))
    assert noise.variables == pytest.approx(4.0)
    many = sum_counts([period.views[0] for period in drifting(13, 0)])
    assert many.noise[0].kind == "gaussian"


def test_windows_show_the_size_of_the_drift() -> None:
    """The last 4 periods have drifted, so the last 8 have by half. Longer ones do not exist."""
    periods = drifting(4, 4)
    whole = MonitoredView.of(Reference.from_probabilities(PI))
    short, long = window_values([whole], periods, lengths=(4, 8, 52))
    assert (short.first, short.last, short.records) == (4, 7, 8000)
    assert (long.first, long.length, long.name) == (0, 8, "")
    truth = float(np.sum(PI * np.log(PI / MOVED)))
    kl, tv, js = short.sizes
    assert [kl.divergence, tv.divergence, js.divergence] == ["kl", "tv", "js"]
    assert abs(kl.value - truth) < truth / 3
    assert kl.interval is not None
    assert kl.interval[0] < kl.value < kl.interval[1]
    assert kl.value > 2 * long.sizes[0].value
    assert kl.no_drift is not None
    assert kl.no_drift < kl.value / 5
    assert abs(tv.value - 0.05) < 0.02
    assert 0 < js.value < kl.value


def test_a_window_of_one_period_is_that_period() -> None:
    """The same numbers as a release of it alone."""
    periods = drifting(1, 0)
    (found,) = window_values([view()], periods, lengths=(1,))
    one = periods[0].views[0]
    counted = CountedView(view().points, one, view().spread_at(2000, 20))
    direct = answers_from_counts(counted, view().scores, mechanism="")
    assert [size.value for size in found.sizes] == [size.value for size in direct]


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_sizes_of_a_period_are_those_of_its_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ids: bool, unit: Any
) -> None:
    """They are computed once, and anybody who computes them again finds the same."""
    rng = np.random.default_rng(3)
    held = {name: rng.choice(list("abc"), 400) for name in ("plan", "place")}
    public = pl.DataFrame({"id": rng.integers(40, size=400)} | held)
    reference = fk.Reference.fit(public if ids else public.drop("id"), client="id" if ids else None)
    planned = fk.plan(reference, clients=3, records=60, epsilon=2, series=WEEKS, unit=unit).plan
    for name in NAMES:
        rows = [f"2027-01-05,{each},b" for each in rng.choice(list("abc"), 20)]
        (folder / "clients").mkdir(exist_ok=True)
        (folder / "clients" / name).write_text("\n".join(["day,plan,place", *rows, ""]))
    history, settings = folder / "history.db", {"largest_epsilon": 50.0, "largest_delta": 1e-3}
    files: dict[str, Any] = {"ledger": folder / "ledger.db", "key": folder / "key.pem"}
    computed: list[str] = []

    def sizes(view: MonitoredView, *of: Any) -> Any:
        computed.append(view.name)
        return sizes_of(view, *of)

    monkeypatch.setattr(findings, "sizes_of", sizes)
    files |= {"history": history, "at": over(0)} | settings
    status = fk.monitor(reference, folder / "clients", planned, **files)
    assert set(computed) <= {""}  # of the whole a release does not say what no drift gives
    watched = monitored_views(planned, reference)
    with History.open(history, create=False) as opened:
        period = counts_of(opened.releases()[0], planned, reference, 0)
    assert status.points[0].columns
    for column in status.points[0].columns:
        (place,) = (n for n, each in enumerate(watched) if each.name == column.name)
        assert column.sizes == sizes_of(watched[place], [period], place)
