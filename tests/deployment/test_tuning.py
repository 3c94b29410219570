"""What we change in Flower: the same answers and refusals, shorter waits, nothing lost."""

import inspect
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from flwr.app import Message
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore import date
from flwr.supercore.auth import superexec
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supercore.sql_mixin import SqlMixin
from flwr.superlink import main as superlink
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedprikl.deployment.flower import privates
from fedprikl.deployment.flower.privates import (
    CHECKS_OF_TIME,
    SERVES,
    WAITING,
    hasten,
    name_of,
    only_for,
    taking_turns,
    tolerate_clocks,
    where_needed,
)
from fedprikl.deployment.flower.server import FlowerNetwork
from fedprikl.deployment.host import Host
from fedprikl.deployment.settings import RoundSettings
from fedprikl.deployment.tls import CLOCKS

pytestmark = pytest.mark.slow

KEPT = ("ProtobufTranslationMiddleware", "NodeAuthMiddleware", "BaseHTTPMiddleware")


def test_only_one_file_uses_what_is_private_to_flower() -> None:
    public = re.compile(r"\bflwr\.(?!app\b|clientapp\b|serverapp\b)[a-z_.]+")
    files = Path(privates.__file__).parents[2].rglob("*.py")
    found = {path.name: public.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name for name, names in found.items() if names} == {"privates.py"}


def test_each_is_one_of_flowers_in_the_same_order() -> None:
    flowers_own = superlink._get_middleware()
    ours = where_needed(flowers_own)
    names = [name_of(each) for each in flowers_own]
    assert set(SERVES) <= set(names)
    assert len(ours) == len(names)
    for own, other in zip(flowers_own, ours, strict=True):
        name = name_of(own)
        assert (name_of(other) == "only_for") == (name in SERVES)
        assert name in SERVES or name in KEPT, f"{name} is new in Flower: say what it serves"


def ask(
    app: ASGIApp,
    path: str,
    content_type: str = PROTOBUF_MEDIA_TYPE,
    body: bytes = b"",
    **headers: str,
) -> httpx.Response:
    """One request to an app, without a server."""

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://relay") as client:
            every = headers | {"content-type": content_type, "content-length": str(len(body))}
            return await client.post(path, headers=every, content=body)

    return anyio.run(asking)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ASGIApp, ASGIApp]]:
    """Flower's own SuperLink, and ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
        flowers_own = superlink._get_middleware
        own = superlink.create_app()
        patch.setattr(superlink, "_get_middleware", lambda: where_needed(flowers_own()))
        ours = superlink.create_app()
        yield own, ours


PATHS = sorted({path for _, path in PROTOBUF_REQUEST_TYPES})


@pytest.mark.parametrize("path", [*PATHS, "/v1/fleet/", "/v1/nothing", "/docs"])
def test_it_answers_as_flowers_own(both: tuple[ASGIApp, ASGIApp], path: str) -> None:
    for content_type in (PROTOBUF_MEDIA_TYPE, "text/plain"):
        own, ours = (ask(app, path, content_type) for app in both)
        assert (own.status_code, len(own.content)) == (ours.status_code, len(ours.content))
        assert own.status_code == 200 or own.content == ours.content  # a list may tell the time
        assert dict(own.headers) == dict(ours.headers)


def test_a_site_that_shows_no_key_is_turned_away(both: tuple[ASGIApp, ASGIApp]) -> None:
    assert [ask(app, "/v1/fleet/pull-messages").status_code for app in both] == [401, 401]


@pytest.mark.parametrize(("path", "seen"), [("/v1/control/x", True), ("/v1/fleet/x", False)])
def test_only_what_it_serves_passes_through(path: str, seen: bool) -> None:
    passed = []

    class Watching:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            passed.append(scope["path"])
            await self.app(scope, receive, send)

    app = only_for(PlainTextResponse("here"), prefix="/v1/control/", wrap=Watching)
    assert ask(app, path).text == "here"
    assert passed == [path] * seen


def test_without_its_checks_a_relay_would_differ(
    both: tuple[ASGIApp, ASGIApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison above has teeth: a relay that leaves one out is seen."""
    flowers_own = superlink._get_middleware

    def without_keys() -> list[Middleware]:
        return [each for each in flowers_own() if name_of(each) != "NodeAuthMiddleware"]

    monkeypatch.setattr(superlink, "_get_middleware", without_keys)
    monkeypatch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
    open_to_all = superlink.create_app()
    path = "/v1/fleet/pull-messages"
    assert ask(open_to_all, path).status_code != ask(both[0], path).status_code


@pytest.mark.parametrize("module", WAITING)
def test_a_lost_part_is_waited_for_in_seconds(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = import_module(module)
    monkeypatch.setattr(found, "pull_objects", found.pull_objects)  # put back afterwards
    hasten(module)
    hasten(module)  # once more changes nothing
    assert set(WAITING[module]) <= set(inspect.signature(found.pull_objects).parameters)

    def never(object_id: str) -> bytes:
        raise ObjectUnavailableError(object_id)

    start = time.monotonic()
    with pytest.raises(ObjectPullError):
        found.pull_objects(["part"], never, max_time=0.3)
    assert time.monotonic() - start < 20


def overlapping(session: Callable[[Any], AbstractContextManager[None]], seconds: float) -> bool:
    """Whether two threads were in a session at the same time."""
    both = threading.Barrier(2)
    met = []

    def enter() -> None:
        with session(None):
            try:
                both.wait(seconds)
                met.append(True)
            except threading.BrokenBarrierError:
                pass

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bool(met)


@pytest.fixture
def tolerant(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `tolerate_clocks` changes is there in Flower, and put back afterwards."""
    for name, found in (
        (CHECKS_OF_TIME[0], ("SYSTEM_TIME_TOLERANCE", "TIMESTAMP_TOLERANCE")),
        (CHECKS_OF_TIME[1], ("MIN_TIMESTAMP_DIFF_SECONDS",)),
    ):
        for each in found:
            module = import_module(name)
            monkeypatch.setattr(module, each, getattr(module, each))


AHEAD = [(4, True, True), (8, False, True), (295, False, True), (310, False, False)]
BEHIND = [(-295, True, True), (-320, False, False)]


@pytest.mark.parametrize(("ahead", "before", "after"), AHEAD + BEHIND)
@pytest.mark.usefixtures("tolerant")
def test_a_site_may_have_another_time_than_the_relay(
    both: tuple[ASGIApp, ASGIApp],
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
    before: bool,
    after: bool,
) -> None:
    """A site with a key of its own asks to be let in; Flower signs the request by its clock.

    Nobody has registered it, so a relay that accepts the time says that it does not know it.
    """
    private, public = generate_key_pairs()
    signing = NodeAuthHttpInterceptor(private, public)
    own = date.now() + timedelta(seconds=ahead)
    monkeypatch.setattr(import_module(signing.__module__), "now", lambda: own)
    body = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=30.0)
    context: Any = SimpleNamespace(request=httpx.Request("POST", "https://relay"))
    with suppress(NotImplementedError):
        signing.intercept(context, _nothing)

    def is_let_in() -> bool:
        headers = dict(context.request.headers)
        said = ask(both[1], "/v1/fleet/activate-node", body=body.SerializeToString(), **headers)
        assert said.status_code in (401, 500) or "2004" in said.text, said.text
        return said.status_code != 401

    assert is_let_in() is before
    tolerate_clocks()
    assert is_let_in() is after


def _nothing(_: Any) -> httpx.Response:
    raise NotImplementedError


@pytest.mark.parametrize(("ahead", "before", "after"), AHEAD + BEHIND)
@pytest.mark.usefixtures("tolerant")
def test_an_aggregator_may_have_another_time_too(ahead: int, before: bool, after: bool) -> None:
    """And a request that was let in is let in once, as long as its time is accepted."""
    request, method, secret = AcquireTaskRequest(), "/flwr.proto.Runtime/AcquireTask", b"x" * 32
    kept: dict[str, float] = {}

    class Nonces:
        def reserve_nonce(self, namespace: str, nonce: str, expires_at: float) -> bool:
            new = kept.get(namespace + nonce, 0.0) < time.time()
            kept[namespace + nonce] = expires_at
            return new

    def is_let_in(nonce: str) -> bool:
        timestamp = int(time.time()) + ahead
        digest = superexec.compute_request_body_sha256(request)
        signature = superexec.compute_superexec_signature(
            auth_secret=secret, method=method, timestamp=timestamp, nonce=nonce, body_sha256=digest
        )
        return superexec.verify_superexec_request(
            request=request,
            method=method,
            auth_secret=secret,
            timestamp_raw=str(timestamp),
            nonce=nonce,
            body_sha256_header=digest,
            signature=signature,
            nonce_store=Nonces(),
        )

    assert is_let_in("first") is before
    tolerate_clocks()
    assert is_let_in("second") is after
    assert not is_let_in("second")


@pytest.mark.parametrize("site", [-CLOCKS, CLOCKS])
@pytest.mark.parametrize("aggregator", [-CLOCKS, CLOCKS])
def test_an_answer_by_another_clock_is_kept_by_the_relay(
    monkeypatch: pytest.MonkeyPatch, aggregator: int, site: int
) -> None:
    """A message lives as long as its step, whoever's clock it is written by."""
    now = date.now()
    own: Any = import_module("flwr.app.message.message")
    monkeypatch.setattr(own, "now", lambda: now + timedelta(seconds=aggregator))
    grid: Any = None
    transport = FlowerNetwork(grid, RoundSettings.of({"step-timeout": 30.0}), Host(), round_id="ab")
    asked = transport._message("input", "7", b"words")
    asked.metadata.__dict__["_message_id"] = "asked"
    asked.metadata.__dict__["_src_node_id"] = 1
    until = asked.metadata.created_at + asked.metadata.ttl
    assert until > (now + timedelta(seconds=max(site, 0))).timestamp() + 29
    monkeypatch.setattr(own, "now", lambda: now + timedelta(seconds=site))
    answer = Message(asked.content, reply_to=asked)
    assert answer.metadata.ttl > 29
    assert answer.metadata.created_at + answer.metadata.ttl > now.timestamp() + 29


def test_sessions_of_the_database_take_turns() -> None:
    @contextmanager
    def session(_: Any) -> Iterator[None]:
        yield

    assert overlapping(session, 10.0)
    assert not overlapping(taking_turns(session), 0.2)
    with (in_turn := taking_turns(session))(None), in_turn(None):  # a session within a session
        pass


MAKING = """
import os, signal, sys, warnings
from pathlib import Path
from sqlalchemy import Engine, event
warnings.simplefilter("ignore")
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from fedprikl.deployment.flower.privates import make_database

made = 0
def die(connection, cursor, statement, *_):
    global made
    made += statement.lstrip().upper().startswith("CREATE TABLE")
    if made == 4:
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "dies":
    event.listen(Engine, "after_cursor_execute", die)
if sys.argv[2] == "ours":
    make_database(Path(sys.argv[1]))
SqlObjectStore(sys.argv[1], verify=False).initialize()
"""


@pytest.mark.parametrize("whose", ["ours", "flowers own"])
def test_a_database_whose_making_was_cut_off_is_made_anew(tmp_path: Path, whose: str) -> None:
    """Killed once four tables are there. Flower's own way never recovers: the test has teeth."""
    path = tmp_path / "state.db"
    line = [sys.executable, "-c", MAKING, str(path), whose]
    assert subprocess.run([*line, "dies"], check=False).returncode == -signal.SIGKILL
    again = subprocess.run([*line, "lives"], capture_output=True, text=True, check=False)
    assert (again.returncode == 0) is (whose == "ours"), again.stderr
    assert whose != "ours" or [each.name for each in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.filterwarnings("ignore:No path_separator:DeprecationWarning")  # alembic's, at Flower
def test_many_writers_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own database, written by as many threads as its relay has."""
    monkeypatch.setattr(SqlMixin, "session", taking_turns(SqlMixin.session))
    store = SqlObjectStore(str(tmp_path / "state.db"), verify=False)
    store.initialize()
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for each in range(3):
                name = f"{number * 100 + each:064x}"
                store.preregister(1, ObjectTree(object_id=name))
                store.put(name, b"content")
                assert store.get(name) == b"content"
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
