"""`fedprikl demo`: the main job on made-up flights, step by step, and how right it was."""

import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from fedprikl.checks import check_epsilon
from fedprikl.cli import demo_words as words
from fedprikl.cli.console import print_json, say, shown_progress
from fedprikl.cli.demo_truth import OUTCOMES, judge
from fedprikl.cli.demo_words import POPULATION
from fedprikl.cli.outputs import check_outputs
from fedprikl.cli.paper_demo import paper_demo
from fedprikl.cli.released import write_release
from fedprikl.errors import InvalidInputError
from fedprikl.front import compare
from fedprikl.planning import plan_round
from fedprikl.records import fit_reference
from fedprikl.reporting import ReleaseFacts
from fedprikl.secure_sum import Leaves
from fedprikl.simulation.demo_table import CLIENT, FlightTable, flight_table

__all__ = ["demo_command"]

DROPOUT = 0.05  # the share of aircraft who vanish on the way
OWN = "demo"  # folder of what the demo itself makes of the files
REPETITIONS = 100


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
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Finds which columns of a made-up table have drifted, and says how right it was.

    120 aircraft hold about 200 flights each, in one file per aircraft. Two of the eight columns
    have drifted from a public reference. The demo goes from files to a report as a user would, with
    real secure sums, of which 5% of the aircraft vanish. Release noise comes from the operating
    system, so values differ from run to run.

    With --paper it compares the paper's estimators with those of this software, on 600 made-up
    clients and a single divergence that is known.

    Example: `fedprikl demo --keep flights --report demo.html`
    """
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
        tell = _silent if json else _tell
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
    tell("1. The data", *words.data_words(table))

    reference = fit_reference(folder / "reference.csv", clients=CLIENT)
    reference.save(own / "ref.json")
    tell("2. The reference", *words.reference_words(reference))

    clients, records = len(table.aircraft), round(table.records, -2)
    planned = plan_round(
        reference, clients=clients, records=records, epsilon=epsilon, population=POPULATION
    )
    planned.save(own / "plan.json")
    tell("3. The plan", *words.plan_words(planned))

    leaves = _leavers(table, rng)
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
    tell("4. The round", *words.round_words(result, leaves))

    release, absent, output = result.release, result.absent, own / "release.json"
    write_release(release, result.plan, result.costs, output=output, report=report, absent=absent)
    judged = judge(table, reference, release, vanished=words.vanished(leaves))
    tell("5. The answer", str(ReleaseFacts.of(release, absent)))
    tell("6. How right it was", words.truth_table(judged), *words.truth_words(judged))
    return result.to_dict() | {
        **{kind.replace(" ", "_"): words.named(judged, kind) for kind in OUTCOMES},
        "columns": [column.to_dict() for column in judged],
        "report": str(report),
        "by_hand": words.by_hand(folder, clients=clients, records=records, epsilon=epsilon),
    }


def _leavers(table: FlightTable, rng: np.random.Generator) -> dict[str, Leaves]:
    """Who vanishes, and before which message."""
    files = [f"{name}.csv" for name in table.aircraft]
    chosen = rng.choice(files, round(DROPOUT * len(files)), replace=False)
    return {str(name): Leaves(int(rng.integers(len(Leaves)))) for name in chosen}


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


def _silent(*_: object) -> None:
    pass
