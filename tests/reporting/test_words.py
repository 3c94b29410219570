"""What a release says in words: the headline, the columns, the terminal."""

from dataclasses import replace
from typing import Any

import pytest

from fedprikl.cli.release_output import print_release
from fedprikl.protocol import Outcome
from fedprikl.reporting import release_words
from fedprikl.reporting.facts import (
    HEAD,
    HIDES,
    above_chance,
    answer_words,
    beside,
    column_lines,
    columns_wide,
    date,
    drift_words,
    letters_wide,
    listed,
    privacy_sentences,
    release_headline,
    shortened,
    wrapped,
)
from tests.reporting.releases import PLAN, SCENES, column, forty, release, two_of_six

AB = ("a", "b", "c", "d")


def drifting(*names: str | tuple[str, ...], still: tuple[str, ...] = ()) -> Any:
    drifted = [column(name, AB, drift=0.1, seed=n) for n, name in enumerate(names)]
    return release([*drifted, *(column(name, AB) for name in still)])


@pytest.mark.parametrize(
    ("names", "still", "words"),
    [
        (("carrier",), ("origin",), "Carrier has drifted; origin has not."),
        (("carrier",), ("x", "y"), "Carrier has drifted; x and y have not."),
        (("dep_delay",), (), "dep_delay has drifted."),
        ((), ("carrier",), "No column has clearly drifted by itself."),
        ((("a", "b"),), ("a",), "The pair of a and b has drifted; a has not."),
        (("a",), tuple("bcdefgh"), "1 of 8 columns has drifted: a."),
    ],
)
def test_headlines(names: Any, still: Any, words: str) -> None:
    start = "The 400 clients of aircraft differ from the reference. "
    assert release_headline(drifting(*names, still=still)) == start + words


def test_a_whole_without_drift_does_not_contradict_its_columns() -> None:
    shown = drifting("carrier", still=("origin",))
    assert drift_words(shown).startswith("All columns together: drift found: ")
    assert shown.verdict is not None
    calm = tuple(replace(each, value=each.threshold / 2) for each in shown.verdict.statistics)
    said = drift_words(replace(shown, verdict=replace(shown.verdict, statistics=calm)))
    assert said.startswith("All columns together: no drift found: closest is ")
    assert said.endswith(HIDES)
    assert not drift_words(release(())).startswith("All columns")


def test_an_interval_above_no_drift_that_is_no_drift_is_explained() -> None:
    still = column("label", AB)
    size = still.answer("tv")
    assert size is not None
    assert not list(above_chance([replace(still, answers=(replace(size, no_drift=0.9),))]))
    clear = replace(size, value=0.014, interval=(0.011, 0.017), no_drift=0.006)
    shown = replace(still, answers=(clear,))
    (said,) = above_chance([shown])
    assert said.startswith("Label has not drifted although the interval is above")
    assert said in column_lines([shown])
    assert not list(above_chance([column("label", AB, drift=0.1)]))


def test_headlines_of_few_clients_and_of_columns_without_a_verdict() -> None:
    one = replace(release(()), cohorts=(Outcome(0, 1, 1),), population="Clients")
    assert release_headline(one) == "The 1 client differs from the reference."
    sites = replace(one, cohorts=(Outcome(0, 5, 5),), population="sites")
    assert release_headline(sites) == "The 5 sites differ from the reference."
    columns = two_of_six()
    some = release([columns[0], replace(columns[2], verdict=None)])
    assert release_headline(some).endswith(
        " Departure delay has drifted. Origin could not be judged."
    )


def test_many_drifted_columns_are_counted() -> None:
    said = release_headline(drifting(*(f"c{n}" for n in range(9))))
    assert "9 of 9 columns have drifted: " in said
    assert said.endswith(" and 4 more.")


def test_a_table_of_columns() -> None:
    head, first, second, third, *_, note = column_lines(two_of_six())
    assert head.split("  ")[0] == HEAD[0]
    assert first.split()[:2] == ["departure", "delay"]
    assert "0.080     0.008  0.071 to 0.089" in first
    assert "drifted: more in '30 to 60 min'" in first
    assert "; fewer in 'early or on time' and 'up to 15 min'; found by" in first
    assert second.startswith("carrier")
    assert third.endswith("  not drifted")
    assert note.startswith("tv: the share of all records")
    starts = {line.index(word) for line, word in ((first, "drifted:"), (third, "not drifted"))}
    assert len(starts) == 1  # columns stand below each other


def test_a_long_table_is_cut_but_not_where_columns_drifted() -> None:
    lines = column_lines(forty())
    assert len(lines) == 1 + 15 + 3
    assert lines[-3] == "and 25 more, none of which was found to have drifted"
    drifted = [column(f"c{n}", AB, drift=0.1, seed=n) for n in range(20)]
    assert len(column_lines(drifted)) == 1 + 20 + 1


def test_what_found_a_drift_stands_beside_its_threshold() -> None:
    """Not beside the total variation read off the counts, which is another number."""
    (shown, *_, still) = two_of_six()
    (tv,) = shown.statistics
    js = replace(tv, name="js", value=0.02, threshold=0.01, unit="nats")
    assert shown.verdict is not None
    other = replace(shown.verdict, statistics=(replace(tv, value=0.015), js))
    quiet = replace(shown, verdict=other)
    assert "; found by js (2 times its threshold)" in column_lines([quiet])[1]
    assert "; found by tv (3.8 times its threshold)" in column_lines([shown])[1]
    assert "found by" not in column_lines([still])[1]
    assert "threshold" not in column_lines([shown])[0]


def test_the_terminal_says_the_verdict_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_release(SCENES["two of six"], ("2 were late.",))
    said = capsys.readouterr().out
    shown = SCENES["two of six"]
    assert said == f"{release_words(shown, ('2 were late.',))}\n"
    parts = [release_headline(shown), column_lines(shown.columns)[0], drift_words(shown)]
    parts += [answer_words(answer, shown) for answer in shown.answers]
    places = [said.index(part) for part in (*parts, "2 were late.", "Protected: one")]
    assert places == sorted(places)
    assert places[0] == 0
    assert "= 0.047 nats, of which about 0.020 is what 40,295 records give" in said
    assert "(95% interval: 0.035 to 0.059), beside a threshold of 0.031." in said


def test_hostile_names_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_release(SCENES["hostile"])
    said = capsys.readouterr().out
    assert not {"\x1b", "\u202e"} & set(said)
    assert "[red]people[/red]" in said
    assert "[bold]y[/bold]" in said


def test_only_columns_were_asked(capsys: pytest.CaptureFixture[str]) -> None:
    print_release(SCENES["forty"])
    said = capsys.readouterr().out
    assert said.startswith("The 400 clients of aircraft differ from the reference. 3 of 40 columns")
    assert "no verdict" not in said


def test_texts_fit() -> None:
    for text in ("abc def ghi", "abcdefghijkl", "漢字漢字漢字", "  a b", "W" * 30, ""):
        for most in (3, 5, 8):
            assert columns_wide(shortened(text, most)) <= most
            lines = wrapped(text, most, measure=letters_wide)
            assert len(lines) <= 2
            assert all(letters_wide(line) <= most + 0.1 for line in lines)
    assert wrapped("abc def", 7) == ["abc def"]
    assert listed([]) == ""
    assert date("yesterday") == "yesterday"


def test_a_statistic_that_is_as_small_as_can_be_told_is_no_number() -> None:
    assert beside(-5.9978, 3.2) == "≤ -6 / 3.20"
    assert beside(-5.9978, None) == "≤ -6"
    assert beside(-5.9, 3.2) == "-5.90 / 3.20"


def test_one_process_that_plays_all_parties_has_read_the_records() -> None:
    found = release([column("carrier", AB)])
    (_, seen, _) = privacy_sentences(found, PLAN)
    assert "One process played all parties" in seen
    (_, seen, _) = privacy_sentences(found, PLAN.changed(aggregator=64 * "a"))
    assert "their sums were opened, by the aggregator" in seen
