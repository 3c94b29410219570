"""What we change in Flower: the same answers and refusals, shorter waits, nothing lost."""

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supercore.object_store.sql_object_store import SqlObjectStore
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.supercore.sql_mixin import SqlMixin
from flwr.superlink import main as superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedprikl.deployment.flower.tuning import (
    SERVES,
    WAITING,
    OnlyFor,
    hasten,
    name_of,
    taking_turns,
    where_needed,
)

pytestmark = pytest.mark.slow

KEPT = ("ProtobufTranslationMiddleware", "NodeAuthMiddleware", "BaseHTTPMiddleware")


def test_each_is_one_of_flowers_in_the_same_order() -> None:
    flowers_own = superlink._get_middleware()
    ours = where_needed(flowers_own)
    names = [name_of(each) for each in flowers_own]
    assert set(SERVES) <= set(names)
    assert len(ours) == len(names)
    for own, other in zip(flowers_own, ours, strict=True):
        name = name_of(own)
        assert (name_of(other) == "OnlyFor") == (name in SERVES)
        assert name in SERVES or name in KEPT, f"{name} is new in Flower: say what it serves"


def ask(app: ASGIApp, path: str, content_type: str = PROTOBUF_MEDIA_TYPE) -> httpx.Response:
    """One request to an app, without a server."""

    async def asking() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://relay") as client:
            return await client.post(path, headers={"content-type": content_type})

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

    app = OnlyFor(PlainTextResponse("here"), prefix="/v1/control/", wrap=Watching)
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
    assert time.monotonic() - start < 2


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


def test_sessions_of_the_database_take_turns() -> None:
    @contextmanager
    def session(_: Any) -> Iterator[None]:
        yield

    assert overlapping(session, 10.0)
    assert not overlapping(taking_turns(session), 0.2)
    with (in_turn := taking_turns(session))(None), in_turn(None):  # a session within a session
        pass


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
