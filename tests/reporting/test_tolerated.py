"""A difference that does not matter: pages say that there is one, and that it does not."""

from dataclasses import replace

from fedprikl.monitoring.status import headline
from fedprikl.reporting import release_page, release_words
from fedprikl.reporting.facts import release_headline
from fedprikl.reporting.series_page import period_page, series_page
from tests.monitoring.statuses import SCENES as SERIES
from tests.reporting.releases import PLAN, SCENES, tolerant

LITTLE = "by less than you said matters"


def test_a_release_says_both() -> None:
    found = tolerant()
    said = f"The 400 clients of aircraft differ from the reference, {LITTLE}."
    assert release_headline(found) == said
    words = release_words(found)
    assert "No drift found" not in words.splitlines()[0]
    assert words.count(f"differs, {LITTLE} (tv 0.12)") == 2
    assert words.count("not drifted") == 4
    whole = (
        "All columns together: differs, by less than you said matters (a total variation of 0.12)"
    )
    assert whole in words
    text = release_page(found, PLAN, {})
    assert f'<h1 class="calm">{said}</h1>' in text
    assert "smaller than what the plan says matters" in text


def test_what_is_tolerated_is_a_line_in_charts() -> None:
    words = "what does not matter, as the plan says"
    assert words in release_page(tolerant(), PLAN, {})
    assert words not in release_page(SCENES["two of six"], PLAN, {})
    assert words in series_page(SERIES["tolerated"])
    assert words not in series_page(SERIES["drift"])


def test_a_series_says_both() -> None:
    status = SERIES["tolerated"]
    assert status.outcome == "none found"
    assert headline(status) == "No drift that matters in 12 weeks."
    text = series_page(status)
    assert text.count(">tolerated<") == 2 + 2 * 6  # columns; weeks, in two tables
    assert "if the difference is also larger than what the plan tolerates" in text
    last = period_page(status, status.released[-1], SCENES["no drift"], PLAN)
    assert LITTLE in last
    assert ">tolerated<" in last


def test_drift_beyond_what_is_tolerated_is_said_to_matter() -> None:
    asked = "Whether it matters is yours to judge"
    assert asked in release_page(SCENES["two of six"], PLAN, {})
    found = tolerant()
    assert found.verdict is not None
    assert found.verdict.tolerance is not None
    more = replace(found.verdict.tolerance, value=0.3)
    text = release_page(replace(found, verdict=replace(found.verdict, tolerance=more)), PLAN, {})
    assert asked not in text
    assert "larger than what the plan says does not matter" in text
