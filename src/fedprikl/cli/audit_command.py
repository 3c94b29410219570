"""`fedprikl audit`: try to refute the privacy claim of a plan, or of a calibration."""

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedprikl.audit import AuditedPlan, audit_plan, client_case, exact_case, paper_case
from fedprikl.checks import check_delta
from fedprikl.cli.console import notes, print_json, say, show, show_table, shown_progress
from fedprikl.cli.options import Json, ReferenceFile, given_of, reference_of
from fedprikl.privacy import Unit
from fedprikl.protocol import SignedPlan

OF_PLANS = ("plan", "reference", "trials", "false_alarm", "json")  # others: of calibrations


def audit_command(
    context: typer.Context,
    plan: Annotated[
        Path | None, typer.Argument(help="A plan, whose every question is attacked.")
    ] = None,
    reference: ReferenceFile = None,
    calibration: Annotated[
        Literal["exact", "paper"], typer.Option(help="Without a plan: the calibration on trial.")
    ] = "exact",
    epsilon: Annotated[float, typer.Option(help="The claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The claimed delta.")] = 1e-6,
    points: Annotated[int, typer.Option(min=2, help="Points per batch, m.")] = 10,
    batches: Annotated[int, typer.Option(min=1, help="Batches, T.")] = 20,
    noise: Annotated[
        str, typer.Option(help="Only for exact: auto, laplace, gaussian or an installed law.")
    ] = "auto",
    released: Annotated[
        Literal["terms", "mean"], typer.Option(help="Only for paper: what its server sees.")
    ] = "terms",
    trials: Annotated[
        int | None,
        typer.Option(
            min=200,
            help="Releases per data set; default: 100,000, of clients 20,000, of a plan fewer.",
        ),
    ] = None,
    unit: Annotated[
        Unit, typer.Option(help="Whom the claim protects: one record, or one client.")
    ] = "record",
    per_client: Annotated[
        int, typer.Option(min=1, help="With --unit client: records that each client draws.")
    ] = 20,
    false_alarm: Annotated[
        float, typer.Option(help="Chance that a true claim is refuted by accident.")
    ] = 1e-6,
    json: Json = False,
) -> None:
    """Releases many times from two neighbouring data sets and tries to tell them apart.

    With a plan, each of its questions is attacked on made-up data that its noise hides worst, which
    differ in one record, or in all records of one client. The release is computed by the code that
    releases, from the sums of counts on. Of noise shares, only those of the fewest honest clients
    that the plan allows are added up. Exit code 1 if a question costs more than its share.

    Without a plan, a calibration is attacked. With --unit client the data sets differ in all
    records of one client, and every release counts and draws anew, with the code that clients run.

    A claim below a lower bound on epsilon is false, but for the stated false-alarm rate. An audit
    that refutes nothing proves nothing; the proof is in the calibration.

    Example: `fedprikl audit plan.json`

    Example: `fedprikl audit --calibration paper --epsilon 1 --points 10 --batches 20`

    Example: `fedprikl audit --unit client --per-client 20`
    """
    start = time.perf_counter()
    if plan is not None:
        others = given_of(context, [name for name in context.params if name not in OF_PLANS])
        if others:
            option = others[0].replace("_", "-")
            raise typer.BadParameter(
                f"--{option} is for an audit without a plan: the plan says it."
            )
        _audit_plan(plan, reference, trials, false_alarm, json=json)
        return
    if reference is not None:
        raise typer.BadParameter("--reference is for the audit of a plan; name the plan too.")
    check_delta(delta)  # 0 is no delta that an audit can refute
    trials = trials or (20_000 if unit == "client" else 100_000)
    if unit == "client":
        if calibration == "paper":
            raise typer.BadParameter("--unit client is about the exact calibration.")
        case = client_case(epsilon=epsilon, delta=delta, per_client=per_client, noise=noise)
    elif calibration == "paper":
        case = paper_case(
            epsilon=epsilon, delta=delta, points=points, batches=batches, released=released
        )
    else:
        case = exact_case(epsilon=epsilon, delta=delta, points=points, batches=batches, noise=noise)
    with notes.status(f"sampling {2 * trials:,} releases"):
        result = case.run(epsilon=epsilon, delta=delta, trials=trials, false_alarm=false_alarm)
    theory = case.mechanism.epsilon(delta)
    seconds = round(time.perf_counter() - start, 3)
    if json:
        print_json(
            result.to_dict()
            | {
                "calibration": calibration,
                "subject": case.description,
                "unit": unit,
                "theory_epsilon": theory,
                "seconds": seconds,
            }
        )
        return
    show(f"on trial: {case.description}")
    bounds = [(test, f"{bound:.3f}") for test, bound in result.bounds.items()]
    show_table(("test", "epsilon is at least"), bounds, right=[1], lines=True)
    verdict = "[red]REFUTED[/red]" if result.refuted else "[green]not refuted[/green]"
    show(
        f"The claim epsilon = {epsilon:g} (delta = {delta:g}) is {verdict}; "
        f"by theory these two data sets show {theory:.3g}."
    )
    show(f"{2 * trials:,} releases, false-alarm rate {false_alarm:g}, {seconds:.1f} s")


def _audit_plan(
    path: Path, reference: Path | None, trials: int | None, false_alarm: float, *, json: bool
) -> None:
    """Attacks every question of a plan; ends with exit code 1 if one is refuted."""
    start, signed = time.perf_counter(), SignedPlan.load(path)
    pi = reference_of(path, signed, reference)
    with shown_progress() as progress:
        found = audit_plan(
            signed.plan, pi, trials=trials, false_alarm=false_alarm, progress=progress
        )
    seconds = round(time.perf_counter() - start, 3)
    if json:
        plan = {"plan": signed.plan.fingerprint, "unit": signed.plan.unit.kind}
        print_json(found.to_dict() | plan | {"seconds": seconds})
    else:
        _print_plan(found, seconds)
    if found.refuted:
        raise typer.Exit(1)


def _print_plan(found: AuditedPlan, seconds: float) -> None:
    for name, result in found.questions:
        verdict = "REFUTED" if result.refuted else "not refuted"
        say(
            f"{name}: epsilon {result.claimed_epsilon:.4g} (delta {result.delta:.2g}) is {verdict}",
            style="red" if result.refuted else "",
        )
        for test, bound in result.bounds.items():
            say(f"    {test}: epsilon is at least {bound:.4g}")
    say(
        f"The plan is {'REFUTED' if found.refuted else 'not refuted'}. "
        f"{sum(2 * result.trials for _, result in found.questions):,} releases, false-alarm rate "
        f"{found.false_alarm:g}, {seconds:.1f} s"
    )
