"""Damaged files and settings: whatever they hold, only our own errors come out."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from deploy.small_world import write_policy

from fedprikl.deployment.flower.organiser import check_connection
from fedprikl.deployment.host import Company
from fedprikl.deployment.policy import load_policy
from fedprikl.deployment.settings import NodeSettings, RoundSettings
from fedprikl.deployment.tls import check_node_key, write_node_key
from fedprikl.errors import DeploymentError, FedPriKLError
from fedprikl.front.series import read_status
from fedprikl.monitoring.history import HISTORY, History
from fedprikl.protocol import Roster, SealingKey, SigningKey
from fedprikl.reference import Reference
from fedprikl.store import entry_hash
from tests.monitoring.small_series import DRIFTED, World, over

DEEP = "[" * 100_000 + "]" * 100_000
# What may stand in the place of any value of a JSON document, as text.
ODD = (
    *("null", "true", "-1", "0.5", "1e400", "-1e400", "NaN", "9" * 400, "9" * 5000, '""', '"x"'),
    *('"\\u0000"', '"\\ud800"', "[]", "[null]", "{}", '{"": null}', DEEP),
)


def odd_documents(document: Any) -> Iterator[bytes]:
    """Each value replaced by what it cannot be, or removed; and text that ends early."""
    text = json.dumps(document)
    for cut in range(0, len(text), max(1, len(text) // 20)):
        yield text[:cut].encode()
    yield from (b"", b"\x00", b"\xff\xfe", text.encode("utf-16"), DEEP.encode(), b"\x00" * 1000)
    for place in places(document):
        if place:
            yield json.dumps(changed(document, place, None, remove=True)).encode()
        marked = json.dumps(changed(document, place, "@here@"))
        yield from (marked.replace('"@here@"', odd).encode() for odd in ODD)


def places(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value; of long lists to the first two."""
    yield before
    if isinstance(document, dict):
        for name in document:
            yield from places(document[name], (*before, name))
    elif isinstance(document, list):
        for number in range(min(2, len(document))):
            yield from places(document[number], (*before, number))


def changed(document: Any, place: tuple[Any, ...], value: Any, *, remove: bool = False) -> Any:
    if not place:
        return value
    first, *rest = place
    copy = document.copy()
    if rest or not remove:
        copy[first] = changed(document[first], tuple(rest), value, remove=remove)
    else:
        del copy[first]
    return copy


def only_our_errors(read: Callable[[], object]) -> bool:
    """Whether it was refused; an error that is not ours fails the test."""
    try:
        read()
    except FedPriKLError:
        return True
    return False


def refused(path: Path, contents: Iterator[bytes], read: Callable[[Path], object]) -> int:
    found = 0
    for content in contents:
        path.write_bytes(content)
        found += only_our_errors(lambda: read(path))
    return found


COHORTS = {"together": [["1", "2"], ["3"]], "counted": {"ab" * 32: {"1": 1, "2": 2}}}


def test_cohorts(tmp_path: Path) -> None:
    path = tmp_path / "cohorts.json"
    assert refused(path, odd_documents(COHORTS), Company.load) > 50
    for bad in (
        {"together": [["1", 2]], "counted": {}},  # one that is no name, among others
        {"together": ["12"], "counted": {}},
        {"together": [], "counted": {"a": {"1": True}}},
        {"together": [], "counted": {"a": {"1": 0.5}}},
        {"together": [], "counted": {"a": {"1": -1}}},
    ):
        path.write_text(json.dumps(bad))
        with pytest.raises(DeploymentError, match="is damaged"):
            Company.load(path)
    path.write_text(json.dumps(COHORTS))
    assert Company.load(path).counted == COHORTS["counted"]


def pem_files() -> Iterator[bytes]:
    """Keys of other kinds, with a password, cut off, of a kind that nobody knows."""
    kinds = (
        rsa.generate_private_key(65537, 2048),
        ec.generate_private_key(ec.SECP256R1()),
        dsa.generate_private_key(1024),  # noqa: S505  quick, and never used
        ed25519.Ed25519PrivateKey.generate(),
        x25519.X25519PrivateKey.generate(),
    )
    for key in kinds:
        whole = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        yield whole
        yield whole[: len(whole) // 2]
        yield whole.replace(b"\n", b"\x00")
        yield key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        yield key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    unknown = "MC4CAQAwBQYDK2VjBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    yield f"-----BEGIN PRIVATE KEY-----\n{unknown}\n-----END PRIVATE KEY-----\n".encode()
    yield from (b"", b"\x00" * 100, DEEP.encode(), b"-----BEGIN PRIVATE KEY-----\n")


def test_keys(tmp_path: Path) -> None:
    path, contents = tmp_path / "key.pem", list(pem_files())
    for load in (SigningKey.load, SealingKey.load):
        assert refused(path, iter(contents), load) == len(contents) - 1
    assert refused(path, iter(contents), check_node_key) == len(contents)
    write_node_key(path)
    check_node_key(path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World.create(tmp_path_factory.mktemp("series")).grow(0).grow(1, DRIFTED)
    world.monitor(over(1))
    return world


def test_rosters_and_references(tmp_path: Path) -> None:
    texts = (
        b"",
        b"\x00",
        b"\xff",
        DEEP.encode(),
        b"ab",
        b"zz" * 32,
        b"00" * 32,
        b"ab" * 32 + b"\0",
    )
    assert refused(tmp_path / "file", iter(texts), Roster.load)
    assert refused(tmp_path / "file", iter(texts), Reference.load) == len(texts)


def test_a_history_whose_hashes_are_right(world: World, tmp_path: Path) -> None:
    """A forger writes what he likes and makes every hash anew."""
    with History.open(world.history, create=False) as opened, opened._store.reading():
        entries = [dict(entry.body) for entry in opened._store.entries()]
        documents = opened._store.connection.execute("SELECT * FROM documents").fetchall()
    path, found = tmp_path / "history.db", 0

    def read(path: Path) -> None:
        with History.open(path, create=False) as opened:
            opened.verify()
        read_status(path, at=over(1))

    with History.open(path) as opened:
        connection = opened._store.connection
        connection.execute("PRAGMA synchronous = OFF")
        guards = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        connection.executemany("INSERT INTO documents VALUES (?, ?)", documents)
        for number, entry in enumerate(entries):
            for odd in odd_bodies(entry):
                bodies = [json.dumps(each) for each in entries]
                bodies[number] = odd
                connection.execute("BEGIN")
                for name, _ in guards:
                    connection.execute(f"DROP TRIGGER {name}")
                connection.execute("DELETE FROM entries")
                for _, statement in guards:
                    connection.execute(statement)
                head = HISTORY.genesis
                for place, body in enumerate(bodies, start=1):
                    head = entry_hash(place, head, body)
                    connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (place, body, head))
                connection.execute("COMMIT")
                found += only_our_errors(lambda: read(path))
    assert found > 50


def odd_bodies(entry: dict[str, Any]) -> Iterator[str]:
    """Fewer than of a file: the top, and what was found about a period one level further."""
    texts = ("null", "-1", "1e400", "9" * 400, '"x"', "[]", "{}", DEEP)
    yield from ("", "[]", DEEP)
    short = [place for place in places(entry) if 1 <= len(place) <= (3 if "found" in entry else 1)]
    for place in short:
        yield json.dumps(changed(entry, place, None, remove=True))
        marked = json.dumps(changed(entry, place, "@here@"))
        yield from (marked.replace('"@here@"', odd) for odd in texts)


CONNECTIONS = (
    *("superlink = 3", "[superlink]\nmine = 3", "[[superlink]]", "\x00", f"a = {DEEP}"),
    *(
        f"[superlink.mine]\naddress = {address}\nroot-certificates = {roots}"
        for address in ('"127.0.0.1:99999"', '"127.0.0.1:' + "9" * 5000 + '"', '"\\u0000:1"', "3")
        for roots in ('"none"', "3", '"\\u0000"')
    ),
    '[superlink.mine]\naddress = "' + "a" * 70 + '.example:1"',
    '[superlink.mine]\naddress = "' + "\u0661" + ':\u0661"',
)


@pytest.mark.parametrize("text", CONNECTIONS, ids=range(len(CONNECTIONS)))
def test_flowers_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    only_our_errors(lambda: check_connection("mine"))


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0.5, 10**400, -(10**400), float("inf"), float("nan"), "", "x", "\x00"),
    *("\ud800", "9" * 5000, b"x", [], {}, [[]]),
)


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRIKL_HOME", str(tmp_path))
    policy = str(write_policy(tmp_path, 64 * "a"))
    site = {"data": "d.csv", "reference": "r.json", "policy": policy}
    for name in (*site, "roster", "partition-id", "\x00", "\ud800"):
        for value in VALUES:
            only_our_errors(lambda: NodeSettings.of(site | {name: value}))  # noqa: B023
            only_our_errors(lambda: NodeSettings.of({name: value}))  # noqa: B023
    for name in ("plan", "clients", "wait", "period", "previous", "deadline", "request", "home"):
        for value in VALUES:
            only_our_errors(lambda: RoundSettings.of({name: value}, home=tmp_path))  # noqa: B023
    for text in (f"a={DEEP}", "a=\x00", "a=1e400", "a=" + "9" * 5000, "=", "", "a=2020-01-01"):
        (tmp_path / "policy.toml").write_text(text)
        only_our_errors(lambda: load_policy(tmp_path / "policy.toml"))
