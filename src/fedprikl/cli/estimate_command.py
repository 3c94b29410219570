"""`fedprikl estimate`: one round over a folder with one file (or folder) per client."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedprikl.cli.console import notes, print_json, say, shown_progress
from fedprikl.cli.options import (
    KEY,
    LEDGER,
    ClientRecords,
    CsvOptions,
    FailOnDrift,
    Json,
    KeyFile,
    LedgerFile,
    Limits,
    PlanFile,
    ReferenceFile,
    ReleaseFiles,
    SkipBadFiles,
    check_outputs,
    file_of,
    grouped,
    reference_beside,
    reference_of,
)
from fedprikl.cli.release_output import exit_on_drift, print_release, write_comparison
from fedprikl.front import compare
from fedprikl.privacy import Ledger
from fedprikl.protocol import SignedPlan


@grouped
def estimate_command(
    plan: PlanFile,
    limits: Limits,
    csv: CsvOptions,
    files: ReleaseFiles,
    records: ClientRecords,
    reference: ReferenceFile = None,
    ledger: LedgerFile = LEDGER,
    key: KeyFile = KEY,
    skip_bad_files: SkipBadFiles = False,
    fail_on_drift: FailOnDrift = False,
    json: Json = False,
) -> None:
    """Runs the protocol with real secure sums, charges the ledger, writes a release and a report.

    All parties run in this process; each client counts its own file. A population without a budget
    gets one that fits all releases of the plan; raise it with `fedprikl ledger`. The same records
    are charged to one population only, whatever they are called. If it is killed after the noise
    was drawn, run it again: it finishes the release that was charged, and charges nothing.

    Example: `fedprikl estimate plan.json clients/ --ledger ledger.db`

    Example: `fedprikl estimate plan.json flights.parquet --client-column tailnum --no-client drop`

    Example: `fedprikl estimate plan.json --data postgresql://db.example.org/clinic --table visits
    --client-column id`
    """
    place = records.place()
    signed = SignedPlan.load(plan)
    inputs = (plan, reference or reference_beside(plan, signed), ledger, key)
    output, report = files.output, files.report
    force = files.force or _left_behind((output, report), ledger, signed.plan.population)
    check_outputs(output, report, force=force, inputs=inputs, clients=file_of(place))
    pi = reference_of(plan, signed, reference)

    with shown_progress() as progress:
        result = compare(
            pi,
            place,
            signed,
            ledger=ledger,
            key=key,
            releases=(output.parent,),
            client=records.client_column,
            no_client=records.no_client,
            csv_format=csv.format,
            skip_bad_files=skip_bad_files,
            largest_epsilon=limits.largest_epsilon,
            largest_delta=limits.largest_delta,
            progress=progress,
            note=lambda text: say(text, console=notes),
            keep=partial(write_comparison, output=output, report=report, reference=pi),
        )
    release, absent = result.release, result.absent
    if json:
        print_json(result.to_dict() | {"report": str(report)})
    else:
        print_release(release, absent, result.value_lines)
        say(f"\nBudget of {result.plan.population}: {result.costs['budget']}")
        say(f"signer, for `fedprikl verify --signer`: {release.signer}")
        say(f"release: {output}\nreport: {report}")
    exit_on_drift(release, fail_on_drift)


def _left_behind(outputs: Sequence[Path], ledger: Path, population: str) -> bool:
    """Whether the outputs that are there name a round that is charged and waits to be finished.

    Then a run died after it wrote them, and this run writes the same release again.
    """
    there = [path for path in outputs if path.is_file()]
    if not there or not ledger.exists():
        return False
    with Ledger.open(ledger, create=False) as book, book.unfinished(population) as waiting:
        rounds = [name.encode() for name in waiting]
    try:
        written = [path.read_bytes() for path in there]
    except OSError:
        return False
    return any(all(name in text for text in written) for name in rounds)
