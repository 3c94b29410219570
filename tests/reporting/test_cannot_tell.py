"""Where no drift could have been found, nobody reads "No drift found"."""

from dataclasses import replace

import pytest

from fedprikl.monitoring.alarms import FindableInSeries
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.monitoring.notifications import notifications
from fedprikl.monitoring.status import headline
from fedprikl.reporting import release_page, release_summary, release_words
from fedprikl.reporting.facts import column_rows, release_headline, series_lines
from fedprikl.reporting.series_page import period_page, series_page
from tests.monitoring.statuses import SCENES as SERIES
from tests.monitoring.statuses import gap
from tests.reporting.releases import PLAN, SCENES, blind, partly_blind

SAID = (
    "Cannot tell: with so few records and this epsilon only drifts above 0.62 (total variation) "
    "could be found"
)
HELPS = "Fewer columns, more records or a larger epsilon would help"


def test_a_release_says_it_first() -> None:
    words = release_words(blind())
    assert words.startswith(f"{SAID}.\n\n{HELPS}")
    assert "No drift" not in words
    assert "not drifted" not in words
    assert words.count("cannot tell (only above tv 0.72 could be found)") == 6  # in every row
    assert words.count("0.62") == 1
    assert "mostly noise" in words


def test_without_columns_too() -> None:
    found = blind(None, only_whole=True)
    said = "Cannot tell: with so few records and this epsilon no drift could be found."
    assert release_headline(found) == said
    assert release_words(found).count("Cannot tell") == 1
    assert found.drifted is None


def test_the_page_has_a_colour_of_its_own() -> None:
    text = release_page(blind(), PLAN, {})
    assert f'<h1 class="untold">{SAID}.</h1>' in text
    assert HELPS in text
    assert "No drift found" not in text
    assert "not drifted" not in text
    assert "var(--drifted, #cc6f1f)" not in text
    assert "var(--untold, #8a5fb0)" in text
    tones = {SCENES[name].outcome: release_page(SCENES[name], PLAN, {}) for name in SCENES}
    for outcome, tone in (("drift", "drift"), ("none found", "calm"), ("cannot tell", "untold")):
        assert f'<h1 class="{tone}">' in tones[outcome]  # type: ignore[index]


def test_a_notebook_has_it_too() -> None:
    borders = {name: release_summary(SCENES[name], PLAN) for name in SCENES}
    assert "solid #8a5fb0" in borders["cannot tell"]
    assert "solid #cc6f1f" in borders["two of six"]
    assert "solid #2e8b57" in borders["no drift"]
    assert SAID in borders["cannot tell"]


def test_one_column_of_which_it_cannot_be_told() -> None:
    found = partly_blind()
    assert release_headline(found).endswith("have not. Of origin it cannot be told.")
    (row,) = column_rows([found.columns[2]])
    assert row[-1] == "cannot tell (only above tv 0.72 could be found)"
    calm = SCENES["no drift"]
    mixed = replace(calm, columns=(found.columns[2], *calm.columns[3:]))
    said = "No drift found among the 400 clients of aircraft. Of origin it cannot be told."
    assert release_headline(mixed) == said


def test_the_whole_of_which_it_cannot_be_told() -> None:
    mixed = replace(SCENES["no drift"], verdict=blind().verdict)
    assert release_headline(mixed).startswith("No drift found among")
    assert f"All columns together: c{SAID[1:]}." in release_words(mixed)


@pytest.mark.parametrize("scene", ["two of six", "no drift", "cannot tell", "no party trusted"])
def test_one_number_for_one_thing(scene: str) -> None:
    """What is tested is another number than what is estimated, so only ratios of it are shown."""
    found = SCENES[scene]
    statistics = [*found.verdict.statistics] if found.verdict else []
    moved = replace(
        found,
        verdict=found.verdict
        and replace(
            found.verdict,
            statistics=tuple(
                replace(each, value=each.value * 1.0137, threshold=each.threshold * 1.0137)
                for each in statistics
            ),
        ),
    )
    page = release_page(moved, PLAN, {}) + release_words(moved)
    for each in moved.verdict.statistics if moved.verdict else ():
        for digits in (3, 4, 5):
            for number in (each.value, each.threshold):
                if number > 0.01:
                    assert f"{number:.{digits}g}" not in page


def test_a_series_says_it_first() -> None:
    status = SERIES["cannot tell"]
    said = f"{SAID} in 6 weeks."
    assert headline(status) == said
    assert status.outcome == "cannot tell"
    text = series_page(status)
    assert f'<h1 class="untold">{said}</h1>' in text
    assert "No drift" not in text
    assert "no drift<" not in text
    assert HELPS in text
    assert text.count(">cannot tell<") == 6  # beside every column
    assert next(iter(series_lines(status))).startswith(HELPS)
    release = replace(SCENES["no drift"], columns=())
    assert said in period_page(status, status.released[-1], release, PLAN)
    assert said not in period_page(SERIES["drift"], SERIES["drift"].released[-1], release, PLAN)


def test_a_series_without_faults_and_alarms_only() -> None:
    status = SERIES["cannot tell"]
    assert replace(status, faults=("damaged",)).outcome is None
    assert SERIES["empty"].outcome is None
    assert SERIES["drift"].outcome == "drift"
    assert SERIES["no drift"].outcome == "none found"
    assert headline(replace(status, alarms=SERIES["drift"].alarms)).startswith("Drift since")


def test_metrics_of_a_series() -> None:
    text = metrics_text([SERIES["cannot tell"]])
    assert 'fedprikl_series_can_tell{population="aircraft"} 0\n' in text
    assert 'fedprikl_series_findable{population="aircraft"} 0.624\n' in text
    assert 'fedprikl_series_can_tell{population="aircraft"} 1\n' in metrics_text([SERIES["drift"]])
    none = replace(SERIES["cannot tell"], findable=FindableInSeries(can_tell=False, findable=None))
    assert "series_findable" not in metrics_text([none])


def test_notifications_carry_it() -> None:
    status = SERIES["cannot tell"]
    missed = replace(status, points=(*status.points[:1], gap(status.points[1]), *status.points[2:]))
    (told,) = notifications(missed)
    assert told.headline.startswith("Cannot tell: ")


def test_ordinary_weeks_are_drift_or_are_not() -> None:
    without = "The reference has no times: ordinary differences between weeks count as drift."
    within = "Differences between weeks as large as those of the reference&#x27;s own are ordinary"
    assert without in series_page(SERIES["cannot tell"])
    assert within in series_page(SERIES["drift"])
    assert without not in series_page(SERIES["drift"])


def test_a_series_that_can_tell_says_how_small_a_drift_shows() -> None:
    said = (
        "By now, a lasting drift of total variation 0.0091 would have been found half of the time, "
        "if it were of the kind that shows best."
    )
    assert said in series_page(SERIES["no drift"])
    assert said in list(series_lines(SERIES["no drift"]))
    assert "half of the time" not in series_page(SERIES["cannot tell"])


def test_columns_of_a_series_of_which_it_cannot_be_told() -> None:
    found = FindableInSeries(can_tell=True, findable=0.1, untold=("month",))
    status = replace(SERIES["no drift"], findable=found)
    assert headline(status) == "No drift in 37 weeks."
    said = "Of month it cannot be told: too few records for the noise."
    assert said in list(series_lines(status))
    assert series_page(status).count(">cannot tell<") == 1
