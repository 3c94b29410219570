"""`make servers-demo`: three servers that nobody has to trust, and 2,000 clients that report once.

Three real server processes collect over HTTPS. Clients report from processes of their own: most
once, some twice, some are cut off after two servers, some send shares of different counts, some
come too late. One server is killed and started again while they report. A second plan is answered
after one server is lost for good. Prints the verdict, the columns, what was planted, and how right
it all was.
"""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import fedprikl as fk
from fedprikl.deployment.delivery import deliver, post, trusted_context
from fedprikl.deployment.reporter import ReportJob, prepare
from fedprikl.errors import DeploymentError
from fedprikl.protocol import Release, Servers, SignedPlan, SigningKey
from fedprikl.protocol.report import make_reports
from fedprikl.reporting import release_page, release_words

CLIENTS, SECOND, RECORDS = 2000, 300, 20
TWICE, CUT, LIARS, LATE = 100, 60, 20, 40  # of the clients of the first plan, each one of these
CARRIERS = ("Kestrel", "Heron", "Osprey", "Swift")
BEFORE, AFTER = (0.4, 0.3, 0.2, 0.1), (0.33, 0.37, 0.2, 0.1)
PLANTED = {"carrier"}
PROCESSES, BATCH = 8, 25
ATTEMPTS = 8  # of a client: a server may be away for a minute
REPORT = Path("servers-report.html")


def flights(rng: np.random.Generator, rows: int, shares: Sequence[float]) -> np.ndarray:
    """Carriers and delays, as a table of text."""
    carriers = rng.choice(CARRIERS, rows, p=shares)
    return np.column_stack([carriers, np.round(rng.exponential(15.0, rows), 1).astype(str)])


def write(path: Path, rows: np.ndarray) -> Path:
    """A CSV file."""
    lines = [",".join(row) for row in rows.tolist()]
    path.write_text("\n".join(["carrier,delay", *lines]) + "\n", encoding="utf-8")
    return path


@dataclass
class ThreeServers:
    """Three folders and their processes."""

    folder: Path
    running: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)

    def home(self, number: int) -> Path:
        """The folder of a server."""
        return self.folder / f"server{number}"

    def create(self, organiser: str) -> Servers:
        """Keys and cards, exchanged; what a plan says about the three."""
        self.ports = free_ports(6)
        made = [
            command(
                *("server", "init", self.home(n), "--organiser", organiser, "--json"),
                *("--address", f"https://127.0.0.1:{self.ports[n - 1]}"),
                *("--peer", f"127.0.0.1:{self.ports[n + 2]}"),
            )
            for n in (1, 2, 3)
        ]
        finish(made)
        cards = [self.home(n) / "card.json" for n in (1, 2, 3)]
        said = self.folder / "servers.json"
        written = command("server", "cards", said, *cards, "--lost", "counts")
        finish([*(command("server", "join", self.home(n), *cards) for n in (1, 2, 3)), written])
        roots = b"".join((self.home(n) / "ca.pem").read_bytes() for n in (1, 2, 3))
        (self.folder / "roots.pem").write_bytes(roots)
        return Servers.load(said)

    def accept(self, plan: Path) -> None:
        """All three take reports of a plan."""
        finish([command("server", "accept", self.home(n), plan, "--budget", 2) for n in (1, 2, 3)])

    def start(self, *numbers: int) -> None:
        """Starts collectors, and waits until they answer."""
        for number in numbers:
            self.running[number] = command(
                *("server", "run", self.home(number), "--host", "127.0.0.1"),
                *("--port", self.ports[number - 1]),
            )
        for number in numbers:
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", self.ports[number - 1])).close()
                    break
                if self.running[number].poll() is not None:
                    raise DeploymentError(f"Server {number} did not start.")
                time.sleep(0.05)

    def kill(self, number: int) -> None:
        """Ends a collector without a goodbye."""
        self.running[number].kill()
        self.running.pop(number).wait()

    def stop(self) -> None:
        """Ends all of them cleanly."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            process.wait(20)

    def answer(self, plan: Path, *numbers: int, lost: int | None = None) -> Release:
        """The release that these servers sign together."""
        options = ["--wait", 60, "--json", *([] if lost is None else ["--without", lost])]
        finish([command("server", "answer", self.home(n), plan, *options) for n in numbers])
        wanted = SignedPlan.load(plan).plan.fingerprint
        for path in (self.home(numbers[0]) / "releases").glob("*.json"):
            release = Release.load(path)
            if release.plan == wanted:
                return fk.verify(release, plan=plan)
        raise DeploymentError("There is no release.")


def command(*words: object) -> "subprocess.Popen[bytes]":
    """Starts `fedprikl` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fedprikl", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if words[1] != "run" else subprocess.DEVNULL,
    )


def finish(started: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Waits for all of them; the words of the first that failed."""
    said = [process.communicate()[1] for process in started]
    for process, words in zip(started, said, strict=True):
        if process.returncode:
            raise DeploymentError(words.decode().strip())


def free_ports(size: int) -> list[int]:
    """Ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(size)]
        return [each.getsockname()[1] for each in opened]


def report_batch(kind: str, plan: Path, files: Sequence[Path], roots: Path) -> int:
    """Runs in a process of its own: some clients, one after the other; how many were accepted."""
    signed, reference = SignedPlan.load(plan), fk.Reference.load(plan.with_name("ref.json"))
    accepted = 0
    for file in files:
        job = prepare(signed, reference=reference, home=file.with_suffix(""))
        try:
            REPORTERS[kind](job, file, roots)
            accepted += 1
        except DeploymentError:
            if kind != "late":
                raise
    return accepted


def once(job: ReportJob, file: Path, roots: Path) -> None:
    """What `fedprikl report` does."""
    fk.report(
        SignedPlan(job.plan),
        file,
        reference=job.reference,
        home=file.with_suffix(""),
        roots=roots,
        attempts=ATTEMPTS,
    )


def twice(job: ReportJob, file: Path, roots: Path) -> None:
    """The answers were lost on their way: all messages are sent again."""
    made = job.make(job.count(file))
    once(job, file, roots)
    _deliver(job, made.messages, roots)


def cut(job: ReportJob, file: Path, roots: Path) -> None:
    """The client is switched off after the second server."""
    messages = job.make(job.count(file)).messages
    _deliver(job, messages[:2], roots)
    post(job.servers.addresses[2], messages[2][:-100], trusted_context(roots))


def lie(job: ReportJob, file: Path, roots: Path) -> None:
    """Shares of one vector for two servers, and of a hundred times as much for the third."""
    vector, identity = job.count(file), np.random.default_rng().bytes(16)
    drawn = [iter([identity, np.random.default_rng().bytes(32), bytes(32)]) for _ in range(2)]
    one, other = (
        make_reports(
            counts,
            plan=bytes.fromhex(job.plan.fingerprint),
            period=0,
            suite=job.servers.suite,
            servers=job.servers.sealing,
            randomness=partial(_next, draws),
        )
        for counts, draws in zip((vector, 100 * vector), drawn, strict=True)
    )
    _deliver(job, (one[0], one[1], other[2]), roots)


def _next(draws: Iterator[bytes], _: int) -> bytes:
    return next(draws)


def _deliver(job: ReportJob, messages: Sequence[bytes], roots: Path) -> None:
    sent = dict(zip(job.servers.addresses, messages, strict=False))
    deliver(sent, roots=roots, attempts=ATTEMPTS, taken=lambda _: None)


REPORTERS = {"once": once, "twice": twice, "cut": cut, "lie": lie, "late": once}


def report_all(
    pool: ProcessPoolExecutor, plan: Path, kinds: Sequence[tuple[str, Sequence[Path]]], roots: Path
) -> list["Future[int]"]:
    """Clients of all kinds, mixed, in batches."""
    batches = [
        (kind, files[i : i + BATCH]) for kind, files in kinds for i in range(0, len(files), BATCH)
    ]
    np.random.default_rng(1).shuffle(batches)
    return [pool.submit(report_batch, kind, plan, files, roots) for kind, files in batches]


def main() -> int:
    """Runs the demo; 0 if all that was planted was found, and exactly the right reports counted."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fedprikl-"))
    servers = ThreeServers(folder)
    try:
        return _run(folder, servers, began)
    finally:
        servers.stop()
        shutil.rmtree(folder)


def _run(folder: Path, servers: ThreeServers, began: float) -> int:
    rng, organiser = np.random.default_rng(), SigningKey.generate()
    _say("three organisations make keys and exchange their cards")
    named = servers.create(organiser.public)
    public = write(folder / "public.csv", flights(rng, 20_000, BEFORE))
    reference = fk.fit_reference(public, bins=4)
    reference.save(folder / "ref.json")
    planned = fk.plan(
        reference,
        clients=CLIENTS,
        records=CLIENTS * RECORDS,
        epsilon=1,
        ask=("columns",),
        population="flights",
        trust="servers",
    ).plan
    plans = [
        _sign(
            replace(planned, servers=named).changed(serial=n), folder / f"plan{n}.json", organiser
        )
        for n in (1, 2)
    ]
    for plan in plans:
        servers.accept(plan)
    (folder / "clients").mkdir()
    files = [
        write(folder / "clients" / f"{n:04}.csv", flights(rng, RECORDS, AFTER))
        for n in range(CLIENTS)
    ]
    ends = np.cumsum([TWICE, CUT, LIARS, LATE]).tolist()
    late = files[ends[2] : ends[3]]
    kinds = [
        ("twice", files[: ends[0]]),
        ("cut", files[ends[0] : ends[1]]),
        ("lie", files[ends[1] : ends[2]]),
        ("once", files[ends[3] :]),
    ]
    servers.start(1, 2, 3)
    roots = folder / "roots.pem"
    _say(f"{CLIENTS - LATE:,} clients report, {time.monotonic() - began:.0f} s")
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        first = report_all(pool, plans[0], kinds, roots)
        _kill_and_restart(servers, first)
        for batch in first:
            batch.result()
        _say(f"all have reported; the servers answer, {time.monotonic() - began:.0f} s")
        release = servers.answer(plans[0], 1, 2, 3)
        refused = [pool.submit(report_batch, "late", plans[0], late[i::2], roots) for i in (0, 1)]
        second = report_all(pool, plans[1], [("once", files[-SECOND:])], roots)
        accepted_late = sum(each.result() for each in refused)
        for batch in second:
            batch.result()
    servers.kill(3)
    shutil.rmtree(servers.home(3))
    _say("server 3 is lost for good, with its disk; the other two answer the second plan")
    after = servers.answer(plans[1], 1, 2, lost=3)
    page = release_page(release, SignedPlan.load(plans[0]).plan, {})
    REPORT.write_text(page, encoding="utf-8")
    return _judge(release, after, accepted_late, time.monotonic() - began)


def _sign(plan: fk.Plan, path: Path, organiser: SigningKey) -> Path:
    path.write_text(json.dumps(SignedPlan.sign(plan, organiser).to_dict()), encoding="utf-8")
    return path


def _kill_and_restart(servers: ThreeServers, batches: Sequence["Future[int]"]) -> None:
    """Server 2 dies when a third of the batches are done, and comes back."""
    while sum(batch.done() for batch in batches) < len(batches) // 3:
        time.sleep(0.05)
    servers.kill(2)
    _say("killed server 2 (SIGKILL) while clients report; it starts again")
    servers.start(2)


def _judge(release: Release, after: Release, accepted_late: int, seconds: float) -> int:
    """What was planted, and what was found."""
    expected = CLIENTS - CUT - LIARS - LATE
    counted, counted_after = (each.cohorts[0].included for each in (release, after))
    right = release.records == expected * RECORDS and counted == expected
    right_after = counted_after == SECOND and after.records == SECOND * RECORDS
    found, found_after = set(release.drifted_columns), set(after.drifted_columns)
    print(f"\n{release_words(release)}\n")
    print(
        f"The report: {REPORT}\n\nHow right it was, in {seconds:.0f} seconds\n"
        f"planted: {CARRIERS[1]} has {AFTER[1]:.0%} of the flights instead of {BEFORE[1]:.0%}; "
        "delays as they were\n"
        f"columns: {', '.join(sorted(found)) or 'none'}. Right: {len(found & PLANTED)} of "
        f"{len(PLANTED)}. Wrong: {len(found - PLANTED)}\n"
        f"reports: {TWICE} came twice, {CUT} were cut off after two servers, {LIARS} had shares on "
        f"no line, {LATE} were late ({accepted_late} of them accepted); one server was killed and "
        "restarted\n"
        f"counted: {counted:,} clients with {release.records:,} records; right are {expected:,} "
        f"with {expected * RECORDS:,}: {'rightly' if right else 'WRONG'}\n"
        f"signatures: {len(release.signers)}\n"
        f"second plan, server 3 lost: {counted_after:,} of {SECOND} clients, "
        f'{len(after.signers)} signatures, "{after.privacy.trust.split(". ")[-1]}" '
        f"{'Rightly' if right_after else 'WRONG'}. Columns: "
        f"{', '.join(sorted(found_after)) or 'none found, of so few clients'}"
    )
    return 0 if right and right_after and not accepted_late and found == PLANTED else 1


def _say(words: str) -> None:
    print(f"demo: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
