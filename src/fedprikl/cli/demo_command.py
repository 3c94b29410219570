"""`fedprikl demo`: the main job on made-up flights, step by step, and how right it was."""

import shlex
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fedprikl.checks import check_epsilon
from fedprikl.cli.console import print_json, say, shown_progress
from fedprikl.cli.options import Json, check_outputs
from fedprikl.cli.paper_demo import paper_demo
from fedprikl.cli.release_output import write_comparison
from fedprikl.demo import flight_table, leavers
from fedprikl.demo.flights import CLIENT, DRIFTED, FlightTable
from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.errors import InvalidInputError
from fedprikl.front import Comparison, compare
from fedprikl.libraries import check_plan_extra
from fedprikl.planning import PlannedRound, plan_round
from fedprikl.protocol import Answer, ColumnAnswer, Policy, Release
from fedprikl.records import fit_reference
from fedprikl.reference import Reference
from fedprikl.reference import Table as Columns
from fedprikl.reporting import release_words
from fedprikl.secure_sum import Leaves

Outcome = Literal["found", "missed", "falsely called", "left alone", "cannot tell"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
SIZES = ("tv", "kl")
POPULATION = "aircraft"
OWN = "demo"  # folder of what the demo itself makes of the files
REPETITIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedColumn:
    """One column: whether it was made to drift, how far its records are, and what was released."""

    answer: ColumnAnswer
    made_to_drift: bool
    truth: Mapping[str, float]  # divergence -> that of all records counted, without noise

    @property
    def outcome(self) -> Outcome:
        """How right the verdict is."""
        if self.answer.outcome == "cannot tell":
            return "cannot tell"
        if self.answer.drifted:
            return "found" if self.made_to_drift else "falsely called"
        return "missed" if self.made_to_drift else "left alone"

    def covered(self, divergence: str) -> bool | None:
        """Whether the interval holds the true size; None without one."""
        found = self.answer.answer(divergence)
        if found is None or found.interval is None:
            return None
        return found.interval[0] <= self.truth[divergence] <= found.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        sizes = {
            found.divergence: {
                "value": found.value,
                "interval": found.interval and list(found.interval),
                "no_drift": found.no_drift,
                "truth": self.truth[found.divergence],
                "covered": self.covered(found.divergence),
            }
            for found in self.answer.answers
            if found.divergence in SIZES
        }
        return {
            "column": self.answer.name,
            "made_to_drift": self.made_to_drift,
            "drifted": self.answer.drifted,
            "outcome": self.outcome,
            **sizes,
        }


def judge(
    table: FlightTable, reference: Reference, release: Release, *, vanished: Collection[str]
) -> tuple[JudgedColumn, ...]:
    """Every column of the release beside the truth about those who had not `vanished`."""
    kinds, judged = [divergence_named(name) for name in SIZES], []
    for column in release.columns:
        pi, p = table.shares(reference, column.name, without=vanished)
        truth = {
            kind.name: skewed_divergence(pi, p, skew=kind.skew, divergence=kind) for kind in kinds
        }
        drifted = column.name in DRIFTED
        judged.append(JudgedColumn(answer=column, made_to_drift=drifted, truth=truth))
    return tuple(judged)


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
        f"{max(sizes)} categories or bins, and how alike the flights of one aircraft are."
    ]


def plan_words(planned: PlannedRound) -> list[str]:
    """What all parties agree on."""
    plan, cost = planned.plan, planned.cost
    sums = "1 secure sum" if cost.cohorts == 1 else f"{cost.cohorts} secure sums"
    return [
        f"Every aircraft will report {plan.points + plan.column_points:,} counts, "
        f"{cost.masked_bytes:,} bytes, in {sums}; nobody sees the counts of one aircraft.",
        f"Noise of epsilon {plan.budget.epsilon:g}, delta {plan.budget.delta:g} will protect each "
        f"single flight. If nothing had drifted, at most {100 * plan.verdict.false_alarm:.3g}% of "
        "such rounds would call any column drifted.",
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
        "The ledger was charged before anything was opened. Budget of "
        f"{result.plan.population!r}: {result.costs['budget']}.",
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
        known = [held for each in judged if (held := each.covered(divergence)) is not None]
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
        f"--population {POPULATION}{more}",
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


def demo_command(
    epsilon: Annotated[float, typer.Option(help="Privacy budget.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of what is made up, and of who vanishes.")] = 0,
    keep: Annotated[
        Path | None,
        typer.Option(help="Keep the files in this new folder, to run the commands by hand."),
    ] = None,
    report: Annotated[Path, typer.Option(help="Where to write the HTML report.")] = Path(
        "fedprikl-demo.html"
    ),
    paper: Annotated[
        bool, typer.Option("--paper", help="Instead: compare the paper's estimators with ours.")
    ] = False,
    repetitions: Annotated[
        int | None,
        typer.Option(min=1, help=f"With --paper: repetitions per estimator ({REPETITIONS})."),
    ] = None,
    json: Json = False,
) -> None:
    """Finds which columns of a made-up table have drifted, and says how right it was.

    120 aircraft hold about 200 flights each, in one file per aircraft. Two of the eight columns
    have drifted from a public reference. The demo goes from files to a report as a user would, with
    real secure sums; 5% of the aircraft drop out. Release noise comes from the operating system, so
    values differ from run to run.

    With --paper it compares the paper's estimators with those of this software, on 600 made-up
    clients and a single divergence that is known.

    Example: `fedprikl demo --keep flights --report demo.html`
    """
    check_plan_extra()
    if seed < 0:
        raise InvalidInputError(f"The seed must not be negative, got {seed}.")
    check_epsilon(epsilon)
    if paper and keep is not None:
        raise typer.BadParameter("--paper has no files to --keep.")
    if repetitions is not None and not paper:
        raise typer.BadParameter("--repetitions needs --paper.")
    check_outputs(report, force=True)
    if paper:
        many = REPETITIONS if repetitions is None else repetitions
        paper_demo(epsilon=epsilon, seed=seed, repetitions=many, report=report, json=json)
        return
    start = time.perf_counter()
    place = tempfile.TemporaryDirectory() if keep is None else nullcontext(_new(keep))
    with place as folder:
        tell: Callable[..., None] = (lambda *_: None) if json else _tell
        document = _main_job(Path(folder), epsilon=epsilon, seed=seed, report=report, tell=tell)
    document["seconds"] = round(time.perf_counter() - start, 3)
    if json:
        print_json(document)
        return
    say(f"\nreport: {report}")
    if keep is not None:
        _tell("The same by hand", *document["by_hand"])


def _main_job(
    folder: Path, *, epsilon: float, seed: int, report: Path, tell: Callable[..., None]
) -> dict[str, Any]:
    """The whole walk from files to a report; `tell` is told of each step as it is done."""
    rng = np.random.default_rng(seed)
    table = flight_table(rng)
    table.write(folder)
    own = folder / OWN
    own.mkdir()
    tell("1. The data", *data_words(table))

    reference = fit_reference(folder / "reference.csv", client=CLIENT)
    reference.save(own / "ref.json")
    tell("2. The reference", *reference_words(reference))

    clients, records = len(table.aircraft), round(table.records, -2)
    planned = plan_round(
        reference, clients=clients, records=records, epsilon=epsilon, population=POPULATION
    )
    planned.save(own / "plan.json")
    tell("3. The plan", *plan_words(planned))

    leaves = leavers([f"{name}.csv" for name in table.aircraft], rng)
    with shown_progress() as progress:
        result = compare(
            reference,
            folder / "aircraft",
            planned,
            ledger=own / "ledger.db",
            key=own / "aggregator.pem",
            largest_epsilon=epsilon,
            leaves=leaves,
            rng=rng,
            progress=progress,
        )
    tell("4. The round", *round_words(result, leaves))

    write_comparison(result, output=own / "release.json", report=report, reference=reference)
    release, lines = result.release, result.value_lines
    judged = judge(table, reference, release, vanished=vanished(leaves))
    tell("5. The answer", release_words(release, result.absent, lines))
    tell("6. How right it was", truth_table(judged), *truth_words(judged))
    return result.to_dict() | {
        **{kind.replace(" ", "_"): named(judged, kind) for kind in OUTCOMES},
        "columns": [column.to_dict() for column in judged],
        "report": str(report),
        "by_hand": by_hand(folder, clients=clients, records=records, epsilon=epsilon),
    }


def _new(folder: Path) -> Path:
    """The folder to keep; one that holds files is left as it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidInputError(f"{folder} is not empty. Give --keep a new folder.")
    except OSError as error:
        raise InvalidInputError(f"Cannot keep files in {folder}: {error.strerror}.") from None
    return folder


def _tell(title: str, *lines: str | Table) -> None:
    say(f"\n{title}", style="bold")
    for line in lines:
        if isinstance(line, str):
            say(line)
        else:
            Console(highlight=False).print(line)
