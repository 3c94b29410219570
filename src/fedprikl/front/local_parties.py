"""All parties of a round in this process: whose records count, who is charged, who releases."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.errors import InvalidInputError, RecordsError, ReleaseRefused
from fedprikl.front.bookkeeping import ClientRecords, open_account
from fedprikl.front.checking import Progress, silent
from fedprikl.libraries import narwhals as nw
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import (
    Aggregator,
    Client,
    Plan,
    Policy,
    Round,
    RoundResult,
    Server,
    SignedPlan,
    SigningKey,
    draw_of,
    run_round,
)
from fedprikl.protocol.client import NO_RECORDS
from fedprikl.protocol.keys import SMALLEST
from fedprikl.records import (
    CsvFormat,
    Days,
    FileRecords,
    FrameRecords,
    NoClient,
    Place,
    RecordCounts,
    TimeSlice,
    check_all,
    check_once,
    count_all,
    count_by_client,
    open_table,
)
from fedprikl.records.sources import ANY, named_days
from fedprikl.reference import Reference
from fedprikl.secure_sum.masking import AgreeOnce

ONE_EACH = "Give one data frame, array or file per client: a list, a mapping of names, or a folder."
ONE_TABLE = (
    "If it is one table with the records of all clients, name its column with their ids: "
    "--client-column (in Python: client)."
)


TOO_FEW = "holds {} clients; a secure sum needs 3."


@dataclass(frozen=True, slots=True, eq=False)
class ClientSources:
    """The records of each client, by its name; and why others were left out."""

    used: dict[str, ClientRecords]
    bad: dict[str, str]
    bad_words: str = ""  # empty if all can be used
    counted: dict[str, RecordCounts] | None = None  # of one table, by made-up names of clients

    @property
    def names(self) -> Iterable[str]:
        """Of the clients that are asked."""
        return self.used if self.counted is None else self.counted


def find_clients(
    clients: Any,
    reference: Reference,
    *,
    form: CsvFormat,
    skip_bad: bool,
    drawn: bool = False,
    days: Days | None = None,
) -> ClientSources:
    """The clients of a folder, a mapping of names, or a list.

    A source is bad if it cannot be opened or lacks a column: that is known from its header, so
    that whether it is left out never depends on a record. Where records are `drawn`, whole clients
    are protected: one without files, or with files that hold nothing, is not bad. With `days`,
    only the files named after them are opened; they may lie in folders by period or by client.
    A file that two clients or periods share, by whatever link, is refused: it counts once.
    """
    found = _named(clients if days is None else _by_period(clients))
    bad = check_all(found, reference, format=form, drawn=drawn, days=days)
    words = _listed(bad, found) if bad else ""
    if bad and not skip_bad:
        raise RecordsError(
            f"{words}\nNothing was counted. Mend them, or leave them out with --skip-bad-files "
            "(in Python: skip_bad_files=True)."
        )
    used = {name: source for name, source in found.items() if name not in bad}
    check_once((s for s in used.values() if isinstance(s, Path)), by_name=days is not None)
    if len(used) < SMALLEST:
        where = clients if isinstance(clients, str | Path) else "The list of clients"
        raise InvalidInputError(f"{where} {TOO_FEW.format(len(used))}")
    return ClientSources(used, bad, words)


def _named(clients: Any) -> dict[str, ClientRecords]:
    """The source of each client; names of a list are paths, or numbers."""
    match clients:
        case str() | Path():
            return {path.name: path for path in _entries(Path(clients))}
        case Mapping():
            if not all(isinstance(name, str) and name.strip() for name in clients):
                raise InvalidInputError(
                    "The names of clients must be texts, none of them empty; for example "
                    "{str(k): frame}."
                )
            found = {name: _source(source, name) for name, source in clients.items()}
        case _:
            found = _numbered(clients)
    frames = [
        id(s.records)
        for s in found.values()
        if isinstance(s, FrameRecords) and not (isinstance(s.records, tuple) and not s.records)
    ]
    if len(set(frames)) < len(frames):
        raise InvalidInputError(
            "Two clients have the same records. Each record would count twice, but it is protected "
            "as one. Name every frame once."
        )
    return found


def _numbered(clients: Any) -> dict[str, ClientRecords]:
    single = _is_frame(clients) or isinstance(clients, np.ndarray | bytes)
    if single or not isinstance(clients, Iterable):
        raise InvalidInputError(
            f"The clients are one {type(clients).__name__}. {ONE_EACH} {ONE_TABLE}"
        )
    sources = list(clients)
    if any(isinstance(each, tuple) and len(each) == 2 and _is_frame(each[1]) for each in sources):
        raise InvalidInputError(
            f"The clients are pairs of a name and a frame. {ONE_EACH} For a groupby: "
            "{str(k): g for k, g in grouped}."
        )
    width = len(str(len(sources)))
    found: dict[str, ClientRecords] = {}
    for number, source in enumerate(sources, start=1):
        name = str(source) if isinstance(source, str | Path) else f"client {number:0{width}}"
        if name in found:
            raise InvalidInputError(f"The client {name} is listed twice. Name every file once.")
        found[name] = _source(source, name)
    return found


def _source(source: Any, name: str) -> ClientRecords:
    """One client's records; what can only be read once is refused."""
    if isinstance(source, str | Path):
        return Path(source)
    listed = isinstance(source, np.ndarray | Sequence) and not isinstance(source, bytes)
    if _is_frame(source) or listed:
        return FrameRecords(source)
    raise InvalidInputError(
        f"The records of {name} are of the type {type(source).__name__}. {ONE_EACH}"
    )


def _is_frame(source: Any) -> bool:
    return nw.from_native(source, pass_through=True) is not source


def _by_period(folder: Path) -> Path | dict[str, Path]:
    """The clients whose files lie in folders by period, under the same name in each of them."""
    periods = [entry for entry in _entries(folder) if entry.is_dir() and named_days(entry)]
    names = {entry.name for period in periods for entry in _entries(period)}
    return {name: folder / ANY / name for name in sorted(names)} if periods else folder


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        if folder.exists():
            raise InvalidInputError(
                f"{folder} is not a folder with one file per client. {ONE_TABLE}"
            )
        raise InvalidInputError(f"There is no file or folder {folder}. Check the path.")
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    except OSError as error:
        raise InvalidInputError(f"Cannot read {folder}: {error.strerror}.") from None


def _listed(bad: Mapping[str, str], found: Mapping[str, ClientRecords]) -> str:
    """Each fault once, with the first clients that have it."""
    places = {name: str(s) if isinstance(s, Path) else name for name, s in found.items()}
    one, many = "file or folder", "files or folders"
    if not all(isinstance(found[name], Path) for name in bad):
        one, many = "source", "sources"
    what = f"1 {one}" if len(bad) == 1 else f"{len(bad)} {many}"
    alike: dict[str, list[str]] = {}
    for name, why in bad.items():
        alike.setdefault(why.replace(places[name], ""), []).append(name)
    lines = [f"- {bad[names[0]]}{_others(names[1:])}" for names in alike.values()]
    one_each = (" ".join(line.split("\n")) for line in lines)  # a name may hold a line break
    return "\n".join([f"{what} of clients cannot be used.", *one_each])


def _others(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f" The same is true of {', '.join(names[:2])}{more}."


SOFTWARE = f"fedprikl {version('fedprikl')}"


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalParties:
    """Clients, aggregator and server of the rounds of a plan, and how clients' files are read."""

    signed: SignedPlan
    reference: Reference
    policy: Policy
    signer: SigningKey | str | Path | None  # the key, or its path; None: a fresh one
    form: CsvFormat
    skip_bad_files: bool = False
    source: NoiseSource = SECURE_NOISE
    progress: Progress = silent
    note: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        """Refuses what would fail later, when the budget is charged."""
        if not isinstance(self.signer, SigningKey | str | Path | None):
            raise InvalidInputError(
                f"`key` is a SigningKey or the path of one, got {type(self.signer).__name__}."
            )
        if not hasattr(self.source, "insecure"):
            raise InvalidInputError(
                f"`source` draws the noise, got {type(self.source).__name__}: leave it out."
            )

    @property
    def plan(self) -> Plan:
        """What all have agreed on."""
        return self.signed.plan

    @cached_property
    def key(self) -> SigningKey:
        """The key that signs; a file is made if it is missing, when it is first needed."""
        if self.signer is None:
            return SigningKey.generate()
        if isinstance(self.signer, SigningKey):
            return self.signer
        return SigningKey.load_or_create(self.signer)

    @cached_property
    def server(self) -> Server:
        """Refuses another reference than that of the plan."""
        return Server(self.signed, self.reference)

    @property
    def drawn(self) -> bool:
        """Whether clients draw their records: then whole clients are protected."""
        return self.plan.unit.kind == "client"

    def find(self, clients: Any, days: Days | None = None) -> ClientSources:
        """Whose records are counted, by what is known from headers; notes who is left out."""
        found = find_clients(
            clients,
            self.reference,
            form=self.form,
            skip_bad=self.skip_bad_files,
            drawn=self.drawn,
            days=days,
        )
        if found.bad:
            self.note(f"Left out: {found.bad_words}")
        return found

    def split(
        self, table: Any, column: str, no_client: NoClient, times: TimeSlice | None = None
    ) -> ClientSources:
        """The clients of one table, counted in one pass; nothing of it leaves.

        Refuses rows without a client, if they are to be refused. With `times`, of these only.
        """
        counted = count_by_client(
            open_table(table, format=self.form),
            self.reference,
            column,
            no_client=no_client,
            draw=draw_of(self.plan),
            times=times,
        )
        if len(counted) < SMALLEST:
            raise InvalidInputError(f"The table {TOO_FEW.format(len(counted))}")
        source = Path(table) if isinstance(table, str) else table
        if not isinstance(source, Place):
            source = FrameRecords(source)
        return ClientSources({"the table": source}, {}, counted=counted)

    def open_account(
        self, book: Ledger, rehearsed: Round, records: Mapping[str, str], *, at: str
    ) -> None:
        """The budget of the population and of these records, for a round like the rehearsed one."""
        aggregator = Aggregator(rehearsed, key=self.key, ledger=book, software=SOFTWARE)
        open_account(aggregator, book, self.plan, records, at=at, note=self.note)

    def count(self, sources: Mapping[str, ClientRecords | FileRecords]) -> dict[str, RecordCounts]:
        """Each client counts its own records, or those it draws; more than that stays with it."""
        done = 0

        def count_one(_: str) -> None:
            nonlocal done
            done += 1
            self.progress("counting records", done, len(sources))

        draw = draw_of(self.plan)
        return count_all(sources, self.reference, format=self.form, draw=draw, report=count_one)

    def members(
        self, counted: Mapping[str, RecordCounts], period: int | None = None
    ) -> tuple[dict[str, Client], dict[str, str]]:
        """The clients that take part, and why others stay away; none does in most plans.

        Refuses a round that too few are left for; nothing was sent or charged.
        """
        away: dict[str, str] = {}
        if self.plan.unit.kind == "client" and self.plan.unit.empty == "away":
            away = {name: NO_RECORDS for name, found in counted.items() if found.total == 0}
        left, least = len(counted) - len(away), SMALLEST * self.plan.sums.batches
        words = f"{len(away)} of {len(counted)} clients hold no records and stay away, as the plan"
        if away:
            self.note(f"{words} says.")
        if away and left < least:
            raise ReleaseRefused(
                f"{words} says. {left} are left, and the secure sums of the plan need {least}. "
                "Nothing was sent and nothing was charged. Let more clients take part, or plan "
                "with empty='reference'."
            )
        agreement = AgreeOnce()
        members = {
            name: Client(
                found.counts,
                self.reference,
                views=found.views,
                policy=self.policy,
                randomness=os.urandom,
                source=self.source,
                period=period,
                agreement=agreement,
            )
            for name, found in counted.items()
            if name not in away
        }
        return members, away

    def run(self, members: Mapping[str, Client], book: Ledger | None, **more: Any) -> RoundResult:
        """One round, charged to the ledger before anything is opened; `more` as in `run_round`."""
        return run_round(
            self.server,
            members,
            key=self.key,
            ledger=book,
            software=SOFTWARE,
            source=self.source,
            **more,
        )
