"""Options that several commands have, and the checks of what they name: keys, plans, files."""

import contextlib
import copy
import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.protocol import Policy, SignedPlan
from fedprikl.records import CsvFormat, DatabaseTable, NoClient, Place
from fedprikl.reference import Reference
from fedprikl.store import check_writable

DATA = (".csv", ".csv.gz", ".parquet")
BESIDE = ("", ".lock", "-journal", "-wal", "-shm")  # ends of the files of a database
IS_REFERENCE = re.compile(rb'\s*{\s*"format":\s*"fedprikl-reference"')
SEPARATORS = {"tab": "\t", "\\t": "\t"}

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
FailOnDrift = Annotated[
    bool, typer.Option("--fail-on-drift", help="Exit with code 3 if drift is found.")
]
PlanFile = Annotated[Path, typer.Argument(help="The plan, from `fedprikl plan`.")]
ReferenceFile = Annotated[
    Path | None, typer.Option(help="The reference; default: the plan's own, beside the plan.")
]
LedgerFile = Annotated[Path, typer.Option(help="The privacy ledger.")]
LEDGER = Path("ledger.db")
KeyFile = Annotated[Path, typer.Option(help="The aggregator's signing key; made if it is missing.")]
KEY = Path("aggregator.pem")
PublicKey = Annotated[
    str | None,
    typer.Option("--signer", help="The aggregator's public signing key, 64 hexadecimal digits."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Group = tuple[list[inspect.Parameter], Callable[..., object]]  # options, and what they become


def command_group() -> typer.Typer:
    """What commands of one name are added to."""
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes groups of options: parameters whose type is a dataclass.

    The fields of a group are options like any other; the command gets them as one object.
    """
    groups: dict[str, Group] = {}
    for name, known in inspect.signature(command, eval_str=True).parameters.items():
        kind: Any = known.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = list(inspect.signature(kind).parameters.values()), kind
    return _spread_out(command, groups)


def passed_on(
    function: Callable[..., object], name: str, helps: Mapping[str, Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command some of whose options are parameters of a function: their types and defaults.

    `helps` has the help of each, or a whole `typer.Option`. The command gets them as one mapping,
    to pass on, in its parameter `name`.
    """
    known, passed = inspect.signature(function, eval_str=True).parameters, []
    for option, words in helps.items():
        info = typer.Option(help=words) if isinstance(words, str) else words
        kind: Any = known[option].annotation
        passed.append(known[option].replace(annotation=Annotated[kind, info]))
    return lambda command: _spread_out(command, {name: (passed, dict)})


def _spread_out(command: Callable[..., None], groups: Mapping[str, Group]) -> Callable[..., None]:
    """The command with the options of each group in place of its parameter."""
    options = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, known in inspect.signature(command, eval_str=True).parameters.items()
        for option in (groups[name][0] if name in groups else [known])
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, (own, gather) in groups.items():
            names = [each.name for each in own if each.name in given]
            given[name] = gather(**{each: given.pop(each) for each in names})
        command(**given)

    return _with_options(run, options)


def _with_options(
    command: Callable[..., None], options: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The same command; typer reads these parameters off it."""
    command.__annotations__ = {each.name: each.annotation for each in options}
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return command


def in_panels(
    panels: Mapping[str, Sequence[str]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose help shows its options in these panels, in this order.

    Every option is in a panel; a panel may name options that only other commands have.
    """
    places = {
        name: (title, place) for title, names in panels.items() for place, name in enumerate(names)
    }
    titles = list(panels)

    def arrange(command: Callable[..., None]) -> Callable[..., None]:
        before, options = [], []
        for known in inspect.signature(command).parameters.values():
            info = next(iter(getattr(known.annotation, "__metadata__", ())), None)
            if not isinstance(info, typer.models.OptionInfo):
                before.append(known)
                continue
            own = copy.copy(info)  # several commands share it
            own.rich_help_panel = places[known.name][0]
            kind: Any = get_args(known.annotation)[0]
            options.append(known.replace(annotation=Annotated[kind, own]))
        options.sort(key=lambda each: (titles.index(places[each.name][0]), places[each.name][1]))
        return _with_options(command, [*before, *options])

    return arrange


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one release may spend."""

    largest_epsilon: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more epsilon.")
    ] = Policy().largest_epsilon
    largest_delta: Annotated[
        float, typer.Option(help="Refuse a plan whose release spends more delta.")
    ] = Policy().largest_delta

    @property
    def policy(self) -> Policy:
        """As the library has it; what is no limit is refused."""
        return Policy(largest_epsilon=self.largest_epsilon, largest_delta=self.largest_delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How CSV files are written."""

    separator: Annotated[
        str, typer.Option(help="What separates the fields of CSV files, like ; or tab.")
    ] = ","
    encoding: Annotated[str, typer.Option(help="The encoding of CSV files, like cp1252.")] = "utf-8"

    @property
    def format(self) -> CsvFormat:
        """As the library has it."""
        return CsvFormat(SEPARATORS.get(self.separator, self.separator), self.encoding)


DATABASE = "a database: sqlite:PATH, duckdb:PATH or postgresql://HOST/DATABASE"
TableName = Annotated[
    str, typer.Option(help="Of a database (--data): its table or view, like visits.")
]
SiteData = Annotated[str, typer.Option(help=f"The records: a file, a folder, or {DATABASE}.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecords:
    """The records of all clients: files of their own, or one table in a file or a database."""

    client_column: Annotated[
        str | None,
        typer.Option(help="CLIENTS is one table, and this column of it has the client ids."),
    ] = None
    no_client: Annotated[
        NoClient, typer.Option(help="What becomes of rows without an id; one-each: a client each.")
    ] = "refuse"
    data: Annotated[str | None, typer.Option(help=f"In place of CLIENTS, {DATABASE}.")] = None
    table: TableName = ""
    clients: Annotated[
        Path | None,
        typer.Argument(
            help="A folder with one file or folder per client; or one table (--client-column)."
        ),
    ] = None

    def place(self) -> Place:
        """What is compared; one of both must be given."""
        if self.clients is None and self.data is not None and self.client_column is None:
            raise typer.BadParameter("With --data, name the column of client ids: --client-column.")
        return one_place(self.clients, self.data, self.table, "the clients' files")


def one_place(path: Path | None, data: str | None, table: str, what: str) -> Place:
    """A path, or a table of a database: one of both."""
    if path is None and data is not None:
        return DatabaseTable(data, table)
    if path is None or data is not None:
        raise typer.BadParameter(f"Give {what}, or a database with --data: one of both.")
    if table:
        raise typer.BadParameter("--table is of a database: write --data before the database.")
    return path


def file_of(place: Place) -> Path | None:
    """The file or folder; None for a server."""
    return place if isinstance(place, Path) else place.file


SkipBadFiles = Annotated[
    bool, typer.Option("--skip-bad-files", help="Leave out files that cannot be opened.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFiles:
    """Where a release and its report are written."""

    output: Annotated[Path, typer.Option("--output", "-o", help="The signed release.")] = Path(
        "release.json"
    )
    report: Annotated[Path, typer.Option(help="The report for people.")] = Path("report.html")
    force: Force = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who is told how a series stands: a page, Prometheus, a webhook, a command."""

    site: Annotated[Path | None, typer.Option(help="Write the page into this folder.")] = None
    metrics: Annotated[
        Path | None, typer.Option(help="Write metrics for Prometheus into this file.")
    ] = None
    webhook: Annotated[str, typer.Option(help="Address that gets notifications, as JSON.")] = ""
    webhook_secret: Annotated[
        Path | None,
        typer.Option(help="File with the secret that signs them; else $FEDPRIKL_WEBHOOK_SECRET."),
    ] = None
    command: Annotated[
        str, typer.Option(help="Command that gets notifications, as JSON on its standard input.")
    ] = ""


def given_of(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Which of these options a user gave."""
    sources = {name: context.get_parameter_source(name) for name in names}
    # By its name: newer versions of typer bring a click of their own.
    return [name for name, each in sources.items() if each is not None and each.name != "DEFAULT"]


def check_key(text: str | None, option: str = "--signer") -> str:
    """A public key as it is compared; "" if the option was left out.

    What cannot be a key is wrong usage, also nothing: a variable of a script may not be set.
    """
    if text is None:
        return ""
    key = text.strip().lower()
    if not key:
        raise typer.BadParameter(f"{option} is empty. Give a public key, or leave the option out.")
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise typer.BadParameter(
            f"{option} is malformed: a public key has 64 hexadecimal digits, as `fedprikl keys` "
            "prints them. Nothing was checked."
        )
    return key


def load_reference(path: Path) -> Reference:
    """The reference in a file; data that no reference was made of yet are told apart."""
    try:
        return Reference.load(path)
    except ReferenceFileError:
        if not path.exists() or not path.name.lower().endswith(DATA):
            raise
        raise InvalidInputError(
            f"{path} is no reference: it holds data. If they are public, make a reference of them "
            f"with `fedprikl reference {shlex.quote(str(path))} -o ref.json`, and use ref.json."
        ) from None


def reference_of(plan: Path, signed: SignedPlan, path: Path | None) -> Reference:
    """The reference of a plan: the file that was named, or the one beside the plan."""
    wanted, beside = signed.plan.reference, path is None
    path = path or reference_beside(plan, signed)
    others = ", and no other .json file beside it is the one" if beside else ""
    if not path.exists():
        raise InvalidInputError(
            f"There is no reference {path}{others} that {plan} was made with (fingerprint "
            f"{wanted[:8]}). Name the file with --reference."
        )
    found = load_reference(path)
    if wanted != found.fingerprint:
        raise InvalidInputError(
            f"{plan} was made with another reference than {path} (fingerprint {wanted[:8]}, not "
            f"{found.fingerprint[:8]}){others}. Name the one that it was made with (--reference), "
            "or plan again."
        )
    return found


def reference_beside(plan: Path, signed: SignedPlan) -> Path:
    """The file with a plan's reference in the plan's folder, known by its fingerprint.

    Else ref.json, whether or not there is one.
    """
    usual, wanted = plan.parent / "ref.json", signed.plan.reference
    for path in (usual, *sorted(plan.parent.glob("*.json"))):
        with contextlib.suppress(OSError):
            if not path.is_file():  # a pipe would be waited for
                continue
            with path.open("rb") as file:  # of data, that are no reference, only the beginning
                start = file.read(1000)
                if IS_REFERENCE.match(start) and wanted.encode() in start + file.read():
                    return path
    return usual


def check_apart(
    outputs: Iterable[Path], inputs: Iterable[Path | None], clients: Path | None = None
) -> None:
    """Refuses an output that is one of these inputs, under any name, or lies in one.

    A database stands for the files beside it too, and the folder of the clients for what it links.
    """
    used = [Path(f"{path}{end}") for path in inputs if path is not None for end in BESIDE]
    if clients is not None:
        used += [clients, *(path for path in clients.rglob("*") if path.is_symlink())]
    known = {name: path for path in used for name in _names(path)}
    for output in outputs:
        place = Path(os.path.realpath(output))
        for each in (place, *place.parents):
            found = next((known[name] for name in _names(each) if name in known), None)
            if found is not None:
                raise InvalidInputError(
                    f"Cannot write {output}: it is, or lies in, {found}, which is never "
                    "overwritten. Choose another name. Nothing was written or charged."
                )


def _names(path: Path) -> list[object]:
    """What a file is known by: its path without links and, if it is there, its inode."""
    names: list[object] = [os.path.realpath(path)]
    with contextlib.suppress(OSError):
        found = path.stat()
        names.append((found.st_dev, found.st_ino))
    return names


def check_outputs(
    *paths: Path, force: bool, inputs: Iterable[Path | None] = (), clients: Path | None = None
) -> None:
    """Refuses, before anything is computed or charged, what could not be written at the end.

    Also what would overwrite an input, or lie among the clients' files.
    """
    check_apart(paths, inputs, clients)
    for path in paths:
        if not path.parent.is_dir():
            raise InvalidInputError(f"Cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise InvalidInputError(f"Cannot write {path}: it is a folder.")
        if os.path.lexists(path) and not force:
            raise InvalidInputError(
                f"{path} exists already. Choose another name, or overwrite it with --force."
            )
        check_writable(path)
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInputError(f"Two outputs have the same name, {paths[0]}. Choose another.")
