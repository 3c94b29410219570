"""All that we use of Flower beyond its public API, in one file. Written for Flower 1.41.

Everything else of this package uses `flwr.app`, `flwr.clientapp`, `flwr.serverapp` and Flower's
commands with their documented options. What is here may break with any version of Flower, so
pyproject.toml pins one. When it is raised, read this file from top to bottom:

    Runtime, heartbeats        Flower's API that hands out tasks, and how both sides prove who they
                               are. Check: the two interceptors and the path of AcquireTask
    answer_message, host_run   what Flower's own `flwr-clientapp` and `flwr-serverapp` do for one
                               task, without their new process and without the app that is shipped.
                               Check: run_clientapp.py and run_serverapp.py
    hasten                     replaces `pull_objects` where it waits too long
    where_needed, only_for     replaces `_get_middleware` of the relay. A middleware that is new in
                               Flower fails a test: say in SERVES what it serves
    taking_turns               replaces `SqlMixin.session` of the relay
    tolerate_clocks            replaces the limits by which requests are too old or too new
    make_database, prune_relay the tables of the relay. Check: a table that is new in Flower
    connected_nodes            the nodes that a relay knows, with their keys. Check: ListNodes
    in_plain_words             the messages and exit codes that Flower logs
    FLWR, STARTED, STOPPED     Flower's command, and what `flwr run` and `flwr stop` print

The changes keep what is checked and who is let in, but for clocks that are a little ahead. Each is
to go when Flower makes it needless. `tests/deployment/test_tuning.py`, `test_plain_words.py`,
`test_pruning.py` and `test_loopback.py` fail where Flower no longer has what is used here.

Functions import what they need of Flower: a site loads nothing of a relay, and commands work where
Flower is not installed. What tasks need is in `LATE`, and imported before the first of them.
"""

import contextlib
import logging
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from io import TextIOBase
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, Literal

from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.tls import CLOCKS, refused_words
from fedprikl.errors import DeploymentError, FedPriKLError
from fedprikl.store import shrink

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.supercore.runtime import RuntimeHttpClient
    from starlette.middleware import Middleware
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)

# ------------------------------------------------------------------------------------------------
# Tasks: a message of a site, a run of an aggregator

Party = Literal["site", "aggregator"]
LATE: dict[Party, tuple[str, ...]] = {
    "site": ("flwr.supercore.heartbeat", "flwr.supernode.runtime.run_clientapp"),
    "aggregator": ("flwr.supercore.heartbeat", "flwr.supercore.logger", "flwr.superlink.grid"),
}
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
FAILED = "the site failed; its own log says why"
ENDED = "The run was stopped, or its aggregator was."


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Flower's Runtime API, where tasks come from: of a site's SuperNode, or of a SuperLink.

    Whoever may acquire tasks receives the messages and the state of a site, and whoever poses as
    the API decides what is asked. So both sides prove who they are: the API by its certificate, the
    caller by a shared secret; each task then has a token of its own.
    """

    address: str  # host:port
    roots: bytes | None  # PEM of the certificates it is trusted by; None: the system's
    secret: bytes = field(repr=False)  # SECRET: shared with whoever may acquire tasks

    def client(self, component: str, proof: Any, retrying: Any = None) -> "RuntimeHttpClient":
        """What speaks with the API, as a component of Flower; it tries once unless told so."""
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
        from flwr.supercore.runtime import RuntimeHttpClient

        return RuntimeHttpClient.from_server_address(
            self.address,
            insecure=False,
            root_certificates=self.roots,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=component), proof],
            retry_invoker=retrying,
        )

    @contextmanager
    def tasks(self, party: Party) -> Iterator[Callable[[], str]]:
        """What acquires a task: its token, empty if there is none. It tries once."""
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        kind = TaskType.CLIENT_APP if party == "site" else TaskType.SERVER_APP
        signed = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods={ACQUIRE}
        )
        client = self.client("SuperExec", signed)
        request = AcquireTaskRequest(supported_task_types=[kind])

        def acquire() -> str:
            found = client.AcquireTask(request)
            return found.token if found.HasField("task") else ""

        with contextlib.closing(client):
            yield acquire


@contextmanager
def heartbeats(client: "RuntimeHttpClient") -> Iterator[None]:
    """Tells the API that a task is being worked on; a task without them is given up."""
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http

    sender = HeartbeatSender(make_task_heartbeat_fn_http(client))
    sender.start()
    try:
        yield
    finally:
        if sender.is_running:
            sender.stop()


def answer_message(runtime: Runtime, token: str, app: "ClientApp") -> None:
    """One message of a site: taken from its SuperNode, answered by the installed app, given back.

    The site's state travels with the task's output. An exception's words stay here: the SuperNode
    would send them on.
    """
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supercore.retry import make_simple_http_retry_invoker
    from flwr.supernode.runtime import run_clientapp as flowers_own

    retrying = make_simple_http_retry_invoker()
    client = runtime.client("flwr-clientapp", RuntimeTokenHttpInterceptor(token), retrying)
    context: Context | None = None
    status, details = SubStatus.FAILED, FAILED
    try:
        with heartbeats(client):
            message, context, _, _ = flowers_own.pull_task_input(client)
            try:
                reply = app(message=message, context=context)
            except Exception as error:
                log.error("fedprikl could not answer a message: %s", type(error).__name__)
                code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
                reply = Message(Error(code, FAILED), reply_to=message)
            flowers_own.push_message(client, reply, context)
            status, details = SubStatus.COMPLETED, ""
    finally:
        flowers_own.push_task_output(client, context, status, details)
        client.close()


def host_run(runtime: Runtime, token: str, app: "ServerApp") -> None:
    """One run at the aggregator: taken from the SuperLink, hosted, its end reported.

    The app that runs is the installed one, with its own defaults; of the run only its config is
    used. What the app prints is what the relay stores: nothing else of this process travels,
    neither its warnings nor the words of an exception that is not ours.
    """
    from flwr.common.config import get_fused_config_from_dir
    from flwr.common.constant import SubStatus
    from flwr.common.serde import context_from_proto, run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    hasten(HttpGrid.__module__)
    grid = HttpGrid(runtime.address, root_certificates=runtime.roots, token=token)
    client = grid._runtime_client
    status, details = SubStatus.FAILED, ENDED
    try:
        with heartbeats(client):
            found = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, found.run.run_id
            TaskIdentity.node_id = found.context.node_id  # what a message says it comes from
            run, context = run_from_proto(found.run), context_from_proto(found.context)
            context.run_config = get_fused_config_from_dir(APP_FOLDER, run.override_config)
            grid.set_run(run)
            with _printing_to(client, run.run_id):
                try:
                    app(grid=grid, context=context)
                    status, details = SubStatus.COMPLETED, ""
                except FedPriKLError as error:
                    details = str(error)
                except Exception as error:
                    details = f"The ServerApp failed: {type(error).__name__}."
    finally:
        grid._retry_invoker.max_tries = 1
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        except Exception as error:  # of a run that was stopped there is nothing to report
            log.warning("The end of a run could not be reported: %s", type(error).__name__)
        grid.close()


class _Copied(TextIOBase):
    """A standard output whose text also goes to the run's log."""

    def __init__(self, queue: "Queue[str | None]") -> None:
        self._queue, self._own = queue, sys.stdout

    def write(self, text: str) -> int:
        self._queue.put(text)
        return self._own.write(text)

    def flush(self) -> None:
        self._own.flush()


@contextmanager
def _printing_to(client: "RuntimeHttpClient", run_id: int) -> Iterator[None]:
    """Sends what is printed to the run's log, all of it before the block ends."""
    from flwr.supercore.logger import flush_logs, start_log_uploader, stop_log_uploader

    queue: Queue[str | None] = Queue()
    uploader = start_log_uploader(queue, node_id=0, run_id=run_id, client=client)
    try:
        with contextlib.redirect_stdout(_Copied(queue)):
            yield
    finally:
        flush_logs(queue)
        stop_log_uploader(queue, uploader)


# ------------------------------------------------------------------------------------------------
# Changes while Flower runs in our processes: waits, the relay's queues and clocks

# A message and its parts travel apart. For a part that is on its way Flower waits a second, then
# two, and so on, before it looks at the next one.
PATIENCE = {"initial_backoff": 0.1, "backoff_cap": 1.0}  # seconds
WAITING: dict[str, dict[str, float]] = {
    # For a part that a site never sent, an aggregator would wait up to two hours.
    "flwr.superlink.grid.http_grid": PATIENCE | {"max_time": 20.0},
    "flwr.supernode.start_client_internal": PATIENCE,
}

# Flower puts nine middlewares around every request, all in the one thread that serves all sites: a
# round of 50 sites took 280 s with them and 213 s without those that step aside (once each, on a
# shared machine), and the relay 178 and 126 s of CPU. These step aside for all paths but
SERVES = {
    "ControlSensitiveResponseMiddleware": "/v1/control/",
    "ControlAuthenticationMiddleware": "/v1/control/",
    "ControlLicenseMiddleware": "/v1/control/",
    "ControlEventLogMiddleware": "/v1/control/",
    "RuntimeTracingMiddleware": "/v1/runtime/",
    "FleetEventLogMiddleware": "/v1/fleet/",
}

# Requests are signed with the time. Flower's relay accepts what was signed up to 305 s ago, and up
# to 5 s from now; a site whose clock is 8 s ahead would never connect.
CHECKS_OF_TIME = ("flwr.superlink.routers.fleet.node_auth", "flwr.supercore.auth.superexec")


def hasten(module: str) -> None:
    """Shortens how long one of `WAITING` waits for the parts of a message."""
    found: Any = import_module(module)
    pull = found.pull_objects
    pull = pull.func if isinstance(pull, partial) else pull
    found.pull_objects = partial(pull, **WAITING[module])


def only_for(app: "ASGIApp", *, prefix: str, wrap: "Callable[[ASGIApp], ASGIApp]") -> "ASGIApp":
    """A middleware around the requests whose path has a prefix; all others pass it by."""
    wrapped = wrap(app)

    async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
        served = scope["type"] != "http" or scope["path"].startswith(prefix)
        await (wrapped if served else app)(scope, receive, send)

    return serve


def where_needed(found: "list[Middleware]") -> "list[Middleware]":
    """The same middlewares in the same order, each around the paths that it serves."""
    from starlette.middleware import Middleware

    def limited(each: "Middleware") -> "Middleware":
        prefix = SERVES.get(name_of(each))
        if prefix is None:
            return each
        return Middleware(
            only_for, prefix=prefix, wrap=lambda app: each.cls(app, *each.args, **each.kwargs)
        )

    return [limited(each) for each in found]


def name_of(middleware: "Middleware") -> str:
    """Of its class."""
    return str(getattr(middleware.cls, "__name__", ""))


def taking_turns(
    session: Callable[[Any], AbstractContextManager[Any]],
) -> Callable[[Any], AbstractContextManager[Any]]:
    """Sessions of a database, one after the other.

    SQLite lets one write at a time. With fifty sites, threads of Flower's relay wait until SQLite
    gives up ("database is locked"), and an answer is lost.
    """
    turn = threading.RLock()

    @contextmanager
    def in_turn(self: Any) -> Iterator[Any]:
        with turn, session(self) as found:
            yield found

    return in_turn


def tolerate_clocks() -> None:
    """Lets a relay accept clocks that are ahead as far as Flower lets them be behind.

    A request to take a task is refused if it comes twice: Flower keeps its nonce for as long as
    the request could pass. One of a site has no nonce, so whoever breaks TLS can repeat it for
    10 minutes instead of 5.
    """
    sites: Any
    tasks: Any
    sites, tasks = map(import_module, CHECKS_OF_TIME)
    sites.SYSTEM_TIME_TOLERANCE, sites.TIMESTAMP_TOLERANCE = CLOCKS, 5
    tasks.MIN_TIMESTAMP_DIFF_SECONDS = -CLOCKS


def flower_superlink() -> None:
    """Flower's command of this name, with its own arguments: a relay."""
    from flwr.supercore.sql_mixin import SqlMixin
    from flwr.superlink import cli
    from flwr.superlink import main as superlink

    flowers_own = superlink._get_middleware
    superlink._get_middleware = lambda: where_needed(flowers_own())
    SqlMixin.session = taking_turns(SqlMixin.session)  # type: ignore[assignment,method-assign]
    tolerate_clocks()
    make_database(Path(_option("--database")))
    logging.getLogger("flwr").addFilter(lambda record: not _SILENT.search(record.getMessage()))
    cli.flower_superlink()


def flower_supernode() -> None:
    """Flower's command of this name, with its own arguments: a site. It speaks plainly."""
    from flwr.supernode import cli

    hasten("flwr.supernode.start_client_internal")
    explain_flower(_option("--superlink"), _option("--auth-supernode-private-key"))
    cli.flower_supernode()


def _option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


# ------------------------------------------------------------------------------------------------
# The relay's database. That a site answers a round once does not depend on it: each site remembers.

# What belongs to a run, by its run or by one of its tasks; what belongs to a series of runs.
_OF_RUNS = (
    *("message", "message_ins", "message_res", "object_push_sessions", "run_connector"),
    *("run_objects", "series_runs", "task_event", "task_message", "task_usage"),
)
_OF_SERIES = ("series_context", "compacted_contexts", "run_series")
_PRUNING = (
    *(f"DELETE FROM {table} WHERE run_id IN (SELECT * FROM old)" for table in _OF_RUNS),  # noqa: S608
    "DELETE FROM task_logs WHERE task_id IN "
    "(SELECT task_id FROM task WHERE run_id IN (SELECT * FROM old))",
    "DELETE FROM task WHERE run_id IN (SELECT * FROM old)",
    "DELETE FROM run WHERE run_id IN (SELECT * FROM old)",
    "DELETE FROM objects WHERE object_id NOT IN (SELECT object_id FROM run_objects)",
    "DELETE FROM object_children WHERE parent_id NOT IN (SELECT object_id FROM objects)",
    "UPDATE objects SET ref_count = "
    "(SELECT count(*) FROM object_children WHERE child_id = object_id)",
    *(
        f"DELETE FROM object_push_session_{kind} WHERE session_id NOT IN "  # noqa: S608
        "(SELECT session_id FROM object_push_sessions)"
        for kind in ("pending", "roots")
    ),
    *(
        f"DELETE FROM {table} WHERE series_id NOT IN (SELECT series_id FROM series_runs) "  # noqa: S608
        "AND series_id NOT IN (SELECT series_id FROM automation)"
        for table in _OF_SERIES
    ),
    "DELETE FROM fab WHERE fab_hash NOT IN (SELECT fab_hash FROM run) AND fab_hash NOT IN "
    "(SELECT fab_hash FROM federation_app)",
)


def make_database(path: Path) -> None:
    """Makes a relay's database, whole or not at all; one that is there is left as it is.

    Flower makes its tables one by one. If that is cut off, it never starts with that file again.
    """
    if path.exists():
        return
    from flwr.supercore.object_store.sql_object_store import SqlObjectStore

    fresh = path.with_name(path.name + ".new")
    for left in path.parent.glob(fresh.name + "*"):  # by a start that was cut off
        left.unlink()
    store = SqlObjectStore(str(fresh), verify=False)
    store.initialize()
    if store._engine is not None:
        store._engine.dispose()
    os.replace(fresh, path)


def prune_relay(path: Path, *, before: datetime) -> int:
    """Removes the runs that ended before a time, with all their messages; how many.

    A run that never ended counts by when it was started. The relay must not run. Registered sites
    stay, and so do the nonces by which Flower refuses a request that is sent twice.
    """
    limit = before.astimezone(UTC).isoformat(sep=" ")  # as Flower writes it
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            db.execute(
                "CREATE TEMP TABLE old AS SELECT run.run_id FROM run JOIN task ON "
                "task.task_id = run.primary_task_id WHERE coalesce(finished_at, pending_at) < ?",
                (limit,),
            )
            (runs,) = db.execute("SELECT count(*) FROM old").fetchone()
            for statement in _PRUNING:
                db.execute(statement)
            if db.execute("PRAGMA foreign_key_check").fetchone():
                raise sqlite3.DatabaseError("something would be left without its run")
            db.execute("COMMIT")
    except sqlite3.Error as error:
        raise DeploymentError(
            f"Cannot prune the relay's database {path}: {error}. Nothing was removed. Is it of "
            "another version of Flower, or is a relay running?"
        ) from None
    shrink(path)
    return int(runs)


# ------------------------------------------------------------------------------------------------
# Nodes of a relay


def connected_nodes(relay: str, roots: Path) -> dict[bytes, bool]:
    """The node keys that a relay knows, each with whether the node is connected now."""
    import httpx
    from flwr.proto.control_pb2 import ListNodesRequest
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    client = ControlHttpClient.from_server_address(
        relay,
        insecure=False,
        root_certificates=roots.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        with contextlib.closing(client):
            found = client.ListNodes(ListNodesRequest()).nodes_info
    except httpx.HTTPError:
        raise DeploymentError(f"The relay {relay} does not tell which sites are there.") from None
    return {node.public_key: node.status == "online" for node in found}


def node_key(line: str) -> bytes:
    """A node's public key as Flower's API has it, from the line that ssh-keygen writes."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    return public_key_to_bytes(load_ssh_public_key(line.encode()))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------
# What Flower prints and logs

STARTING = 30.0  # seconds in which a SuperNode need not answer yet
FLWR = "from flwr.cli.app import app; app()"  # its command `flwr`, for `python -c`
STARTED = re.compile(r"started run (\d+)")  # of `flwr run`
STOPPED = "successfully stopped"  # of `flwr stop`
_VERSION = re.compile(r"version (\d[\w.]*\w)")
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED")
_RETRYING = re.compile(r"^Connection attempt failed, retrying")
_SILENT = re.compile(r"^SSL/TLS handshake error detected|^EXPERIMENTAL: SuperExec authentication")
# What a message is about, and what it means; {relay}, {key} and the results of `_details`.
_WORDS = (
    (
        re.compile(r"\[code: 2004\]"),
        "The relay {relay} does not know this site. Send {key}.pub to the organiser, who registers "
        "it: `flwr supernode register node.pub NAME`, where NAME is the relay's in Flower's config "
        "file. If it was registered: is {key} the same key? This site tries again by itself.",
    ),
    (
        re.compile(r"Exit Code: 606|version mismatch"),
        "The relay {relay} has another version of Flower than this machine{versions}. Install the "
        "same fedprikl on both: it names the version of Flower that it works with.",
    ),
    (
        re.compile(r"Exit Code: 302"),
        "{key} is no key that Flower accepts: it has to be an elliptic-curve private key without a "
        'password. Make one: `ssh-keygen -t ecdsa -b 384 -N "" -f node`.',
    ),
    (_UNTRUSTED, "{certificate}"),
    (
        re.compile(r"SuperNode terminated gracefully"),
        "Flower's SuperNode has ended. If nobody stopped this site, the relay {relay} refused it: "
        f"the clocks differ by more than {CLOCKS} s, or the site was unregistered.",
    ),
    (
        _RETRYING,
        "The relay {relay} cannot be reached. Is it running, at this address? Next try {later}.",
    ),
)
_WORDS_OF_OWN = (  # where what is asked is the site's own SuperNode
    (
        _UNTRUSTED,
        "What answers at {relay} is not this site's own SuperNode: its certificate is another. "
        "Nothing was sent. Start this site again, which takes another port.",
    ),
    (
        _RETRYING,
        "This site's own SuperNode ({relay}) does not answer yet; trying again. Its lines in this "
        "log say whether it reaches the relay.",
    ),
)


def in_plain_words(message: str, *, relay: str, key: str = "node", own: bool = False) -> str:
    """What a message of Flower means, and what to do; empty if it says no more than others do.

    Flower logs numbers ("305", "2004") and addresses of its own pages. A message that is not known
    stays as it is. `own`: what is at the address `relay` is the site's own SuperNode, as its
    executor sees it.

    >>> in_plain_words("Connection attempt failed, retrying in 3.04 seconds", relay="relay:9443")
    'The relay relay:9443 cannot be reached. Is it running, at this address? Next try in 3 s.'
    """
    if _SILENT.search(message):
        return ""
    for pattern, words in _WORDS_OF_OWN if own else _WORDS:
        if pattern.search(message):
            return words.format(relay=relay, key=key, **_details(message, relay))
    return message


def _details(message: str, relay: str) -> dict[str, str]:
    """What a message of Flower tells beside its kind."""
    versions = _VERSION.findall(message)
    pause = re.search(r"in ([\d.]+) seconds", message)
    why = re.search(r"certificate verify failed: (.*?)(?: \(_ssl|$)", message, re.MULTILINE)
    return {
        "versions": f" (theirs {versions[0]}, ours {versions[-1]})" if len(versions) > 1 else "",
        "later": f"in {float(pause[1]):.0f} s" if pause else "later",
        "certificate": refused_words(why[1] if why else "the handshake failed", relay),
    }


def is_untrusted(error: Exception) -> bool:
    """Whether what answers has a certificate that is not trusted: to wait does not mend that."""
    return bool(_UNTRUSTED.search(str(error)))


def explain_flower(relay: str, key: str = "node", *, own: bool = False) -> None:
    """From now on, what Flower logs in this process is in plain words; see `in_plain_words`."""
    begun = time.monotonic()

    def explain(record: logging.LogRecord) -> bool:
        starting = own and time.monotonic() < begun + STARTING
        if starting and _RETRYING.search(record.getMessage()):  # both start at once
            record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg = in_plain_words(record.getMessage(), relay=relay, key=key, own=own)
        record.args = ()
        return bool(record.msg)

    logging.getLogger("flwr").addFilter(explain)
