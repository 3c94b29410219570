"""`fedprikl ledger`: what has been spent, on what, and what is left."""

import shlex
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedprikl.cli.console import notes, print_json, say, show, show_table, shown
from fedprikl.cli.options import LEDGER, Json, check_apart
from fedprikl.documents import to_plain
from fedprikl.errors import LedgerError
from fedprikl.privacy import Account, Ledger, Unit, total_epsilon
from fedprikl.privacy.charges import Charge
from fedprikl.privacy.ledger import backup_ledger, left_words, restore_ledger, worthwhile

DEFAULT_DELTA = 1e-6
KINDS = 1  # of noise that are named for each round
_STATES = {
    "open": "[yellow]open, charged[/yellow]",
    "committed": "committed",
    "cancelled": "[dim]cancelled, free[/dim]",
}


def ledger_command(
    file: Annotated[Path, typer.Option("--ledger", help="The privacy ledger.")] = LEDGER,
    population: Annotated[
        str | None, typer.Option(help="Show this population only, with all its rounds.")
    ] = None,
    set_epsilon: Annotated[
        float | None,
        typer.Option(help="Set the budget of the population; makes the file if there is none."),
    ] = None,
    set_delta: Annotated[
        float | None,
        typer.Option(help="Delta of that budget. Default: as it was, or 1e-6; 0 is Laplace only."),
    ] = None,
    unit: Annotated[
        Unit | None,
        typer.Option(
            help="Whose budget it is: every record's, or every client's with all it holds. "
            "Default: as it was, or record."
        ),
    ] = None,
    backup: Annotated[
        Path | None, typer.Option(help="Copy the ledger, verified, to this new file.")
    ] = None,
    restore: Annotated[
        Path | None,
        typer.Option(help="Put this copy back; refused if it lacks an entry of the ledger."),
    ] = None,
    json: Json = False,
) -> None:
    """Shows what has been spent of each population's privacy budget, on what, and what is left.

    The budget is for the people: everything released about them adds up, for ever. A round that
    was reserved and never closed stays charged, as its result may have left before a crash.

    Example: `fedprikl ledger --population phones --set-epsilon 1 --set-delta 1e-6`
    """
    if backup is not None or restore is not None:
        others = (population, set_epsilon, set_delta, unit)
        if any(other is not None for other in (*others, backup and restore)):
            raise typer.BadParameter("--backup and --restore stand alone, but for --ledger.")
        _copy(file, backup, restore, json)
        return
    _check_options(file, population, set_epsilon, {"--set-delta": set_delta, "--unit": unit})
    is_new = not file.exists()
    with Ledger.open(file, create=set_epsilon is not None) as ledger:
        if set_epsilon is not None and population is not None:
            known = {account.population: account.delta for account in ledger.accounts()}
            delta = known.get(population, DEFAULT_DELTA) if set_delta is None else set_delta
            at = datetime.now(UTC).isoformat(timespec="seconds")
            ledger.set_budget(population, epsilon=set_epsilon, delta=delta, at=at, unit=unit)
        if is_new:
            say(
                f"{file} is a new ledger: there was none. If rounds are charged to another one, "
                "remove this file, and name that one: --ledger.",
                console=notes,
            )
        head = ledger.head
        found = ledger.accounts() if population is None else (ledger.account(population),)
    fits = None
    if len(found) == 1:
        with notes.status("computing what would still fit"):
            fits = found[0].fits()
    if json:
        accounts = [account.to_dict() for account in found]
        if fits is not None:
            accounts[0]["fits"] = fits
        print_json({"file": str(file), "head": to_plain(head), "populations": accounts})
        return
    if fits is not None:
        _print_account(found[0], fits)
    elif found:
        _print_overview(found)
    else:
        show("No population has a budget yet; see `fedprikl ledger --help`.")
    show(f"[dim]{head.count} entries, chain whole, head {head.hash[:16]}[/dim]")


def _copy(file: Path, backup: Path | None, restore: Path | None, json: bool) -> None:
    """To a copy, or from it; says which head it has, to be kept elsewhere."""
    if backup is not None:
        check_apart([backup], [file])
        head, words = backup_ledger(file, backup), f"copied to {backup}"
    elif restore is not None:
        head, words = restore_ledger(restore, file), f"restored from {restore}"
    if json:
        print_json({"file": str(file), "head": to_plain(head)})
        return
    say(f"{file}: {words}: {head.count} entries, chain whole, head {head.hash}")


def _check_options(
    file: Path, population: str | None, set_epsilon: float | None, beside: Mapping[str, object]
) -> None:
    """Refuses options that need others, and a ledger that is not there."""
    for name, value in beside.items():
        if set_epsilon is None and value is not None:
            raise typer.BadParameter(f"{name} needs --set-epsilon.")
    if set_epsilon is not None and population is None:
        raise typer.BadParameter("--set-epsilon needs --population: whose budget is it?")
    if set_epsilon is None and not file.exists():
        raise LedgerError(
            f"There is no ledger at {file}. Check --ledger. `fedprikl estimate` creates one, "
            f"and so does `fedprikl ledger --ledger {shlex.quote(str(file))} --population NAME "
            "--set-epsilon 1`."
        )


def _print_overview(accounts: tuple[Account, ...]) -> None:
    head = ("population", "of one", "budget ε", "δ", "spent ε", "left ε", "rounds", "open")
    rows = [
        (
            shown(account.population),
            account.unit,
            f"{account.epsilon:g}",
            f"{account.delta:g}",
            f"{account.spent:.4g}",
            left_words(account),
            str(len(account.rounds)),
            str(len(account.open_rounds)),
        )
        for account in accounts
    ]
    show_table(head, rows, right=range(2, 8), lines=True)


def noise_words(charge: Charge) -> str:
    """The noise of a release; parts with the same noise are counted, and of many kinds one named.

    `--json` has all of them.
    """
    parts = Counter(part.per_unit() for part in getattr(charge, "parts", (charge,)))
    words = [text if times == 1 else f"{times} times {text}" for text, times in parts.items()]
    more = [f"{len(words) - KINDS} more"] if len(words) > KINDS else []
    return " and ".join([*words[:KINDS], *more])


def _print_account(account: Account, fits: dict[str, float]) -> None:
    if account.rounds:
        rows = [
            (
                shown(known.round_id),
                escape(known.at[:16].replace("T", " ")),
                escape(noise_words(known.charge)),
                f"{total_epsilon([known.charge], delta=account.delta):.4g}",
                _STATES[known.state],
                shown(known.note),
            )
            for known in account.rounds
        ]
        head = ("round", "reserved", "noise", "ε alone", "state", "note")
        width = len(head) if any(known.note for known in account.rounds) else len(head) - 1
        show_table(head[:width], [row[:width] for row in rows], right=[3], lines=True)
    show(
        f"{shown(account.population)}: spent epsilon {account.spent:.4g} of {account.epsilon:g} "
        f"(delta {account.delta:g}), {left_words(account)} is left. It is the budget of "
        f"{'one record' if account.unit == 'record' else 'one client, with all it holds'}."
    )
    found = worthwhile(fits, account)
    room = " or ".join(f"{value:g} ({kind.capitalize()})" for kind, value in found.items())
    why = ""
    if max(found.values(), default=0.0) > account.left:
        why = " (more than what is left, because costs of several releases add up to less)"
    show(
        f"One more release fits with epsilon up to {room}{why}."
        if room
        else "No further release fits."
    )
    if account.open_rounds:
        show(
            f"{len(account.open_rounds)} open: running now, or ended by a crash. Charged, as "
            "something may have left. Run the same command again: a release that has its noise is "
            "finished, and nothing more is charged."
        )
