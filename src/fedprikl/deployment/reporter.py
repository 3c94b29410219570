"""A client of three servers: counts its records, makes one report, sends it, and is done.

A report is kept in a file before any of it leaves. A second call for the same plan and period sends
the same bytes and counts nothing. So servers never get two reports of one client with different
counts, whatever was cut off in between. The file holds what was sealed and no count.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedprikl.checks import Ints
from fedprikl.deployment.delivery import deliver
from fedprikl.deployment.settings import Home, home_folder, now
from fedprikl.documents import Format, canonical, parse_document, read_exactly, read_file, to_plain
from fedprikl.errors import DeploymentError, InvalidInputError, PolicyRefusal
from fedprikl.monitoring.counted_records import records_asked
from fedprikl.protocol import Plan, Policy, Servers, SignedPlan, SigningKey, draw_of
from fedprikl.protocol.client import check_over, check_parts, check_plan, check_records
from fedprikl.protocol.report import make_reports, message_bytes, read_header
from fedprikl.protocol.report_vector import report_entries, report_points, report_vector
from fedprikl.records import CsvFormat, open_records
from fedprikl.reference import QueryPoints, Reference
from fedprikl.secure_sum.line_shares import SERVERS
from fedprikl.store import replace_file, sync_folder

ATTEMPTS = 6  # half a minute, about
FORMAT = Format("report", advice="Finish it with the software that made it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReport:
    """What a client keeps of a report: the sealed messages, and which servers have theirs.

    When all have, only that they have.
    """

    plan: str  # fingerprint
    period: int
    report_id: bytes
    messages: tuple[bytes, ...] = field(repr=False)
    taken: tuple[bool, ...]

    @property
    def is_done(self) -> bool:
        """Whether all servers have their messages."""
        return all(self.taken)

    def with_taken(self, server: int) -> "KeptReport":
        """The report after this server took its message."""
        taken = tuple(
            done or each == server for each, done in zip(SERVERS, self.taken, strict=True)
        )
        return replace(self, taken=taken, messages=() if all(taken) else self.messages)

    @classmethod
    def load(cls, path: Path) -> "KeptReport":
        """The report of a file."""
        document = parse_document(read_file(path, "report"), "report")
        return read_exactly(cls, FORMAT.current(document), "report")

    def save(self, path: Path, *, new: bool = False) -> None:
        """Writes it whole or not at all; `new`: a FileExistsError if there is one already.

        It outlives a power cut: a client that forgot its report would count twice.
        """
        replace_file(path, canonical(self.to_dict()), mode=0o600, new=new)
        sync_folder(path.parent)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {each.name: to_plain(getattr(self, each.name)) for each in fields(self)}
        return {**FORMAT.head, **content}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportJob:
    """What a client is asked to report. All of it is public, and follows from plan and reference.

    Made by `prepare`, which asks the client's policy first.
    """

    plan: Plan
    servers: Servers
    reference: Reference = field(repr=False)
    period: int  # 0 for a plan without a series
    points: QueryPoints | None = field(repr=False)  # of the whole
    home: Home = field(repr=False)
    signer: str = ""  # who signed the plan; empty: one of those whom the policy names

    @property
    def path(self) -> Path:
        """Where the report is kept."""
        return self.home.folder / "reports" / f"{self.plan.fingerprint[:32]}-{self.period}.json"

    @property
    def unchecked(self) -> str:
        """What a client should know that trusts a plan of whoever handed it over; else empty."""
        if not self.signer:
            return ""
        return (
            f"The plan is signed by {self.signer}. Who makes a plan names the three servers, which "
            "together could restore the counts: have the organiser tell you the key, and give it: "
            "--organiser (in Python: policy)."
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes that leave, by address: they depend on nothing but the plan."""
        suite, signed = self.servers.suite, self.plan.roster != ""
        entries = report_entries(self.plan)
        return {
            address: message_bytes(entries, server=server, suite=suite, signed=signed)
            for server, address in zip(SERVERS, self.servers.addresses, strict=True)
        }

    @property
    def cells(self) -> dict[str, list[str]]:
        """The cells that are counted, of each view by its name; empty for the whole domain."""
        views = {view.columns: view for view in self.reference.views}
        found = {}
        for asked in self.plan.views:
            domain = views[asked.columns].domain if asked.columns else self.reference.domain
            cells = list(range(asked.points))
            if self.points is not None and not asked.columns:
                cells = self.points.cells.tolist()
            found[asked.name] = [domain.label(cell) for cell in cells]
        return found

    def count(self, data: Any, csv_format: CsvFormat | None = None) -> Ints:
        """SECRET: the vector, of a file, a folder, a data frame or an array."""
        draw = draw_of(self.plan)
        drawn = draw is not None
        if isinstance(data, str | Path):
            records = records_asked(self.plan, self.period, Path(data), csv_format, drawn=drawn)
        else:
            records = open_records(data, format=csv_format, drawn=drawn)
        counted = records.count(self.reference, draw)
        check_records(self.plan, counted.counts, counted.views)
        return report_vector(self.plan, self.reference, counted, self.points)

    def kept(self) -> KeptReport | None:
        """The report that was made before; None if there is none."""
        if not self.path.exists():
            return None
        found = KeptReport.load(self.path)
        headers = [read_header(message) for message in found.messages]
        mine = (self.plan.fingerprint, self.period, found.report_id)
        said = [(each.plan.hex(), each.period, each.report_id) for each in headers]
        servers = [each.server for each in headers]
        whole = servers == ([] if found.is_done else list(SERVERS)) and set(said) <= {mine}
        if not whole or (found.plan, found.period, len(found.taken)) != (*mine[:2], len(SERVERS)):
            raise InvalidInputError(
                f"{self.path} is not the report of this plan and period, or damaged. Bring it back "
                "from a copy. Without it, nobody knows whether this client has reported."
            )
        return found

    def make(self, vector: Ints) -> KeptReport:
        """Seals a report and keeps it. If another process was faster, its report counts."""
        messages = make_reports(
            vector,
            plan=bytes.fromhex(self.plan.fingerprint),
            period=self.period,
            suite=self.servers.suite,
            servers=self.servers.sealing,
            identity=self._identity(),
        )
        made = KeptReport(
            plan=self.plan.fingerprint,
            period=self.period,
            report_id=read_header(messages[0]).report_id,
            messages=messages,
            taken=(False,) * len(messages),
        )
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made.save(self.path, new=True)
        except FileExistsError:
            return self.kept() or made
        except OSError as error:
            raise InvalidInputError(
                f"Cannot keep the report in {self.path}: {error.strerror}. Nothing was sent."
            ) from None
        return made

    def _identity(self) -> SigningKey | None:
        if not self.plan.roster:
            return None
        if not self.home.identity.exists():
            raise PolicyRefusal(
                f"the plan names a roster, and this client has no identity {self.home.identity}; "
                "`fedprikl keys --site` makes one"
            )
        return SigningKey.load(self.home.identity)


def prepare(
    plan: SignedPlan | Plan | str | Path,
    *,
    reference: Reference | str | Path | None = None,
    period: int | None = None,
    policy: Policy | None = None,
    home: str | Path | None = None,
    at: str | None = None,
) -> ReportJob:
    """What the plan asks of this client; refused where its policy says so. Looks at no record."""
    if isinstance(plan, str | Path):
        reference = Path(plan).parent / "ref.json" if reference is None else reference
        plan = SignedPlan.load(plan)
    if reference is None:
        raise InvalidInputError("Give the reference of the plan: reference=...")
    signed = plan if isinstance(plan, SignedPlan) else SignedPlan(plan)
    found, plan = Reference.of(reference), signed.plan
    policy, at = policy or Policy(), at or now()
    servers = plan.servers
    if servers is None or not (servers.sealing and servers.addresses):
        raise InvalidInputError(
            "The plan names no three servers to report to: `fedprikl plan --trust servers` with "
            "their keys and addresses makes one that does."
        )
    if signed.signer and not signed.is_signed_by(signed.signer):
        raise PolicyRefusal(
            "the plan was changed after it was signed, maybe to name other servers. Take it once "
            "more from its organiser"
        )
    check_plan(signed, policy, found, at=at)
    if plan.budget.epsilon * plan.budget.parts > policy.largest_epsilon:
        check_parts(plan, policy)
    when = plan.when
    if when.kind == "series" and period is None:
        period = max(when.last_over(at), 0)
    check_over(when, period, at=at)
    number = period or 0
    return ReportJob(
        plan=plan,
        servers=servers,
        reference=found,
        period=number,
        points=report_points(plan, found, number),
        home=Home(home_folder() if home is None else Path(home)),
        signer="" if policy.organisers else signed.signer or "nobody",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A report that all three servers have."""

    plan: str  # fingerprint
    period: int
    report_id: str
    sizes: dict[str, int]  # bytes of each message, by address
    repeated: bool  # whether it was made by an earlier call: then no record was read now


def report(
    plan: SignedPlan | Plan | str | Path,
    data: Any,
    *,
    reference: Reference | str | Path | None = None,
    period: int | None = None,
    policy: Policy | None = None,
    home: str | Path | None = None,
    roots: str | Path | None = None,
    csv_format: CsvFormat | None = None,
    attempts: int = ATTEMPTS,
    note: Callable[[str], None] = lambda _: None,
) -> Reported:
    """Reports a client's records to the three servers of a plan; returns when all have the report.

    One call is all that a client does for a plan, or for a period of its series. If it is called
    again, it sends the same bytes to the servers that lack them, and does not look at the data.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([50, 30, 20])
    >>> plan = fk.plan(reference, clients=3, records=60, epsilon=1).plan
    >>> try:
    ...     fk.report(plan, [0, 1, 2, 2], reference=reference)
    ... except fk.InvalidInputError as error:
    ...     print(str(error)[:48])
    The plan names no three servers to report to: `f

    Parameters
    ----------
    plan
        A plan with `trust="servers"`, or its file.
    data
        The client's records: a file, a folder, a data frame or an array. In a series, a data frame
        holds the records of the period only; of files, those of the period are taken.
    reference
        The plan's reference, or its file. Default: ref.json beside the file of the plan.
    period
        Of a series: which. Default: the last that is over.
    policy
        What this client agrees to, whatever the plan says.
    home
        The folder of this client. Default: $FEDPRIKL_HOME, else ~/.fedprikl.
    roots
        A PEM file with the certificates that servers are trusted by: those of authorities, or their
        own. Default: the system's.
    csv_format
        How CSV files are written.
    attempts
        How often each server is tried, with pauses that double from one second.
    note
        Is called with a line for people about each attempt. Never about a record.

    """
    job = prepare(plan, reference=reference, period=period, policy=policy, home=home)
    if job.unchecked:
        note(job.unchecked)
    found, addresses = job.kept(), job.servers.addresses
    kept = job.make(job.count(data, csv_format)) if found is None else found

    def keep(address: str) -> None:
        """A lost note costs a message, no more."""
        nonlocal kept
        kept = kept.with_taken(addresses.index(address) + 1)
        try:
            kept.save(job.path)
        except OSError as error:
            raise DeploymentError(f"Cannot write {job.path}: {error.strerror}.") from None

    if not kept.is_done:
        left = zip(addresses, kept.messages, kept.taken, strict=True)
        messages = {address: message for address, message, done in left if not done}
        deliver(messages, roots=roots, attempts=attempts, taken=keep, note=note)
    return Reported(
        plan=kept.plan,
        period=kept.period,
        report_id=kept.report_id.hex(),
        sizes=job.sizes,
        repeated=found is not None,
    )
