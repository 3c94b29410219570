"""What the demo says at each step, in plain words."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from fedprikl.cli.demo_truth import JudgedColumn, Outcome
from fedprikl.front import Comparison
from fedprikl.planning import PlannedRound
from fedprikl.protocol import Policy
from fedprikl.protocol.answer import Answer
from fedprikl.reference import Reference
from fedprikl.reference import Table as Columns
from fedprikl.secure_sum import Leaves
from fedprikl.simulation.demo_table import CLIENT, DRIFTED, FlightTable

__all__ = [
    "by_hand",
    "columns_table",
    "data_words",
    "named",
    "plan_words",
    "reference_words",
    "round_words",
    "truth_words",
]


def data_words(table: FlightTable) -> list[str]:
    """What the parties hold, and what was done to it."""
    columns = [name for name in table.reference if name != CLIENT]
    earlier, others = len(table.reference[CLIENT]), len(set(table.reference[CLIENT]))
    return [
        f"{len(table.aircraft)} aircraft hold {table.records:,} made-up flights, each aircraft in "
        "a file of its own. Nobody collects them.",
        f"A public file holds {earlier:,} earlier flights of {others} other aircraft.",
        f"Columns: {_listed(columns)}. Some values are missing, and one carrier is new.",
        f"Two columns were made to drift. {DRIFTED[0]}: Heron took over 40% of Kestrel's flights. "
        f"{DRIFTED[1]}: half of the flights from 16:00 on leave later. The others were not.",
    ]


def reference_words(reference: Reference) -> list[str]:
    """What became of the public file."""
    encoder = reference.domain.encoder
    assert isinstance(encoder, Columns)  # noqa: S101  fitted to a file with columns
    sizes = [column.size - 1 for column in encoder.columns]
    return [
        f"The public file becomes the reference: {len(sizes)} columns of {min(sizes)} to "
        f"{max(sizes)} categories or bins, and how alike the flights of one aircraft are.",
    ]


def plan_words(planned: PlannedRound) -> list[str]:
    """What all parties agree on."""
    plan, cost = planned.plan, planned.cost
    sums = "1 secure sum" if cost.cohorts == 1 else f"{cost.cohorts} secure sums"
    return [
        f"Every aircraft will report {plan.points + plan.counted:,} counts, "
        f"{cost.masked_bytes:,} bytes, in {sums}; nobody sees the counts of one aircraft.",
        f"The release may spend epsilon {plan.epsilon:g}, delta {plan.delta:g}, to protect each "
        f"single flight. It may raise a false alarm {plan.false_alarm:.3g} of the time: that any "
        "column is called drifted that is not.",
    ]


def round_words(result: Comparison, leaves: Mapping[str, Leaves]) -> list[str]:
    """What happened in the round."""
    cohorts = result.release.cohorts
    early = sum(when.value <= Leaves.BEFORE_INPUT.value for when in leaves.values())
    included, clients = sum(c.included for c in cohorts), sum(c.clients for c in cohorts)
    return [
        "Every aircraft counted its own file, and the counts were added up in secure sums.",
        f"{len(leaves)} aircraft vanished on the way, {early} of them before they had sent their "
        f"counts. The sums were completed all the same: {included} of {clients} aircraft count.",
        "The ledger was charged before anything was opened; epsilon "
        f"{result.epsilon_left or 0:.3g} is left of the budget of {result.plan.population!r}.",
    ]


def columns_table(judged: Sequence[JudgedColumn]) -> Table:
    """One row per column: the verdict, the size, and the truth."""
    shown = Table("column", "verdict", "size (tv)", "95% interval", "true size", "no drift gives")
    for number in shown.columns[2:]:
        number.justify = "right"
    for column in sorted(judged, key=_rank):
        found = column.answer.answer("tv")
        verdict = "[bold]drifted[/bold]" if column.answer.drifted else "no drift found"
        size, between, usual = ("", "", "") if found is None else _cells(found)
        shown.add_row(
            column.answer.name, verdict, size, between, f"{column.truth['tv']:.3f}", usual
        )
    return shown


def truth_words(judged: Sequence[JudgedColumn]) -> list[str]:
    """Which columns were found, missed and falsely called; how good the sizes are."""
    said = [
        f"Found: {_listed(named(judged, 'found')) or 'none'}. "
        f"Missed: {_listed(named(judged, 'missed')) or 'none'}. "
        f"Falsely called: {_listed(named(judged, 'falsely called')) or 'none'}. "
        f"Rightly left alone: {_listed(named(judged, 'left alone')) or 'none'}."
    ]
    for divergence, unit in (("tv", ""), ("kl", " nats")):
        covered = [column.covered(divergence) for column in judged]
        known = [each for each in covered if each is not None]
        errors = [
            abs(found.value - column.truth[divergence])
            for column in judged
            if (found := column.answer.answer(divergence)) is not None
        ]
        if errors:
            said.append(
                f"The released {divergence} of a column is off by {max(errors):.2g}{unit} at "
                f"most; {sum(known)} of {len(known)} intervals hold the true size."
            )
    return said


def by_hand(folder: Path, *, clients: int, records: int, epsilon: float) -> list[str]:
    """The commands that do the same."""
    more = "" if epsilon <= Policy().largest_epsilon else f" --largest-epsilon {epsilon:g}"
    return [
        f"cd {shlex.quote(str(folder))}",
        f"fedprikl reference reference.csv -o ref.json --client-column {CLIENT}",
        f"fedprikl plan ref.json --clients {clients} --records {records} --epsilon {epsilon:g} "
        "--population flights",
        f"fedprikl estimate plan.json aircraft{more}",
        "fedprikl verify release.json",
        "fedprikl ledger --population flights",
    ]


def named(judged: Sequence[JudgedColumn], outcome: Outcome) -> list[str]:
    """The columns with this outcome."""
    return [column.answer.name for column in judged if column.outcome == outcome]


def _rank(column: JudgedColumn) -> tuple[bool, float]:
    """Drifted columns first, the largest drift first."""
    found = column.answer.answer("tv")
    return not column.answer.drifted, 0.0 if found is None else -found.value


def _cells(found: Answer) -> tuple[str, str, str]:
    between = "" if found.interval is None else "{:.3f} to {:.3f}".format(*found.interval)
    usual = "" if found.no_drift is None else f"{found.no_drift:.3f}"
    return f"{found.value:.3f}", between, usual


def _listed(names: Sequence[str]) -> str:
    *most, last = names or [""]
    return f"{', '.join(most)} and {last}" if most else last
