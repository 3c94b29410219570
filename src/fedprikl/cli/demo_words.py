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
    "POPULATION",
    "by_hand",
    "data_words",
    "named",
    "plan_words",
    "reference_words",
    "round_words",
    "truth_table",
    "truth_words",
    "vanished",
]

POPULATION = "aircraft"


def data_words(table: FlightTable) -> list[str]:
    """What the parties hold, and what was done to it."""
    columns = [name for name in table.reference if name != CLIENT]
    rest = len(columns) - len(DRIFTED)
    earlier, others = len(table.reference[CLIENT]), len(set(table.reference[CLIENT]))
    return [
        f"{len(table.aircraft)} aircraft hold {table.records:,} made-up flights, each aircraft in "
        "a file of its own. Nobody collects them.",
        f"A public file holds {earlier:,} earlier flights of {others} other aircraft.",
        f"Columns: {_listed(columns)}. Some values are missing, and one carrier is new.",
        f"Two columns were made to drift. {DRIFTED[0]}: Heron took over 40% of Kestrel's flights. "
        f"{DRIFTED[1]}: half of the flights from 16:00 on leave later. The other {rest} were not.",
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
        f"Noise of epsilon {plan.epsilon:g}, delta {plan.delta:g} will protect each single flight. "
        f"If nothing had drifted, at most {100 * plan.false_alarm:.3g}% of such rounds would call "
        "any column drifted.",
    ]


def round_words(result: Comparison, leaves: Mapping[str, Leaves]) -> list[str]:
    """What happened in the round."""
    cohorts = result.release.cohorts
    early = len(vanished(leaves)) or "none"
    included, clients = sum(c.included for c in cohorts), sum(c.clients for c in cohorts)
    return [
        "Every aircraft counted its own file, and the counts were added up in secure sums.",
        f"{len(leaves)} aircraft vanished on the way, {early} of them before they had sent their "
        f"counts. The sums were completed all the same: {included} of {clients} aircraft count.",
        "The ledger was charged before anything was opened; epsilon "
        f"{result.epsilon_left or 0:.3g} is left of the budget of {result.plan.population!r}.",
    ]


def vanished(leaves: Mapping[str, Leaves]) -> set[str]:
    """The aircraft that left before they had sent their counts; later, they count."""
    early = [name for name, when in leaves.items() if when.value <= Leaves.BEFORE_INPUT.value]
    return {Path(name).stem for name in early}


def truth_table(judged: Sequence[JudgedColumn]) -> Table:
    """One row per column: what was done to it, what was found, and both sizes."""
    head = ("column", "truth", "verdict", "tv", "95% interval", "true tv")
    shown = Table(*head, box=None, padding=(0, 2, 0, 0))
    for number in shown.columns[3:]:
        number.justify, number.no_wrap = "right", True
    for column in judged:
        found = column.answer.answer("tv")
        shown.add_row(
            column.answer.name,
            "drifted" if column.made_to_drift else "as before",
            column.outcome,
            *(("", "") if found is None else _size(found)),
            f"{column.truth['tv']:.3f}",
        )
    return shown


def truth_words(judged: Sequence[JudgedColumn]) -> list[str]:
    """Which columns were found, missed and falsely called; how good the sizes are."""
    kinds: list[Outcome] = ["found", "missed", "falsely called"]
    said = [
        f"{len(named(judged, 'found'))} of {len(DRIFTED)} columns that drifted were found. "
        + " ".join(f"{kind.capitalize()}: {_listed(named(judged, kind))}." for kind in kinds),
        "True tv: what anybody would compute who had collected the flights. It is not 0 without "
        "drift: other aircraft differ by chance. An aircraft has one age, so ages differ most.",
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
                f"The released {divergence} is off by at most {max(errors):.2g}{unit}; "
                f"{sum(known)} of {len(known)} intervals hold the true one."
            )
    return said


def by_hand(folder: Path, *, clients: int, records: int, epsilon: float) -> list[str]:
    """The commands that do the same."""
    more = "" if epsilon <= Policy().largest_epsilon else f" --largest-epsilon {epsilon:g}"
    return [
        f"cd {shlex.quote(str(folder))}",
        f"fedprikl reference reference.csv -o ref.json --client-column {CLIENT}",
        f"fedprikl plan ref.json --clients {clients} --records {records} --epsilon {epsilon:g} "
        f"--population {POPULATION}",
        f"fedprikl estimate plan.json aircraft{more}",
        "fedprikl verify release.json",
        f"fedprikl ledger --population {POPULATION}",
    ]


def named(judged: Sequence[JudgedColumn], outcome: Outcome) -> list[str]:
    """The columns with this outcome."""
    return [column.answer.name for column in judged if column.outcome == outcome]


def _size(found: Answer) -> tuple[str, str]:
    between = "" if found.interval is None else "{:.3f} to {:.3f}".format(*found.interval)
    return f"{found.value:.3f}", between


def _listed(names: Sequence[str]) -> str:
    *most, last = names or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
