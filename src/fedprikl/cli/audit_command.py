"""`fedprikl audit`: try to refute the privacy claim of a calibration by experiment."""

import time
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedprikl.checks import check_delta, check_epsilon
from fedprikl.cli.console import notes, print_json
from fedprikl.cli.options import UnitName
from fedprikl.paper import exact_case, paper_case
from fedprikl.paper.audit_cases import AuditCase
from fedprikl.privacy import SecureNoise, audit
from fedprikl.simulation.client_case import ClientCase, client_case

__all__ = ["audit_command"]


class CalibrationName(StrEnum):
    """Which calibration is on trial."""

    EXACT = "exact"
    PAPER = "paper"


class NoiseName(StrEnum):
    """Noise of the exact calibration."""

    AUTO = "auto"
    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


class ReleasedName(StrEnum):
    """What the paper's server sees."""

    TERMS = "terms"
    MEAN = "mean"


def audit_command(
    calibration: Annotated[
        CalibrationName, typer.Option(help="The calibration on trial.")
    ] = CalibrationName.EXACT,
    epsilon: Annotated[float, typer.Option(help="The claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The claimed delta.")] = 1e-6,
    points: Annotated[int, typer.Option(min=2, help="Points per batch, m.")] = 10,
    batches: Annotated[int, typer.Option(min=1, help="Batches, T.")] = 20,
    noise: Annotated[NoiseName, typer.Option(help="Only for exact.")] = NoiseName.AUTO,
    released: Annotated[ReleasedName, typer.Option(help="Only for paper.")] = ReleasedName.TERMS,
    trials: Annotated[
        int | None,
        typer.Option(min=200, help="Releases per data set; default: 100,000, of clients 20,000."),
    ] = None,
    unit: Annotated[
        UnitName, typer.Option(help="Whom the claim protects: one record, or one client.")
    ] = UnitName.RECORD,
    per_client: Annotated[
        int, typer.Option(min=1, help="With --unit client: records that each client draws.")
    ] = 20,
    false_alarm: Annotated[
        float, typer.Option(help="Chance that a true claim is refuted by accident.")
    ] = 1e-6,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Releases many times from two neighbouring data sets and tries to tell them apart.

    With --unit client the two differ in all records of one client, and every release counts and
    draws anew, with the code that clients run.

    The lower bound on epsilon is sound: a claim below it is false, but for the stated false-alarm
    rate. An audit that refutes nothing proves nothing; the proof is in the calibration.

    Example: `fedprikl audit --calibration paper --epsilon 1 --points 10 --batches 20`

    Example: `fedprikl audit --unit client --per-client 20`
    """
    start = time.perf_counter()
    check_epsilon(epsilon)
    check_delta(delta)
    source = SecureNoise()
    trials = trials or (20_000 if unit is UnitName.CLIENT else 100_000)
    if unit is UnitName.CLIENT:
        if calibration is CalibrationName.PAPER:
            raise typer.BadParameter("--unit client is about the exact calibration.")
        case: AuditCase | ClientCase = client_case(
            epsilon=epsilon,
            delta=delta,
            per_client=per_client,
            noise=noise.value,
            source=source,
        )
    elif calibration is CalibrationName.PAPER:
        case = paper_case(
            epsilon=epsilon,
            delta=delta,
            points=points,
            batches=batches,
            released=released.value,
            source=source,
        )
    else:
        case = exact_case(
            epsilon=epsilon,
            delta=delta,
            points=points,
            batches=batches,
            noise=noise.value,
            source=source,
        )
    with notes.status(f"sampling {2 * trials:,} releases"):
        result = audit(
            case.sample_left,
            case.sample_right,
            epsilon=epsilon,
            delta=delta,
            gaussian=case.mechanism.loss.gaussian,
            trials=trials,
            false_alarm=false_alarm,
        )
    seconds = round(time.perf_counter() - start, 3)
    if json:
        print_json(
            result.to_dict()
            | {
                "calibration": calibration.value,
                "subject": case.description,
                "unit": unit.value,
                "theory_epsilon": case.true_epsilon,
                "seconds": seconds,
            }
        )
        return
    console = Console(highlight=False)
    console.print(f"on trial: {case.description}")
    table = Table("test", "epsilon is at least")
    table.columns[1].justify = "right"
    for test in result.tests:
        table.add_row(test.name, f"{test.lower_bound_epsilon:.3f}")
    console.print(table)
    verdict = "[red]REFUTED[/red]" if result.refuted else "[green]not refuted[/green]"
    console.print(
        f"The claim epsilon = {epsilon:g} (delta = {delta:g}) is {verdict}; "
        f"by theory these two data sets show {case.true_epsilon:.3g}."
    )
    console.print(f"{2 * trials:,} releases, false-alarm rate {false_alarm:g}, {seconds:.1f} s")
