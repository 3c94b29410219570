"""Pruning: files shrink, and what was answered once is never answered again."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.cli.prune_command import prune_site
from fedprikl.cli.running import held
from fedprikl.deployment.flower.privates import prune_relay
from fedprikl.deployment.hosted_round import prune_refusals
from fedprikl.deployment.site_memory import SITE_MEMORY, read_memory
from fedprikl.errors import DeploymentError, InvalidInputError
from fedprikl.protocol import Step
from fedprikl.store import Store
from tests.deployment.test_site_memory import AT, counted, edit, memory, refused, signed

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=100)
BEFORE = NOW - timedelta(days=90)
pytestmark = pytest.mark.filterwarnings("ignore:No path_separator:DeprecationWarning")  # Flower's
runner = CliRunner()


# A site


def site_rounds(path: Path) -> list[str]:
    return sorted(name for _, name in read_memory(path).rounds)


def test_a_round_stays_refused_after_its_site_was_pruned(tmp_path: Path) -> None:
    """Also if the clock goes back to when its plan was valid."""
    this, plan = memory(tmp_path), signed()
    path = tmp_path / "home" / "site.db"
    this.begin("cafe", plan, most_counts=1, at=AT)
    with Store(path, SITE_MEMORY) as store, store.writing():  # many more like it
        (begun,) = store.entries()
        for number in range(999):
            store.append(dict(begun.body) | {"round_id": f"{number:064x}"})
    longer = signed(valid_until="2030-06-01T00:00:00+00:00", population="others")
    counted(memory(tmp_path, "more.csv"), "feed", longer)
    size = path.stat().st_size
    with Store(path, SITE_MEMORY) as store, store.reading():
        head = SITE_MEMORY.head_of(store.entries())
    assert prune_site(path, before=datetime(2030, 4, 1, tzinfo=UTC)) == 1000
    assert site_rounds(path) == ["feed"]
    assert path.stat().st_size < size / 2
    with Store(path, SITE_MEMORY) as store, store.reading():
        assert store.entries()[0].body["head"] == head.hash  # the chain goes on from the old one
    refused("expired", lambda: this.begin("cafe", plan, most_counts=9, at=AT))
    refused("answered already", lambda: this.go_on("cafe", Step.SHARE))
    other = memory(tmp_path, "more.csv")
    refused("answered already", lambda: other.begin("feed", longer, most_counts=9, at=AT))
    again = signed(valid_until="2030-06-01T00:00:00+00:00", population="others", releases=1)
    refused("as often as", lambda: other.begin("beef", again, most_counts=9, at=AT))


def test_what_may_still_be_replayed_is_kept(tmp_path: Path) -> None:
    this, path = memory(tmp_path), tmp_path / "home" / "site.db"
    this.begin("ab", signed(), most_counts=1, at=AT)
    assert prune_site(path, before=datetime.fromisoformat(AT)) == 0
    refused("answered already", lambda: this.begin("ab", signed(), most_counts=1, at=AT))


def test_what_was_counted_is_known_under_a_plan_that_was_signed_for_longer(tmp_path: Path) -> None:
    """Its own plan has expired and its rounds are removed; the longer one allows two counts."""
    this, path = memory(tmp_path), tmp_path / "home" / "site.db"
    counted(this, "cafe", signed(releases=2), most=2)
    assert prune_site(path, before=datetime(2030, 4, 1, tzinfo=UTC)) == 1
    longer = signed(releases=2, valid_until="2030-06-01T00:00:00+00:00")
    counted(this, "beef", longer, most=2)
    refused("as often as", lambda: this.begin("feed", longer, most_counts=2, at=AT))


class FullDisk(sqlite3.Connection):
    """Removes as it should, and has no room to write the file again."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "VACUUM":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, *values)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=FullDisk)
    )


@pytest.mark.usefixtures("full_disk")
def test_a_site_with_a_full_disk_forgets_and_says_so(tmp_path: Path) -> None:
    this, path = memory(tmp_path), tmp_path / "home" / "site.db"
    this.begin("cafe", signed(), most_counts=1, at=AT)
    with pytest.raises(DeploymentError, match=r"was removed .* not smaller: .* disk is full"):
        prune_site(path, before=datetime(2030, 4, 1, tzinfo=UTC))
    assert site_rounds(path) == []
    refused("expired", lambda: this.begin("cafe", signed(), most_counts=9, at=AT))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, 'sites', 'others')",
        "UPDATE entries SET hash = CAST(x'ff' AS TEXT)",
        "DELETE FROM entries WHERE number = 1",
        "DROP TABLE documents",
    ],
)
def test_a_memory_that_another_program_changed_is_refused_by_site_and_prune(
    tmp_path: Path, change: str
) -> None:
    this, path = memory(tmp_path), tmp_path / "home" / "site.db"
    counted(this, "cafe", signed())
    edit(path, change)
    after = path.read_bytes()
    with pytest.raises(DeploymentError, match="Bring back a copy made after its last round"):
        this.begin("beef", signed(), most_counts=9, at=AT)
    result = runner.invoke(app, ["prune", str(path.parent)])
    assert isinstance(result.exception, DeploymentError)
    assert path.read_bytes() == after


# An aggregator


def test_old_refusals_go_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "refusals"
    folder.mkdir()
    for name, at in {"old": OLD, "new": NOW}.items():
        (folder / f"{name}.json").write_text("{}")
        os.utime(folder / f"{name}.json", (at.timestamp(), at.timestamp()))
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / "old.json").write_text("{}")
    os.utime(tmp_path / "releases" / "old.json", (0, 0))
    assert prune_refusals(folder, before=BEFORE) == 1
    assert [path.name for path in folder.iterdir()] == ["new.json"]
    assert (tmp_path / "releases" / "old.json").exists()


def test_what_is_no_file_of_refusals_stays_and_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "refusals"
    folder.mkdir()
    release = tmp_path / "release.json"
    for path in (release, folder / "a.json", folder / "z.json"):
        path.write_text("{}")
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to(release)
    (folder / "lost.json").symlink_to(tmp_path / "nowhere")
    for path in (release, *folder.iterdir()):
        if path.exists():
            os.utime(path, (0, 0))
    assert prune_refusals(folder, before=BEFORE) == 2
    left = ["folder.json", "link.json", "lost.json"]
    assert sorted(path.name for path in folder.iterdir()) == left
    assert release.exists()


# A relay


@dataclass
class Relay:
    """A relay's database as Flower makes it: a registered site, an old run and a new one."""

    path: Path
    old: int
    new: int

    def state(self) -> Any:
        objects = ObjectStoreFactory(str(self.path))
        return LinkStateFactory(str(self.path), NoOpFederationManager(), objects).state()


def add_run(state: Any, content: bytes) -> int:
    run: int = state.create_run(
        fab_id="fedprikl/fedprikl-round",
        fab_version="0.1.0",
        fab_hash="",
        override_config={},
        federation_id=NOOP_FEDERATION_ID,
        federation_config=None,
        flwr_aid="",
        primary_task_type=TaskType.SERVER_APP,
    )
    (found,) = state.get_run_info(run_ids=[run])
    state.add_task_log(found.primary_task_id, content.decode() * 100)
    return run


def signed_id(number: int) -> int:
    """As Flower stores it."""
    return number - (1 << 64) if number >= 1 << 63 else number


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Relay:
    """Made once: Flower takes a while to make a database."""
    found = Relay(tmp_path_factory.mktemp("relay") / "state.db", 0, 0)
    state = found.state()
    state.create_node("me", "me", b"a public key", 30.0)
    found.old, found.new = add_run(state, b"old " * 1000), add_run(state, b"new")
    assert state.reserve_nonce("a", "b", NOW.timestamp() + 3600)
    with closing(sqlite3.connect(found.path)) as db, db:
        for run, name in {found.old: "old", found.new: "new"}.items():
            for part in ("parent", "child"):
                db.execute("INSERT INTO objects VALUES (?, ?, 1, 0)", (name + part, b"x" * 50_000))
                db.execute("INSERT INTO run_objects VALUES (?, ?)", (signed_id(run), name + part))
            db.execute("INSERT INTO object_children VALUES (?, ?)", (f"{name}parent", "newchild"))
            db.execute(
                "INSERT INTO message_ins (message_id, run_id) VALUES (?, ?)", (name, signed_id(run))
            )
        db.execute("UPDATE objects SET ref_count = 2 WHERE object_id = 'newchild'")
        db.execute(
            "UPDATE task SET pending_at = ?, finished_at = ? WHERE run_id = ?",
            (OLD.isoformat(sep=" "), OLD.isoformat(sep=" "), signed_id(found.old)),
        )
    return found


@pytest.fixture
def relay(made: Relay, tmp_path: Path) -> Relay:
    for file in [made.path, *made.path.parent.glob("state.db-wal")]:
        shutil.copy(file, tmp_path)
    return replace(made, path=tmp_path / "state.db")


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute(query)]


def test_old_runs_go_and_flower_reads_what_is_left(relay: Relay) -> None:
    folder = relay.path.parent
    size = sum(file.stat().st_size for file in folder.glob("state.db*"))
    assert prune_relay(relay.path, before=BEFORE) == 1
    assert sum(file.stat().st_size for file in folder.glob("state.db*")) < size - 100_000
    assert rows(relay.path, "SELECT object_id FROM objects ORDER BY 1") == ["newchild", "newparent"]
    assert rows(relay.path, "SELECT ref_count FROM objects ORDER BY object_id") == [1, 0]
    assert rows(relay.path, "SELECT message_id FROM message_ins") == ["new"]
    assert len(rows(relay.path, "SELECT * FROM run_series")) == 1
    state = relay.state()
    assert [run.run_id for run in state.get_run_info()] == [relay.new]
    assert state.get_node_id_by_public_key(b"a public key")  # still registered
    assert not state.reserve_nonce("a", "b", NOW.timestamp() + 3600)  # still used
    assert add_run(state, b"another")
    assert prune_relay(relay.path, before=BEFORE) == 0


def test_every_table_with_runs_or_tasks_is_known(relay: Relay) -> None:
    """A newer Flower may add some: then this list, and `prune_relay`, have to be looked at."""
    tables = rows(relay.path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    with closing(sqlite3.connect(relay.path)) as db:
        named = {
            table
            for table in tables
            for column in db.execute(f"PRAGMA table_info('{table}')")
            if column[1] in ("run_id", "task_id", "series_id", "session_id", "object_id")
        }
    text = (Path(prune_relay.__code__.co_filename)).read_text(encoding="utf-8")
    push = {"object_push_session_pending", "object_push_session_roots"}  # one f-string names both
    assert {table for table in named - push if table not in text} == set()


@pytest.mark.usefixtures("full_disk")
def test_a_relay_with_a_full_disk_says_what_was_removed(relay: Relay) -> None:
    with pytest.raises(DeploymentError, match=r"was removed .* not smaller") as told:
        prune_relay(relay.path, before=BEFORE)
    assert "Nothing was removed" not in str(told.value)
    assert rows(relay.path, "SELECT run_id FROM run") == [signed_id(relay.new)]


def test_a_database_of_another_form_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE run (run_id)")
    with pytest.raises(DeploymentError, match="Nothing was removed"):
        prune_relay(path, before=NOW)


def test_the_command_prunes_what_it_finds_and_refuses_while_it_runs(relay: Relay) -> None:
    folder = str(relay.path.parent)
    with held(relay.path.parent, "relay"):
        busy = runner.invoke(app, ["prune", folder])
    assert busy.exit_code == 1
    assert "is running already" in str(busy.exception)
    done = runner.invoke(app, ["prune", folder, "--json"])
    assert done.exit_code == 0, done.output
    (told,) = json.loads(done.stdout)["pruned"]
    assert (told["party"], told["removed"]) == ("relay", 1)
    assert told["after"] < told["before"]
    shown = runner.invoke(app, ["prune", folder, "--days", "0"])
    assert "relay: 1 runs with their messages and logs removed" in shown.stdout
    nothing = runner.invoke(app, ["prune", str(relay.path.parent / "nowhere")])
    assert nothing.exit_code == 1
    assert "nothing to prune" in str(nothing.exception)


# The command


@pytest.mark.parametrize(
    ("words", "told"),
    [(["refusals", "--days", "nan"], "finite"), (["x" * 300], "File name too long")],
)
def test_what_cannot_be_used_is_told_in_words(words: list[str], told: str, tmp_path: Path) -> None:
    folder, *rest = words
    (tmp_path / "refusals").mkdir()
    done = runner.invoke(app, ["prune", str(tmp_path / folder), *rest])
    assert isinstance(done.exception, InvalidInputError)
    assert told in str(done.exception)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Or whoever prunes another user's folder would empty a file of that user's choice."""
    home, precious = tmp_path / "home", tmp_path / "precious"
    (home / "refusals").mkdir(parents=True)
    precious.write_text("kept")
    (home / "aggregator.lock").symlink_to(precious)
    done = runner.invoke(app, ["prune", str(home)])
    assert isinstance(done.exception, InvalidInputError)
    assert precious.read_text() == "kept"


@pytest.mark.parametrize("name", ["refusals", "state.db", "site.db"])
def test_what_is_reached_by_a_link_is_left_alone(name: str, tmp_path: Path) -> None:
    """A folder `refusals` that leads to the releases would take the ledger's anchor away."""
    home, releases = tmp_path / "home", tmp_path / "home" / "releases"
    releases.mkdir(parents=True)
    (releases / "old.json").write_text("{}")
    os.utime(releases / "old.json", (0, 0))
    (home / name).symlink_to(releases if name == "refusals" else releases / "old.json")
    done = runner.invoke(app, ["prune", str(home), "--days", "0"])
    assert (releases / "old.json").read_text() == "{}"
    assert isinstance(done.exception, InvalidInputError)
    assert f"{name} is a link" in str(done.exception)
    assert sorted(path.name for path in home.iterdir()) == sorted(["releases", name])
    with pytest.raises(OSError, match=r"symbolic|directory"):  # put there after the command looked
        prune_refusals(home / name, before=NOW)
