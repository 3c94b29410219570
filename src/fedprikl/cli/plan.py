"""`fedprikl plan`: fix what all parties agree on, before any private data is touched."""

import json as json_module
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from fedprikl.cli.console import print_json
from fedprikl.errors import InvalidInputError
from fedprikl.estimators import release_mechanism
from fedprikl.federation import Plan, SignedPlan, SigningKey
from fedprikl.reference import Reference, distinct_points

__all__ = ["plan_command"]


class Trust(StrEnum):
    """Whom the clients trust with the sums."""

    AGGREGATOR = "aggregator"
    NONE = "none"


def plan_command(
    reference: Annotated[Path, typer.Argument(help="The reference, from `fedprikl reference`.")],
    clients: Annotated[int, typer.Option(min=3, help="How many clients there are, about.")],
    records: Annotated[int, typer.Option(min=1, help="How many records they hold in all, about.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget of this estimate.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Used where the noise is Gaussian.")] = 1e-6,
    population: Annotated[str, typer.Option(help="Whose budget is charged.")] = "clients",
    points: Annotated[int, typer.Option(min=1, help="Most counts a client reports.")] = 250,
    trust: Annotated[Trust, typer.Option(help="Who may see exact sums.")] = Trust.AGGREGATOR,
    threshold: Annotated[
        float | None, typer.Option(help="Divergence in nats to draw into the report.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Sign the plan with this key; made if it is missing.")
    ] = None,
    aggregator: Annotated[
        str,
        typer.Option(help="Public key to seal answers to, from `fedprikl keys`; for federations."),
    ] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="The plan.")] = Path("plan.json"),
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Writes a plan: points, cohorts, skew and noise, and says how much noise to expect.

    Only public quantities go in. Without a trusted aggregator, cohorts are as large as possible,
    because each carries its own noise.

    Example: `fedprikl plan ref.json --clients 500 --records 60000 --epsilon 1`
    """
    pi = Reference.load(reference)
    support = int(np.count_nonzero(pi.mass))
    alone = trust is Trust.NONE
    plan = Plan(
        population=population,
        reference=pi.fingerprint,
        epsilon=epsilon,
        delta=delta,
        points=min(points, support),
        estimator="baseline" if alone else "exact",
        cohort=min(clients, 1000) if alone else 50,
        threshold=threshold,
        aggregator=aggregator,
    )
    signed = SignedPlan.sign(plan, SigningKey.load_or_create(key)) if key else SignedPlan(plan)
    try:
        output.write_text(json_module.dumps(signed.to_dict(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"Cannot write {output}: {error.strerror}.") from None
    expected = None if alone else _expected_noise(plan, pi, records)
    if json:
        print_json(
            {
                "plan": plan.to_dict(),
                "noise_sd": expected,
                "file": str(output),
                "signer": signed.signer,
            }
        )
        return
    console = Console(highlight=False)
    console.print(
        f"{plan.points} of {support} cells are asked, in secure sums of about {plan.cohort} "
        "clients."
    )
    if expected is not None:
        console.print(
            f"With {records:,} records, the noise has a standard deviation of {expected:.3g} nats."
        )
    console.print(f"plan: {output}", soft_wrap=True)


def _expected_noise(plan: Plan, reference: Reference, records: int) -> float:
    points = distinct_points(
        reference.probabilities, plan.points, batches=plan.batches, rng=np.random.default_rng(0)
    )
    return release_mechanism(
        points,
        np.array([records]),
        epsilon=plan.epsilon,
        delta=plan.delta,
        score=plan.score,
        calibration="exact",
        noise=plan.noise,
    ).standard_deviation
