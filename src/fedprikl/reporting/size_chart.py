"""How large a divergence is: beside what no drift gives, its threshold, and known changes."""

from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.errors import FedPriKLError
from fedprikl.estimation import Witness
from fedprikl.protocol import Answer
from fedprikl.reporting.bar_chart import Bar, Row, bar_chart
from fedprikl.reporting.texts import clean, decimals, number

__all__ = ["size_chart"]

HALVES = (0.51, 0.55, 0.6, 0.75, 0.9, 0.99)  # what one of two equally common categories grows to
CHANGES = {  # total variation is a share of all records
    share: f"example: {words} would have to change"
    for share, words in {
        0.01: "one record in a hundred",
        0.03: "three records in a hundred",
        0.1: "ten records in a hundred",
        0.3: "thirty records in a hundred",
        0.5: "half of all records",
        1.0: "all records",
    }.items()
}


def size_chart(
    answer: Answer, *, records: int, witness: Witness | None, mark: float | None = None
) -> str:
    """The value among numbers that give it a meaning. `mark` is a threshold the user set."""
    width = 0.0 if answer.interval is None else answer.interval[1] - answer.interval[0]
    digits = decimals(width)
    unit = f" {clean(answer.unit)}".rstrip()

    def row(label: str, value: float, bar: Bar | None = None, *, strong: bool = False) -> Row:
        says = f"{number(value, digits)}{unit}"
        return Row(
            label=label, bars=(bar or Bar(value=value, says=says, kind="reference"),), strong=strong
        )

    found = Bar(
        value=answer.value,
        says=f"{number(answer.value, digits)}{unit}",
        kind="moved" if witness is not None and witness.speaks else "now",
        interval=answer.interval,
        mark=None if witness is None else witness.threshold,
    )
    rows = [row("found in this population", answer.value, found, strong=True)]
    if witness is not None:
        rows.append(row("threshold: above it, drift is found", witness.threshold))
    if mark is not None:
        rows.append(row("your own threshold, from the plan", mark))
    if answer.no_drift is not None:
        rows.append(row(f"expected without drift, {records:,} records", answer.no_drift))
    for value, label in _examples(answer):
        says = f"{value:.2g}{unit}"
        rows.append(row(label, value, Bar(value=value, says=says, kind="example")))
    says = "; ".join(f"{each.label}: {each.bars[0].says}" for each in rows)
    return bar_chart(rows, title=f"The size of the drift, {clean(answer.divergence)}", says=says)


def _examples(answer: Answer) -> list[tuple[float, str]]:
    """The known changes just below and just above the value."""
    known = sorted(_known(answer.divergence).items())
    below = [each for each in known if each[0] <= answer.value]
    above = [each for each in known if each[0] > answer.value]
    return [*below[-1:], *above[:1]]


def _known(name: str) -> dict[float, str]:
    """Divergences of changes that everybody can picture."""
    if name == "tv":
        return CHANGES
    try:
        divergence = divergence_named(name)
    except FedPriKLError:  # of somebody else's, not registered here
        return {}
    return {
        skewed_divergence([0.5, 0.5], [half, 1 - half], skew=0.0, divergence=divergence): (
            f"example: a 50:50 split becomes {100 * half:.0f}:{100 - 100 * half:.0f}"
        )
        for half in HALVES
    }
