"""Every fact in words, once: the pages, a notebook and the terminal show the same sentences.

First names and numbers, then one answer, a release, and a series.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from fedprikl.documents import clean
from fedprikl.estimation import JudgedStatistic, Verdict
from fedprikl.estimation.statistic import OUT_OF_DOMAIN
from fedprikl.monitoring.alarms import QUIET, Alarm, JudgedView
from fedprikl.monitoring.status import (
    NO_REASON,
    BudgetFacts,
    PeriodPoint,
    SeriesStatus,
    alarm_words,
    counted,
    day,
    missed_words,
    period_name,
)
from fedprikl.protocol import Answer, Plan, Release
from fedprikl.protocol.client import NO_ROOM
from fedprikl.protocol.release import CellAnswer, ColumnAnswer

FAR_BELOW = -6.0  # statistics that are less rare are not told apart
WIDE = "FW"  # East Asian widths: such a character takes two columns
Measure = Callable[[str], float]


def columns_wide(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> columns_wide("ab"), columns_wide("\u6f22\u5b57")
    (2, 4)
    """
    return sum(2 if unicodedata.east_asian_width(each) in WIDE else 1 for each in text)


def letters_wide(text: str) -> float:
    """About how many average letters of a proportional font the text takes, rounded up.

    >>> letters_wide("nnn"), letters_wide("WW")
    (3.0, 3.2)
    """
    return sum(_letter(each) for each in text)


def _letter(each: str) -> float:
    if each in "mwMW@%…" or unicodedata.east_asian_width(each) in "FWN":
        return 1.6 if each.isascii() or each == "…" else 2.0
    return 1.2 if each.isupper() or not each.isascii() else 1.0


def shortened(text: str, most: int, *, measure: Measure = columns_wide) -> str:
    """The text in at most so many columns, with an ellipsis where something is left out.

    >>> shortened("departure", 20), shortened("departure", 6)
    ('departure', 'depar…')
    """
    if measure(text) <= most:
        return text
    taken, kept = measure("…"), 0
    while (taken := taken + measure(text[kept])) <= most:
        kept += 1
    return f"{text[:kept].rstrip()}…"


def wrapped(text: str, most: int, lines: int = 2, *, measure: Measure = columns_wide) -> list[str]:
    """The text in at most so many lines, broken between words where that is possible.

    >>> wrapped("minutes of delay at departure", 18)
    ['minutes of delay', 'at departure']
    """
    if lines == 1 or measure(text) <= most:
        return [shortened(text, most, measure=measure)]
    head = shortened(text, most, measure=measure)[:-1]
    broken = head[: head.rfind(" ")] if " " in head[1:] and text[len(head)] != " " else head
    return [broken, *wrapped(text[len(broken) :].lstrip(), most, lines - 1, measure=measure)]


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """The text with spaces, so that it takes so many columns."""
    spaces = " " * (columns - columns_wide(text))
    return spaces + text if right else text + spaces


def listed(texts: Sequence[str], most: int = 5) -> str:
    """The texts as people list them; beyond `most`, how many more there are.

    >>> listed(["age", "plan", "city"]), listed(["a", "b", "c", "d"], most=2)
    ('age, plan and city', 'a, b and 2 more')
    """
    shown = list(texts[:most])
    if len(texts) > most:
        shown.append(f"{len(texts) - most:,} more")
    *first, last = shown or [""]
    return f"{', '.join(first)} and {last}" if first else last


def decimals(width: float) -> int:
    """Digits after the point that tell the two ends of an interval apart: at least 3.

    >>> decimals(0.2), decimals(0.0004)
    (3, 5)
    """
    if not 0 < width < math.inf:
        return 3
    return min(max(3, 1 - math.floor(math.log10(width))), 12)


def number(value: float, digits: int) -> str:
    """A value with so many digits after the point."""
    return f"{value:.{digits}f}" if abs(value) < 1e9 else f"{value:.6g}"


def percent(share: float) -> str:
    """A share of 1 in percent, with digits that small shares need.

    >>> percent(0.1234), percent(0.00123), percent(0)
    ('12.3%', '0.12%', '0.0%')
    """
    if abs(share) > 100:  # no share at all
        return f"{100 * share:.3g}%"
    return f"{100 * share:.{2 if 5e-5 <= abs(share) < 0.01 else 1}f}%"


def date(at: str) -> str:
    """A time of ISO 8601 as people write it; anything else as it is.

    >>> date("2030-01-31T12:00:00+00:00")
    '31 January 2030, 12:00 UTC'
    """
    return day(at, "%B %Y, %H:%M %Z").rstrip()


UNKNOWN = "-"
TITLES = {
    "kl": "Kullback-Leibler divergence",
    "reverse_kl": "Reverse Kullback-Leibler divergence",
    "js": "Jensen-Shannon divergence",
    "psi": "Population stability index",
    "tv": "Total variation",
    "hellinger": "Hellinger distance, squared",
}


def divergence_title(name: str) -> str:
    """What people call a divergence, and its name here.

    >>> divergence_title("tv"), divergence_title("mine")
    ('Total variation (tv)', 'Divergence (mine)')
    """
    return f"{TITLES.get(name, 'Divergence')} ({name})"


def named(answers: Sequence[Answer], divergence: str) -> Answer | None:
    """The answer in this divergence."""
    return next((answer for answer in answers if answer.divergence == divergence), None)


def plainest_first(answers: Sequence[Answer]) -> list[Answer]:
    """Total variation comes first: it is a share of all records."""
    return sorted(answers, key=lambda answer: answer.divergence != "tv")


def digits_of(answer: Answer) -> int:
    """Digits after the point that its interval deserves."""
    return decimals(0.0 if answer.interval is None else answer.interval[1] - answer.interval[0])


def in_unit(value: float, answer: Answer) -> str:
    """A value on the scale of an answer, with its unit."""
    return f"{number(value, digits_of(answer))} {clean(answer.unit)}".rstrip()


def between(interval: tuple[float, float] | None, digits: int) -> str:
    """Both ends of an interval."""
    return UNKNOWN if interval is None else " to ".join(number(end, digits) for end in interval)


def size_words(answer: Answer) -> str:
    """A value with its unit and interval: "0.047 nats (0.035 to 0.059)"."""
    value = in_unit(answer.value, answer)
    if answer.interval is None:
        return value
    return f"{value} ({between(answer.interval, digits_of(answer))})"


WHO = ("client", "site")  # a population of that name is all of them
FEW = 6  # columns: all are named
NAMED = 5  # of many columns
NAME = 48  # letters of a name in a sentence
HEAD = ("column", "tv", "no drift", "95% interval", "drifted")
SHOWN = 15  # columns in a table of text; those that have drifted are always shown
CLEARLY = 4.0  # standard deviations of the noise: an out-of-domain count beyond them is shown
COLUMN_NAME, CELL, CELLS = 32, 28, 3  # letters of names; cells that are named
NEW = "new values, which the reference does not have"
NOTE = (
    "tv: the share of all records that would have to change to look like the reference, from all "
    "that was released; no drift: the tv to expect without any drift. The verdict rests on other "
    "numbers, each beside its threshold"
)
RANKING = (
    "How far each column is from the reference: the share of all records that would have to change "
    "to look like it (total variation, tv; 0 is none, 1 is all). Chance keeps it above 0 without "
    "any drift: the solid line is what to expect. It lies far out where the records of a client "
    "are alike, so that a long bar need not be drift.\n"
    "The thin bar is what the verdict rests on: the column's largest statistic, in proportion to "
    "its threshold. The threshold is the dashed line, and chance rarely exceeds it. The numbers "
    "below the chart are for the thick bars only. A thin bar with a gap is over twice its "
    "threshold."
)
SCALES = (
    "Each scale measures the same difference in its own way: 0 is no difference. Compare the first "
    "bar with the others. The whisker is its 95% interval."
)
TOGETHER = "fedprikl monitor judges all periods of the series together"
UNTOLD = (
    "These records cannot show whether they look like the reference: they are too few for this "
    "much noise. Nothing follows for or against a drift."
)
LITTLE = "by less than you said matters"
NOISY = "The numbers that follow are mostly noise: look at their intervals."
HELPS = "Fewer columns, more records or a larger epsilon would help; a new plan says how much."
HIDES = " The drift of a single column can be too small to show in the combinations of all of them."
ABOVE_CHANCE = (
    "{0} {1} not drifted although the interval is above no drift, which is an average that chance "
    "often exceeds. Chance rarely exceeds a threshold: the closest statistic is {2} times its own."
)
UNRELATED = (
    "The false-alarm rate over columns holds if records of one client are unrelated: "
    "without client ids, the intra-client correlation is not known."
)
SEEN = {
    "aggregator": "No client's own counts were seen by anybody: they were masked and only their "
    "sums were opened, by the aggregator, which added the noise.",
    "none": "Nobody saw exact numbers, not even sums: every client added noise before its masked "
    "counts left it.",
    "servers": "No single server saw exact numbers, not even sums: each of three held a share that "
    "alone says nothing, and noise was added before anything was opened.",
}
SEEN_ALONE = (
    "One process played all parties, so it read the records of every client. They are hidden from "
    "those who get the release: every number in it that depends on their values has noise."
)
LEFT = {
    "record": "All records of one client together are hidden less. Not hidden: the number of "
    "records, and who took part.",
    "client": "Not hidden: who took part.",
}
HIDDEN = {
    "record": "Every single record is hidden by random noise: had any one record been another",
    "client": "Every client is hidden by random noise, with all the records it holds: had all of "
    "one client's records been others",
}


def release_words(release: Release, absent: Iterable[str] = (), values: Iterable[str] = ()) -> str:
    """All that a terminal shows of a release: the headline is the first line.

    `absent` are lines about clients that took no part, and `values` those about values of columns.
    """
    parts = (
        release_headline(release),
        HELPS if release.outcome == "cannot tell" else "",
        "\n".join(column_lines(release.columns)),
        "\n".join(values),
        verdict_in_numbers(release),
        counted_words(release, absent),
        str(release.privacy),
    )
    return "\n\n".join(filter(None, parts))


def release_headline(release: Release) -> str:
    """The verdict: who differs from the reference, and which columns have drifted."""
    count = included(release)
    name = release.population.lower().removesuffix("s")
    whom = f"the {counted(count, name if name in WHO else 'client')}"
    if name not in WHO:
        whom += f" of {shortened(clean(release.population), NAME)}"
    if release.outcome is None and release.period is not None:
        return f"One period of {whom} is not judged by itself: {TOGETHER}."
    if release.outcome is None:
        return f"There is no verdict on {whom}: it could not be computed."
    if release.outcome == "cannot tell":
        return f"{min(release.verdicts, key=_least)}."
    if release.outcome == "none found":
        untold = _untold(release.columns)
        if any(map(is_tolerated, release.verdicts)):
            differ = "differs" if count == 1 else "differ"
            return f"{_capital(whom)} {differ} from the reference, {LITTLE}.{untold}"
        return f"No drift found among {whom}.{untold}"
    differ = f"{_capital(whom)} {'differs' if count == 1 else 'differ'} from the reference."
    return f"{differ} {_drifted(release.columns)}" if release.columns else differ


def is_tolerated(verdict: Verdict | None) -> bool:
    """Whether a population differs by no more than the plan tolerates."""
    return verdict is not None and verdict.differs and not verdict.drifted


def _least(verdict: Verdict) -> float:
    """The smallest drift that it could have found."""
    return math.inf if verdict.findable is None else verdict.findable


def included(release: Release) -> int:
    """How many clients were counted."""
    return sum(cohort.included for cohort in release.cohorts)


def invited(release: Release) -> int:
    """How many clients were asked."""
    return sum(cohort.clients for cohort in release.cohorts)


def _drifted(columns: Sequence[ColumnAnswer]) -> str:
    drifted = [_name(each) for each in ranked(columns) if each.drifted]
    others = [_name(each) for each in columns if each.drifted is False]
    untold = _untold(columns)
    if not drifted:
        return f"No column has clearly drifted by itself.{untold}"
    have = "has" if len(drifted) == 1 else "have"
    if len(columns) > FEW:
        of = f"{len(drifted)} of {len(columns)} columns"
        return f"{of} {have} drifted: {listed(drifted, NAMED)}.{untold}"
    still = f"; {listed(others, FEW)} {'has' if len(others) == 1 else 'have'} not" if others else ""
    return f"{_capital(listed(drifted, FEW))} {have} drifted{still}.{untold}"


def _untold(columns: Sequence[ColumnAnswer]) -> str:
    """Which columns have no verdict, or one that could not have found anything."""
    unknown = [_name(each) for each in columns if each.outcome is None]
    blind = [_name(each) for each in columns if each.outcome == "cannot tell"]
    words = f" {_capital(listed(unknown))} could not be judged." if unknown else ""
    return words + (f" Of {listed(blind)} it cannot be told." if blind else "")


def _name(column: ColumnAnswer) -> str:
    name = shortened(clean(column.name), NAME)
    return name if len(column.columns) == 1 else f"the pair of {name}"


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    """A sentence begins with a capital, unless its first word is no plain word, as dep_delay."""
    first = text.split(" ")[0].rstrip(",")
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def meaning(release: Release) -> str:
    """What the verdict means, and what it does not."""
    what = "The reference is what the records were expected to look like."
    if release.outcome is None:
        return f"{what} Nothing follows for or against a drift; the numbers below still hold."
    if release.outcome == "cannot tell":
        return f"{what} {UNTOLD} {HELPS}"
    if release.drifted:
        found = "The difference is larger than chance and the added noise explain"
        if any(each.drifted and each.tolerance is not None for each in release.verdicts):
            return f"{what} {found}, and larger than what the plan says does not matter."
        return f"{what} {found}. Whether it matters is yours to judge: see how large it is."
    if any(map(is_tolerated, release.verdicts)):
        return (
            f"{what} There is a difference that chance and the added noise do not explain, and it "
            "is smaller than what the plan says matters."
        )
    least = "A drift that is smaller than the thresholds may still be there."
    if release.findable is not None:
        least = (
            "A smaller drift may still be there: with a total variation below "
            f"{release.findable:.2g}, none is found half of the time."
        )
    return (
        f"{what} These records look like it, as far as {release.records:,} records and the added "
        f"noise can tell. {least}"
    )


def verdict_in_numbers(release: Release) -> str:
    """The verdict on the whole and a sentence for each answer, in lines."""
    sentences = [answer_words(answer, release) for answer in release.answers]
    return "\n".join(filter(None, [drift_words(release), *sentences]))


def drift_words(release: Release) -> str:
    """The verdict on the whole, in numbers; empty where only columns were asked."""
    verdict = release.verdict
    if release.outcome == "cannot tell":  # the headline says it, of all verdicts
        return NOISY
    if verdict is not None and release.columns:
        hidden = release.drifted and verdict.outcome == "none found"
        return f"All columns together: {_small(str(verdict))}.{HIDES if hidden else ''}"
    if verdict is not None:
        return f"{verdict}."
    if release.period is not None:
        return ""
    if release.answers:
        return "There is no verdict on the whole: it could not be computed for this release."
    return ""


def statistic_of(answer: Answer, release: Release) -> JudgedStatistic | None:
    """The statistic whose value is the answer's; None where the verdict rests on other numbers.

    An answer is the best estimate from all that was released. Only beside its own threshold does a
    number mean anything.
    """
    verdict = release.verdict
    found = None if verdict is None else verdict.statistic(answer.divergence)
    if found is None or not math.isclose(found.value, answer.value, rel_tol=1e-9, abs_tol=1e-12):
        return None
    return found


def answer_words(answer: Answer, release: Release) -> str:
    """How far the records differ, how much of it is chance, and where drift begins."""
    digits = digits_of(answer)
    interval = ""
    if answer.interval is not None:
        guarantee = _guarantee(answer, digits)
        interval = f" (95% interval: {between(answer.interval, digits)}{guarantee})"
    tested = statistic_of(answer, release)
    limit = f", beside a threshold of {number(tested.threshold, digits)}" if tested else ""
    return (
        f"The records of {release.population} differ from the reference by "
        f"{answer.target} = {in_unit(answer.value, answer)}"
        f"{_by_chance(answer, release.records, digits)}{interval}{limit}."
    )


def _guarantee(answer: Answer, digits: int) -> str:
    """Which interval holds for every population; the other one was tried on many kinds of drift."""
    if answer.guaranteed is None:
        return ""
    if answer.guaranteed == answer.interval:
        return ", guaranteed"
    return f"; guaranteed: {between(answer.guaranteed, digits)}"


def _by_chance(answer: Answer, records: int, digits: int) -> str:
    """The part of the value that so many records have without any drift, because they are few."""
    if answer.no_drift is None:
        return ""
    chance, many = number(answer.no_drift, digits), f"{records:,} records"
    if 0 <= answer.no_drift < answer.value:
        return f", of which about {chance} is what {many} give without any drift"
    return f"; {many} give about {chance} without any drift"


def counted_words(release: Release, absent: Iterable[str] = ()) -> str:
    """How many clients the answers are about, and who is missing, in lines."""
    lines = [f"Counted: {included(release):,} of {invited(release):,} clients."]
    reasons = Counter(cohort.reason for cohort in release.cohorts if cohort.reason)
    for reason, sums in reasons.items():
        what = f"{counted(sums, 'secure sum')} {'was' if sums == 1 else 'were'}"
        lines.append(f"{what} dropped: {reason}")
    return "\n".join([*lines, *absent])


def absences(reasons: Iterable[str], most_records: int) -> tuple[str, ...]:
    """Why clients took no part, each reason once. The reasons are what they told everybody."""
    room = (
        "the plan has no room for as many records as they hold "
        f"(most_records {most_records}; plan with a larger --most-records)"
    )
    return tuple(
        f"{clients:,} took no part: {room if reason == NO_ROOM else reason}."
        for reason, clients in Counter(reasons).most_common()
    )


def ranked(columns: Sequence[ColumnAnswer]) -> list[ColumnAnswer]:
    """Columns that have drifted first, and the largest total variation first."""

    def place(column: ColumnAnswer) -> tuple[bool, float]:
        answer = column.answer("tv")
        return not column.drifted, 0.0 if answer is None else -answer.value

    return sorted(columns, key=place)


def column_rows(columns: Sequence[ColumnAnswer]) -> list[tuple[str, ...]]:
    """A row of `HEAD` for each column, with digits that suit the widest interval among them."""
    sizes = [column.answer("tv") for column in columns]
    ends = [each.interval for each in sizes if each is not None and each.interval is not None]
    digits = decimals(max((high - low for low, high in ends), default=0.0))
    rows = []
    for column, size in zip(columns, sizes, strict=True):
        numbers = [UNKNOWN] * 3
        if size is not None:
            chance = UNKNOWN if size.no_drift is None else number(size.no_drift, digits)
            numbers = [number(size.value, digits), chance, between(size.interval, digits)]
        rows.append((clean(column.name), *numbers, _verdict(column)))
    return rows


def _verdict(column: ColumnAnswer) -> str:
    """Whether it has drifted, in which cells, and by which statistics above their thresholds."""
    if column.outcome == "cannot tell":
        least = "no drift" if column.findable is None else f"only above tv {column.findable:.2g}"
        return f"cannot tell ({least} could be found)"
    verdict = column.verdict
    if is_tolerated(verdict) and verdict is not None and verdict.tolerance is not None:
        return f"differs, {LITTLE} (tv {verdict.tolerance.tolerated:g})"
    if not column.drifted:
        return "not judged" if column.outcome is None else "not drifted"
    clearest = sorted((s for s in column.statistics if s.exceeds), key=lambda s: -s.ratio)
    found_by = listed([clean(each.words) for each in clearest], most=1)
    where = shifts(column)
    return f"drifted{f': {where}' if where else ''}; found by {found_by}"


def shifts(column: ColumnAnswer) -> str:
    """Which cells have more records than in the reference, and which fewer; the largest first.

    And whether values are new to the reference.
    """
    parts = []
    for direction, word in (("up", "more"), ("down", "fewer")):
        cells = [cell for cell in column.cells if cell.shifted == direction]
        if cells:
            cells.sort(key=difference, reverse=True)
            names = [_quoted(shortened(clean(cell.label), CELL)) for cell in cells]
            parts.append(f"{word} in {listed(names, CELLS)}")
    if any(each.exceeds for each in column.statistics if each.name == OUT_OF_DOMAIN):
        parts.append(NEW)
    return "; ".join(parts)


def _quoted(label: str) -> str:
    """The name of a cell in a sentence: several words, as of a bin, stand in quotes.

    >>> _quoted("plus"), _quoted("over 56")
    ('plus', "'over 56'")
    """
    return f"'{label}'" if " " in label else label


def difference(cell: CellAnswer) -> float:
    """How far a cell's share is from the reference."""
    return abs(cell.share - cell.reference)


def outside(column: ColumnAnswer, records: int) -> tuple[float, float]:
    """The share of records in none of its cells: of the reference, and now, with the noise."""
    before = max(0.0, 1 - sum(cell.reference for cell in column.cells))
    return before, max(0.0, column.counts.out_of_domain[0] / max(records, 1))


def shows_new(column: ColumnAnswer, records: int) -> bool:
    """Whether records in none of its cells are more than noise, before or now."""
    return max(outside(column, records)) * records > CLEARLY * column.counts.noise[0].sd


def column_lines(columns: Sequence[ColumnAnswer]) -> tuple[str, ...]:
    """A table in lines of text; beyond `SHOWN` columns, those that have not drifted are left out.

    >>> column_lines(())
    ()
    """
    if not columns:
        return ()
    order = ranked(columns)
    shown = order[: max(SHOWN, sum(1 for column in order if column.drifted))]
    rows = [(shortened(first, COLUMN_NAME), *more) for first, *more in [HEAD, *column_rows(shown)]]
    widths = [max(map(columns_wide, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            padded(text, width, right=0 < place < 3)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    if left := len(order) - len(shown):
        lines.append(f"and {left:,} more, none of which was found to have drifted")
    return (*lines, NOTE, *above_chance(shown), *unrelated(columns))


def above_chance(columns: Sequence[ColumnAnswer]) -> list[str]:
    """A sentence about columns that seem to have drifted by their intervals, and have not."""
    found = [column for column in columns if _seems_drifted(column)]
    if not found:
        return []
    names, have = listed([_name(each) for each in found]), "has" if len(found) == 1 else "have"
    clearest = max((each for column in found for each in column.statistics), key=lambda s: s.ratio)
    return [ABOVE_CHANCE.format(_capital(names), have, clearest.times)]


def _seems_drifted(column: ColumnAnswer) -> bool:
    size = column.answer("tv")
    if column.outcome != "none found" or is_tolerated(column.verdict) or not column.statistics:
        return False
    if size is None or size.interval is None or size.no_drift is None:
        return False
    return size.interval[0] > size.no_drift


def unrelated(columns: Sequence[ColumnAnswer]) -> list[str]:
    """What to know where a verdict takes records of one client as unrelated, for want of ids."""
    taken = any(each.drifted is not None and each.design_effect is None for each in columns)
    return [UNRELATED] if taken else []


def marks_words(plan: Plan) -> str:
    """What an arrow beside a cell means."""
    rate = f"at most {100 * plan.verdict.false_discovery:.3g}% of all marks"
    return (
        "Each bar is a share of all records. Categories with an arrow have clearly changed "
        f"({rate} are expected to be there by chance). Without an arrow, a change cannot be told "
        "from chance and noise."
    )


def privacy_sentences(release: Release, plan: Plan | None = None) -> tuple[str, ...]:
    """Three sentences: what is hidden, who saw what, what is not hidden.

    A plan without any party's key is run by one process, which plays all of them.
    """
    keys = plan is None or plan.aggregator or (plan.servers and plan.servers.sealing)
    seen = SEEN[release.trust] if keys else SEEN_ALONE
    return _hidden(release), seen, LEFT[release.privacy.unit]


def _hidden(release: Release) -> str:
    privacy = release.privacy
    if not privacy.holds or not privacy.claimed_epsilon or not math.isfinite(privacy.epsilon):
        return privacy.verdict
    if privacy.claimed_epsilon > 20:
        return f"Noise was added, but too little to hide much: epsilon {privacy.claimed_epsilon:g}."
    slack = ""
    if privacy.delta:
        often = f"1 in {1 / privacy.delta:,.0f}"
        often = often if 1e-15 < privacy.delta < 0.5 else f"{privacy.delta:.2g}"
        slack = f", plus a chance of at most {often}"
    return (
        f"{HIDDEN[privacy.unit]}, no result on this page would be more than "
        f"{math.exp(privacy.claimed_epsilon):.3g} times as likely{slack} "
        f"(epsilon {privacy.claimed_epsilon:g})."
    )


STATES = {
    "open": "Open.",
    "acknowledged": "",
    "rebaselined": "Ended by a new baseline.",
    "ended": "Ended by itself: no new evidence of it in {} {}s.",
}
ORDINARY = {
    True: "Differences between {0}s as large as those of the reference's own are ordinary, and do "
    "not count as drift.",
    False: "The reference has no times: ordinary differences between {0}s count as drift.",
}
TESTS = {"period": "one {} alone", "cumulative": "several {}s together"}
COUNTED = {
    "record": "What is spent does not grow with each {}, as long as each record is counted in only "
    "one.",
    "client": "What is spent grows with each {}, because every client is counted in it.",
}


def ordinary_words(status: SeriesStatus) -> str:
    """Whether ordinary differences between periods count as drift; empty where it is not known."""
    if status.findable is None:
        return ""
    return ORDINARY[status.findable.ordinary].format(status.every)


def relative(point: PeriodPoint, column: JudgedView) -> float | None:
    """A column's statistic over its threshold, of the period alone or of a window that ends here.

    The larger of both; None if the period was not judged.
    """
    pairs = (
        (column.statistic, point.threshold),
        (column.cumulative, point.cumulative_threshold),
    )
    found = [value / limit for value, limit in pairs if value is not None and limit]
    return max(found, default=None)


def largest(point: PeriodPoint, *, cumulative: bool) -> tuple[float, str] | None:
    """The largest statistic of a period, and whose it is; an empty name is the whole."""
    found = [(view.cumulative if cumulative else view.statistic, view.name) for view in point.views]
    return max(((value, name) for value, name in found if value is not None), default=None)


def above_words(judged: Sequence[tuple[bool, float, int]], every: str) -> str:
    """Since when, or when last, a column is above its threshold.

    `judged` are its periods in order: above or not, by how much, and the number of the period.
    """
    above = [number for exceeds, _, number in judged if exceeds]
    if not above:
        return ""
    if not judged[-1][0]:
        return f"last above in {period_name(above[-1], every)}"
    below = [number for exceeds, _, number in judged if not exceeds]
    since = next(number for number in above if number > max(below, default=-1))
    return f"above since {period_name(since, every)}"


def point_words(point: PeriodPoint, found: tuple[float, str] | None, limit: float | None) -> str:
    """The largest statistic of a period beside its threshold, or why there is none."""
    if found is not None:
        value, column = found
        where = f" ({column})" if column else ""
        return f"{value:.2f}{where}" + ("" if limit is None else f", threshold {limit:.2f}")
    if point.state == "missed":
        return f"missed, {point.reason or NO_REASON}"
    return "not judged" if point.state == "released" else "not counted yet"


def beside(value: float | None, limit: float | None) -> str:
    """A statistic and its threshold."""
    if value is None:
        return UNKNOWN
    shown = f"≤ {FAR_BELOW:g}" if value < FAR_BELOW + 0.01 else f"{value:.2f}"
    return shown if limit is None else f"{shown} / {limit:.2f}"


def period_verdict(point: PeriodPoint, order: Sequence[JudgedView]) -> str:
    """What is above its threshold in a period; `order` are its columns, most urgent first."""
    if point.exceeds is None:
        return "not judged."
    little = [clean(view.name) or "the whole" for view in point.views if view.tolerated]
    if not point.exceeds and little:
        return f"{listed(little)} {'differs' if len(little) == 1 else 'differ'}, {LITTLE}."
    if not point.exceeds:
        return "nothing is above its threshold."
    names = [clean(column.name) for column in order if column.exceeds] or ["the whole"]
    verb = "is above its threshold" if len(names) == 1 else "are above their thresholds"
    return f"{listed(names)} {verb}."


def alarm_state(alarm: Alarm, every: str) -> str:
    """How it stands, and what people said about it."""
    stands = STATES[alarm.state].format(QUIET, every)
    if not alarm.acknowledged_at:
        return stands
    said = f": {alarm.note}" if alarm.note else "."
    return f"{stands} Acknowledged on {day(alarm.acknowledged_at)}{said}".strip()


def alarm_raised(alarm: Alarm, every: str) -> str:
    """When an alarm was raised, and by what."""
    return f"Raised in {period_name(alarm.raised, every)} by {TESTS[alarm.test].format(every)}."


def in_state(status: SeriesStatus, state: str) -> list[int]:
    """The numbers of all periods in this state."""
    return [point.number for point in status.points if point.state == state]


def series_facts(status: SeriesStatus) -> dict[str, str]:
    """How a series stands, in a few words each."""
    if not status.points:
        return {"Population": status.population, "As of": date(status.at)}
    missed = len(in_state(status, "missed"))
    released = counted(len(status.released), status.every)
    return {
        "Population": status.population,
        "Released": released + (f", {missed:,} missed" if missed else ""),
        "Last release": date(status.last_success) if status.last_success else "none yet",
        "Next": next_words(status),
        "False alarms": f"at most {100 * status.false_alarm:.3g}% per year",
        "As of": date(status.at),
    }


def findable_words(status: SeriesStatus) -> str:
    """How small a drift shows; empty where that is not known, or the headline says it."""
    found = None if status.findable is None else status.findable.findable
    if found is None or status.outcome == "cannot tell":
        return ""
    return (
        f"By now, a lasting drift of total variation {found:.2g} would have been found half of the "
        "time, if it were of the kind that shows best."
    )


def untold_words(status: SeriesStatus) -> str:
    """Of which columns nothing can be told, where something can be of others."""
    untold = [] if status.findable is None else [clean(n) for n in status.findable.untold if n]
    return (
        f"Of {listed(untold)} it cannot be told: too few records for the noise." if untold else ""
    )


def due_words(status: SeriesStatus) -> str:
    """What is over and not counted yet; empty if there is nothing."""
    due = in_state(status, "due")
    if not due:
        return ""
    return (
        f"{counted(len(due), status.every)} {'is' if len(due) == 1 else 'are'} over and not "
        f"counted yet, from {period_name(due[0], status.every)} on."
    )


def next_words(status: SeriesStatus) -> str:
    """When something is counted next."""
    if due := in_state(status, "due"):
        return f"{counted(len(due), status.every)} due now"
    return f"after {date(status.next_due)}" if status.next_due else "the series is over"


def budget_words(budget: BudgetFacts) -> str:
    """What is spent, and what is left."""
    left = "nothing" if budget.left < budget.epsilon / 1000 else f"{budget.left:.3g}"
    delta = f", at delta {budget.delta:.3g}" if budget.delta else ""
    return f"Epsilon {budget.spent:.3g} of {budget.epsilon:.3g} is spent, {left} is left{delta}."


def spending_words(budget: BudgetFacts, before: float, alone: float = 0.0) -> str:
    """What a release added to what was spent before, and what is left: numbers that add up.

    Several releases tell less than the sum of what each tells alone, so that it may add less.

    >>> budget = BudgetFacts(epsilon=3.0, delta=0.0, spent=1.5, left=1.5)
    >>> spending_words(budget, 1.0)
    'this release 0.5 + before 1 = 1.5 of 3 (epsilon of one record); 1.5 is left'
    """
    if math.isnan(budget.spent):
        return "what is left of it is not known: the ledger could not be read"
    digits = max(3, 2 - math.floor(math.log10(budget.epsilon)))
    past, spent, whole = (round(each, digits) for each in (before, budget.spent, budget.epsilon))
    added, left = (round(each, digits) for each in (spent - past, max(whole - spent, 0.0)))
    delta = f" at delta {budget.delta:.3g}" if budget.delta else ""
    less = f"; alone, this release is {alone:.3g}" if alone > added + 2 * 10.0**-digits else ""
    return (
        f"this release {added:.9g} + before {past:.9g} = {spent:.9g} of {whole:.9g} "
        f"(epsilon of one {budget.unit}{delta}); {left:.9g} is left{less}"
    )


def series_lines(status: SeriesStatus) -> Iterator[str]:
    """How a series stands, as a terminal shows it, after its headline."""
    if status.outcome == "cannot tell":
        yield HELPS
    elif status.outcome == "none found":
        yield from filter(None, (findable_words(status), untold_words(status)))
    for alarm in status.alarms:
        words = f"{alarm_words(alarm, status)} {alarm_raised(alarm, status.every)}"
        yield f"Alarm {alarm.number} ({alarm.state}): {words}"
    missed = [point for point in status.points if point.state == "missed"]
    for point in missed[-3:]:
        yield missed_words(point, status.every)
    if status.budget is not None:
        unit = status.budget.unit
        grows = COUNTED[unit].format(status.every)
        yield f"Budget of one {unit}: {budget_words(status.budget)} {grows}"
    if due := due_words(status):
        yield due
    yield f"Next: {next_words(status)}."
