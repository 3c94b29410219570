"""`fedprikl estimate`: one round over a folder with one file (or folder) per client.

What leaves this command (the release, the report, what is printed, the exit code) follows from
public quantities and from noised values. There is one exception, for the eyes of the operator who
holds all the files: it refuses files whose place or content the ledger knows under another name.
"""

import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from fedprikl.cli.client_files import content_digests, find_clients
from fedprikl.cli.console import notes, print_json, progress_bar, say
from fedprikl.cli.options import check_valid, load_reference, now
from fedprikl.cli.outputs import check_outputs
from fedprikl.cli.reference_command import SEPARATORS
from fedprikl.cli.released import print_release, write_release
from fedprikl.deployment.ledger_anchor import newest_head
from fedprikl.errors import InvalidInputError, LedgerDamagedError, PolicyRefusal
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Aggregator,
    Client,
    Invitation,
    Policy,
    Round,
    Server,
    SignedPlan,
    SigningKey,
    Step,
    run_round,
)
from fedprikl.protocol.policy import check_invitation
from fedprikl.records import count_all
from fedprikl.records.data_files import CsvFormat
from fedprikl.reference import Reference
from fedprikl.reporting import absences

__all__ = ["estimate_command"]

USUAL = Policy()
SOFTWARE = f"fedprikl {version('fedprikl')}"


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
    largest_epsilon: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more epsilon.")
    ] = USUAL.largest_epsilon,
    largest_delta: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more delta.")
    ] = USUAL.largest_delta,
    separator: Annotated[
        str, typer.Option(help="What separates the fields of CSV files, like ; or tab.")
    ] = ",",
    encoding: Annotated[
        str, typer.Option(help="The encoding of CSV files, like cp1252.")
    ] = "utf-8",
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out files that cannot be opened.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="The signed release.")] = Path(
        "release.json"
    ),
    report: Annotated[Path, typer.Option(help="The report for people.")] = Path("report.html"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Runs the protocol with real secure sums, charges the ledger, writes a release and a report.

    All parties run in this process; each client counts its own file. A population without a budget
    gets one that fits all releases of the plan; raise it with `fedprikl ledger`. The same records
    are charged to one population only, whatever they are called.

    Example: `fedprikl estimate plan.json clients/ --ledger ledger.db`
    """
    check_outputs(output, report, force=force)
    at = now()
    signed = SignedPlan.load(plan)
    pi = _load_reference(plan, signed, reference or plan.parent / "ref.json")
    policy = Policy(largest_epsilon=largest_epsilon, largest_delta=largest_delta)
    _check_plan(signed, policy, at)
    form = CsvFormat(SEPARATORS.get(separator, separator), encoding)
    files = find_clients(clients, pi, form=form, skip_bad=skip_bad_files)
    server = Server(signed, pi)
    trial = _rehearse(server, files.used, pi, policy, at)
    signer = SigningKey.load_or_create(key)
    with _open_ledger(ledger, output, signer.public) as book:
        _open_account(book, trial, signer, content_digests(files.used), at)
        members = _count_clients(files.used, pi, form, policy)
        with progress_bar() as progress:
            task = progress.add_task("secure sums", total=len(Step))
            result = run_round(
                server,
                members,
                key=signer,
                ledger=book,
                software=SOFTWARE,
                at=at,
                rng=np.random.default_rng(),
                report=lambda _: progress.advance(task),
            )
        left = round(book.account(signed.plan.population).left, 6)  # 1e-9 is nothing left
    ring = result.round.cohorts[0].sums.ring()
    costs = {
        "bytes of masked counts per client": f"{ring.packed_bytes:,}",
        "epsilon left in the budget": f"{left:.3g}",
    }
    absent = absences(result.refusals.values(), signed.plan.most_records)
    write_release(result.release, signed.plan, costs, output=output, report=report, absent=absent)
    if json:
        more = {"refusals": result.refusals, "left_out": files.bad, "report": str(report)}
        print_json(result.release.to_dict() | more)
        return
    print_release(result.release, absent)
    say(f"\nBudget left for {signed.plan.population}: epsilon {left:.3g}")
    say(f"signer, for `fedprikl verify --key`: {result.release.signer}")
    say(f"release: {output}\nreport: {report}")


def _load_reference(plan: Path, signed: SignedPlan, path: Path) -> Reference:
    if not path.exists():
        raise InvalidInputError(f"There is no reference {path}. Name the file with --reference.")
    found = load_reference(path)
    if signed.plan.reference != found.fingerprint:
        raise InvalidInputError(
            f"{plan} was made with another reference than {path}. Name the one that it was made "
            "with (--reference), or plan again."
        )
    return found


def _open_ledger(path: Path, output: Path, public: str) -> Ledger:
    """The ledger, unless the releases beside it or the output were charged to a newer one."""
    folders = {path.parent.resolve(), output.parent.resolve()}
    heads = [head for folder in folders if (head := newest_head(folder, public))]
    newest = max(heads, key=lambda head: head.count, default=None)
    if newest is None:
        return Ledger.open(path)
    try:
        if path.exists():
            return Ledger.open(path, anchor=newest)
        found = f"There is no ledger {path}."
    except LedgerDamagedError as error:
        found = str(error)
    raise LedgerDamagedError(
        f"{found} A release that lies here was charged to a ledger with {newest.count} entries or "
        "more, signed with the same key. Bring that ledger back, or name it with --ledger. To "
        "begin anew with other people, use a new folder."
    )


def _check_plan(signed: SignedPlan, policy: Policy, at: str) -> None:
    """Refuses a plan that was changed, is not valid now, or asks for more than the user allows."""
    plan = signed.plan
    if signed.signer and not signed.is_signed_by(signed.signer):
        raise InvalidInputError("The plan was changed after it was signed. Make it again.")
    check_valid(plan, at)
    for name, wanted, largest in (
        ("epsilon", plan.epsilon, policy.largest_epsilon),
        ("delta", plan.delta, policy.largest_delta),
    ):
        if wanted > largest:
            raise InvalidInputError(
                f"The plan spends {name} {wanted:g} on one release, and at most {largest:g} is "
                f"allowed. Raise --largest-{name} if you mean it, or plan with less."
            )


def _rehearse(
    server: Server, files: Mapping[str, Path], reference: Reference, policy: Policy, at: str
) -> Round:
    """A round that is never run: what clients would refuse is refused before they count."""
    trial = server.open_round(sorted(files), rng=np.random.default_rng(), randomness=os.urandom)
    for cohort in trial.cohorts:
        try:
            check_invitation(Invitation.to_member(trial, cohort, 0), policy, reference, at=at)
        except PolicyRefusal as refusal:
            raise InvalidInputError(f"The clients would refuse: {refusal.reason}.") from None
    return trial


def _open_account(
    book: Ledger, trial: Round, signer: SigningKey, records: Mapping[str, str], at: str
) -> None:
    """The budget of the population and of these very records; refuses what does not fit into it."""
    plan = trial.plan
    aggregator = Aggregator(trial, key=signer, ledger=book, software=SOFTWARE)
    if plan.population in book.populations():
        aggregator.check_budget()
        book.bind_records(plan.population, records, at=at)
        return
    book.bind_records(plan.population, records, at=at)
    epsilon, delta = plan.budget
    book.set_budget(plan.population, epsilon=epsilon, delta=delta, at=at)
    many = "this one release" if plan.releases == 1 else f"{plan.releases} releases"
    say(
        f"{plan.population!r} had no budget; it is now epsilon {epsilon:g}, delta {delta:g}, for "
        f"{many}.",
        console=notes,
    )
    aggregator.check_budget()


def _count_clients(
    files: Mapping[str, Path], reference: Reference, form: CsvFormat, policy: Policy
) -> dict[str, Client]:
    """Each client counts its own records. What it could say about them stays with it."""
    with progress_bar() as progress:
        task = progress.add_task("counting records", total=len(files))
        found = count_all(files, reference, format=form, report=lambda _: progress.advance(task))
    return {
        name: Client(counted.counts, reference, policy=policy, randomness=os.urandom)
        for name, counted in found.require_all().items()
    }
