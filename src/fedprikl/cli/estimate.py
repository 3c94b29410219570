"""`fedprikl estimate`: one round over a folder with one file (or folder) per client."""

import json as json_module
import os
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from fedprikl.cli.console import notes, print_json
from fedprikl.errors import InvalidInputError
from fedprikl.federation import (
    Client,
    Plan,
    Policy,
    RoundResult,
    Server,
    SignedPlan,
    SigningKey,
    open_records,
    run_round,
)
from fedprikl.privacy import Ledger
from fedprikl.reference import Reference
from fedprikl.reporting import release_page, release_sentence

__all__ = ["estimate_command"]


def estimate_command(
    plan: Annotated[Path, typer.Argument(help="The plan, from `fedprikl plan`.")],
    clients: Annotated[Path, typer.Argument(help="A folder with one file or folder per client.")],
    reference: Annotated[
        Path | None, typer.Option(help="The reference; default: ref.json beside the plan.")
    ] = None,
    ledger: Annotated[Path, typer.Option(help="The privacy ledger.")] = Path("ledger.db"),
    key: Annotated[
        Path, typer.Option(help="The aggregator's signing key; made if it is missing.")
    ] = Path("aggregator.pem"),
    output: Annotated[Path, typer.Option("--output", "-o", help="The signed release.")] = Path(
        "release.json"
    ),
    report: Annotated[Path, typer.Option(help="The report for people.")] = Path("report.html"),
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Runs the protocol with real secure sums, charges the ledger, writes a release and a report.

    All parties run in this process; each client counts its own file. A population without a budget
    gets one that fits this single release; raise it with `fedprikl ledger`.

    Example: `fedprikl estimate plan.json clients/ --ledger ledger.db`
    """
    start = time.perf_counter()
    signed = SignedPlan.load(plan)
    pi = Reference.load(reference or plan.parent / "ref.json")
    for path in (output, report):
        if not path.parent.is_dir():
            raise InvalidInputError(f"Cannot write {path}: there is no folder {path.parent}.")
    members = _count_clients(clients, pi, signed.plan)
    counted = time.perf_counter()
    at = datetime.now(UTC).isoformat()
    server, signer = Server(signed, pi), SigningKey.load_or_create(key)
    with Ledger.open(ledger) as book, Progress(console=notes, transient=True) as progress:
        _ensure_budget(book, signed.plan, at)
        task = progress.add_task("secure sums", total=len(members))
        result = run_round(
            server,
            members,
            key=signer,
            ledger=book,
            software=f"fedprikl {version('fedprikl')}",
            at=at,
            rng=np.random.default_rng(),
            report=lambda outcome: progress.advance(task, outcome.clients),
        )
        left = round(book.account(signed.plan.population).left, 6)  # 1e-9 is nothing left
    costs = {
        "counting the records": f"{counted - start:.1f} s",
        "secure sums and release": f"{time.perf_counter() - counted:.1f} s",
        "bytes of masked counts per client": f"{_bytes_per_client(result):,}",
        "epsilon left in the budget": f"{left:.3g}",
    }
    _write(result, signed.plan, costs, output, report)
    if json:
        print_json(result.release.to_dict() | {"refusals": result.refusals, "report": str(report)})
        return
    console = Console(highlight=False)
    console.print(f"[bold]{release_sentence(result.release.content)}[/bold]")
    verdict = result.release.content["verdict"]
    console.print("" if verdict is None else f"{verdict['statement']}\n")
    console.print(result.release.content["privacy"]["statement"])
    console.print(f"\nBudget left for {signed.plan.population}: epsilon {left:.3g}")
    console.print(f"release: {output}\nreport: {report}", soft_wrap=True)


def _count_clients(folder: Path, reference: Reference, plan: Plan) -> dict[str, Client]:
    """One client per file or folder; each counts its own records, and is told what it misses."""
    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is not a folder with one file per client.")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    if len(paths) < 3:
        raise InvalidInputError(f"{folder} holds {len(paths)} clients; a secure sum needs 3.")
    policy = Policy(largest_epsilon=max(2.0, plan.epsilon), largest_delta=max(1e-5, plan.delta))
    members, odd = {}, 0
    with Progress(console=notes, transient=True) as progress:
        for path in progress.track(paths, description="counting records"):
            counted = open_records(path).count(reference)
            odd += counted.other > 0
            members[path.name] = Client(
                counted.counts, reference, policy=policy, randomness=os.urandom
            )
    if odd:
        notes.print(
            f"{odd} of {len(paths)} clients hold rows with values the reference does not know; "
            'they are counted as "other".'
        )
    return members


def _ensure_budget(book: Ledger, plan: Plan, at: str) -> None:
    if plan.population not in book.populations():
        delta = plan.delta
        book.set_budget(plan.population, epsilon=plan.epsilon, delta=delta, at=at)
        notes.print(
            f"{plan.population!r} had no budget; it is now epsilon {plan.epsilon:g}, "
            f"delta {delta:g}: this one release."
        )


def _bytes_per_client(result: RoundResult) -> int:
    sums = result.round.cohorts[0].sums
    bits = sum((top * sums.clients).bit_length() for top in sums.maxima)
    return (bits + 7) // 8


def _write(
    result: RoundResult, plan: Plan, costs: dict[str, str], output: Path, report: Path
) -> None:
    """The release first: it is charged, so it must not be lost to a picture."""
    content = result.release.content
    output.write_text(
        json_module.dumps(result.release.to_dict(), indent=2) + "\n", encoding="utf-8"
    )
    report.write_text(release_page(content, plan.to_dict(), costs), encoding="utf-8")
