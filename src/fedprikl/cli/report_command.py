"""`fedprikl report`: a client's one message to each of three servers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedprikl.cli.console import notes, print_json, say
from fedprikl.cli.options import (
    CsvOptions,
    Json,
    Limits,
    PlanFile,
    ReferenceFile,
    check_key,
    grouped,
    reference_of,
)
from fedprikl.deployment.reporter import ATTEMPTS, ReportJob, prepare, report
from fedprikl.documents import to_plain
from fedprikl.protocol import Policy, SignedPlan


@grouped
def report_command(
    plan: PlanFile,
    limits: Limits,
    csv: CsvOptions,
    data: Annotated[
        Path | None,
        typer.Argument(help="The records: a file or a folder. May be left out with --dry-run."),
    ] = None,
    reference: ReferenceFile = None,
    period: Annotated[
        int | None,
        typer.Option(help="Of a series: which period.", show_default="the last that is over"),
    ] = None,
    organiser: Annotated[
        str | None,
        typer.Option(
            help="Public key that must have signed the plan, which names the servers.",
            show_default="any",
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(help="This client's folder; default: $FEDPRIKL_HOME or ~/.fedprikl."),
    ] = None,
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="Certificates the servers are trusted by.", show_default="the system's"),
    ] = None,
    attempts: Annotated[
        int, typer.Option(min=1, help="How often each server is tried; pauses double.")
    ] = ATTEMPTS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave, and send nothing.")
    ] = False,
    show_counts: Annotated[
        bool, typer.Option("--show-counts", help="With --dry-run: also the counts. PRIVATE.")
    ] = False,
    json: Json = False,
) -> None:
    """Reports this client's records to the three servers of a plan: one message each, no answer.

    The counts leave only as shares, of which any one is random, each sealed to its server. The
    report is kept in the client's folder before it leaves: run again, the same bytes are sent to
    the servers that lack them, and the records are not read. With --dry-run --json it prints all
    that an app in another language needs: keys, addresses, and the cells to count, in order.

    Example: `fedprikl report plan.json records.csv --root-certificates servers.pem`

    Example: `fedprikl report plan.json records.csv --dry-run`
    """
    if data is None and (show_counts or not dry_run):
        raise typer.BadParameter("Give the records: a file or a folder.")
    if show_counts and not dry_run:
        raise typer.BadParameter("--show-counts shows what --dry-run counts: give both.")
    signed = SignedPlan.load(plan)
    asked: dict[str, Any] = {
        "reference": reference_of(plan, signed, reference),
        "period": period,
        "home": home,
        "policy": Policy(
            largest_epsilon=limits.largest_epsilon,
            largest_delta=limits.largest_delta,
            organisers=frozenset({check_key(organiser, "--organiser")} - {""}),
        ),
    }
    if dry_run:
        job = prepare(signed, **asked)
        counts = None if data is None else job.count(data, csv.format).tolist()
        _show(job, counts if show_counts else None, json)
        return
    done = report(
        signed,
        data,
        **asked,
        roots=root_certificates,
        csv_format=csv.format,
        attempts=attempts,
        note=lambda text: say(text, console=notes),
    )
    if done.repeated:
        say(
            f"This report was made by an earlier call: {data} was not read. For another client on "
            "this machine, give each client a folder of its own: --home.",
            console=notes,
        )
    if json:
        print_json({"done": True, **to_plain(done)})
        return
    again = " It was made by an earlier call; no records were read." if done.repeated else ""
    say(f"Done: all three servers have the report {done.report_id}.{again}")


def _show(job: ReportJob, counts: list[int] | None, json: bool) -> None:
    """What would leave. Counts only if they were asked for."""
    plan, sizes, cells = job.plan, job.sizes, job.cells
    if json:
        found = {
            "plan": plan.fingerprint,
            "period": job.period,
            "suite": job.servers.suite,
            "servers": list(job.servers.sealing),
            "addresses": list(job.servers.addresses),
            "bytes": list(sizes.values()),
            "cells": cells,
            "kept": job.path.exists(),
        }
        print_json(found | ({} if counts is None else {"counts": counts}))
        return
    say("Nothing was sent. A report of this plan would be:")
    for server, (address, size) in enumerate(sizes.items(), start=1):
        what = "the seed of random numbers" if server == 1 else "numbers, each random by itself"
        say(f"  {size:,} bytes to {address}: {what}, sealed ({job.servers.suite})")
    for name, labels in cells.items():
        say(f"  counts of {len(labels):,} cells of {name or 'the whole'}, and of all other records")
    say(f"  and the number of records; period {job.period}, plan {plan.fingerprint[:16]}")
    if job.unchecked:
        say(job.unchecked, console=notes)
    if job.path.exists():
        say(f"  A report was made before: {job.path}. Its bytes would be sent, not new counts.")
    if counts is not None:
        say(f"PRIVATE, the counts in this order: {' '.join(map(str, counts))}")
