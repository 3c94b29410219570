"""Fewer middlewares around a request of the relay: the same answers, the same refusals."""

from collections.abc import Iterator

import anyio
import httpx
import pytest
from flwr.supercore.protobuf.translation import PROTOBUF_MEDIA_TYPE, PROTOBUF_REQUEST_TYPES
from flwr.superlink import main as superlink
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedprikl.deployment.flower.relaying import SERVES, OnlyFor, where_needed

KEPT = ("ProtobufTranslationMiddleware", "NodeAuthMiddleware", "BaseHTTPMiddleware")


def test_each_is_one_of_flowers_in_the_same_order() -> None:
    flowers_own = superlink._get_middleware()
    ours = where_needed(flowers_own)
    names = [each.cls.__name__ for each in flowers_own]
    assert set(SERVES) <= set(names)
    assert len(ours) == len(names)
    for own, other in zip(flowers_own, ours, strict=True):
        name = own.cls.__name__
        assert (other.cls is OnlyFor) == (name in SERVES)
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
        return [each for each in flowers_own() if each.cls.__name__ != "NodeAuthMiddleware"]

    monkeypatch.setattr(superlink, "_get_middleware", without_keys)
    monkeypatch.setenv("FLWR_DATABASE", ":flwr-in-memory:")
    open_to_all = superlink.create_app()
    path = "/v1/fleet/pull-messages"
    assert ask(open_to_all, path).status_code != ask(both[0], path).status_code
