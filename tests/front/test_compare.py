"""`fedprikl.compare`: whatever holds the records, one round, charged once."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedprikl import (
    BudgetExceededError,
    InsecureSeededNoise,
    InvalidInputError,
    Ledger,
    LedgerError,
    RecordsError,
    Reference,
    SignedPlan,
    fit_reference,
    plan,
    verify,
)
from fedprikl.cli.app import app
from fedprikl.errors import LedgerDamagedError
from fedprikl.front import comparing, local_parties
from fedprikl.front.bookkeeping import NO_LEDGER
from fedprikl.protocol import Client, RoundResult, run_round
from fedprikl.records import FrameRecords
from tests.cli.test_round_commands import runner
from tests.front.conftest import Population

pytestmark = pytest.mark.slow

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def spent(path: str | Path, population: str = "people") -> float:
    with Ledger.open(path) as book:
        return book.account(population).spent


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_every_library_are_counted_alike(people: Population, library: str) -> None:
    frames = people.frames(LIBRARIES[library])
    for frame, rows in zip(frames, people.rows, strict=True):
        counts = FrameRecords(frame).count(people.reference).counts
        expected = people.reference.count(pl.DataFrame(rows))
        np.testing.assert_array_equal(counts, expected)
    result, plain = people.compare(frames), people.compare()
    assert (result.value, result.interval) == (plain.value, plain.interval)
    assert result.drifted is True


def test_files_and_names_give_the_same_as_frames(people: Population, folder: Path) -> None:
    plain = people.compare()
    files = sorted((folder / "clients").iterdir())
    mixed = {f"client {n}": path for n, path in enumerate(files, start=1)} | {
        "client 2": pa.table(people.rows[1])
    }
    named_frames = {f"client {n}": pd.DataFrame(rows) for n, rows in enumerate(people.rows, 1)}
    for clients in (folder / "clients", "clients", files, mixed, named_frames):
        assert people.compare(clients).value == plain.value


def test_lists_of_columns_are_lists(people: Population, folder: Path) -> None:
    frame = pl.DataFrame(people.rows[0])
    for name in ("columns", "categorical", "missing"):
        given: Any = {name: "plan"}
        with pytest.raises(InvalidInputError, match=rf"Give a list: {name}=\['plan'\]"):
            Reference.fit(frame, **given)
        with pytest.raises(InvalidInputError, match=rf"Give a list: {name}=\['plan'\]"):
            fit_reference(folder / "clients" / "client 1.csv", **given)


def test_the_command_line_reads_a_saved_plan(people: Population, folder: Path) -> None:
    people.planned.save(folder / "plan.json")
    people.reference.save("ref.json")
    result = runner.invoke(app, ["estimate", "plan.json", "clients"])
    assert result.exit_code == 0, result.output
    assert people.compare(plan="plan.json").plan == people.planned.plan


def test_records_without_columns_are_arrays() -> None:
    reference = Reference.from_counts([500, 300, 200])
    planned = plan(reference, clients=3, records=60, epsilon=1.0)
    clients = [np.array([0, 1] * 10), [2] * 20, range(20)]
    assert comparing.compare(reference, clients, planned, ledger=None).privacy.holds


def test_the_ledger_is_charged_exactly_once_each_and_refuses_at_the_end(
    people: Population, folder: Path
) -> None:
    first = people.compare(ledger="ledger.db")
    assert first.notes == (
        "'people' had no budget; it is now epsilon 1, delta 1e-06, for 2 releases.",
    )
    after_one = spent("ledger.db")
    assert 0 < after_one < 1
    with Ledger.open("ledger.db") as book:
        second = people.compare(ledger=book)
        (account,) = book.accounts()
        assert [known.round_id for known in account.rounds] == [
            first.release.round_id,
            second.release.round_id,
        ]
    assert second.epsilon_left < 1e-3 < first.epsilon_left
    before = (folder / "ledger.db").read_bytes()
    with pytest.raises(BudgetExceededError, match="Nothing was charged"):
        people.compare(ledger="ledger.db")
    assert (folder / "ledger.db").read_bytes() == before


def test_a_release_is_not_lost_with_its_ledger(
    people: Population, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may hold the ledger just after the release was charged."""

    def locked(*arguments: Any, **settings: Any) -> RoundResult:
        result = run_round(*arguments, **settings)
        settings["ledger"].account = account
        return result

    def account(_: str) -> NoReturn:
        raise LedgerError("The ledger is locked.")

    monkeypatch.setattr(local_parties, "run_round", locked)
    assert math.isnan(people.compare(ledger="ledger.db").epsilon_left)
    assert spent(folder / "ledger.db") > 0


def test_the_usual_ledger_lies_in_the_working_folder(people: Population, folder: Path) -> None:
    comparing.compare(people.reference, "clients", people.planned)
    assert spent(folder / "ledger.db") > 0


def test_without_a_ledger_it_says_so(people: Population, folder: Path) -> None:
    result = people.compare()
    assert result.notes == (NO_LEDGER,)
    assert NO_LEDGER in str(result)
    assert result.epsilon_left is None
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_new_name_is_no_new_budget_for_frames(
    people: Population, folder: Path, library: str
) -> None:
    """One frame of people who were counted before, among new ones."""
    people.compare(people.frames(LIBRARIES[library]), ledger="ledger.db")
    other = plan(people.reference, clients=6, records=360, epsilon=1.0, population="others")
    fresh = [LIBRARIES[library](rows | {"plan": ["plus"] * 60}) for rows in people.rows]
    known = [*fresh[1:], people.frames(LIBRARIES[library])[0]]
    with pytest.raises(InvalidInputError, match="A new name is no new budget"):
        people.compare(known, plan=other, ledger="ledger.db")
    with Ledger.open(folder / "ledger.db") as book:
        assert book.populations() == ("people",)
    people.compare(fresh, plan=other, ledger="ledger.db")


def test_an_older_ledger_is_refused(people: Population, folder: Path) -> None:
    people.compare(ledger="ledger.db").save("release.json")
    (folder / "ledger.db").unlink()
    with pytest.raises(LedgerDamagedError, match=r"There is no ledger ledger\.db"):
        people.compare(ledger="ledger.db")
    (folder / "books").mkdir()
    with Ledger.open("books/other.db") as book, pytest.raises(LedgerDamagedError):
        people.compare(ledger=book, releases=["."])
    people.compare(ledger="ledger.db", key=None)  # releases of another key stop nobody


def bad_columns(people: Population) -> Any:
    return [*people.frames(pd.DataFrame)[1:], pd.DataFrame({"age": [1.0]})]


def same_frame(people: Population) -> Any:
    frame = pl.DataFrame(people.rows[0])
    return [frame, frame, *people.frames(pl.DataFrame)[1:]]


def numbered(people: Population) -> Any:
    return dict(enumerate(people.frames(pl.DataFrame)))


BAD_CLIENTS: dict[str, tuple[Callable[[Population], Any], str]] = {
    "one frame": (lambda people: pd.DataFrame(people.rows[0]), "are one DataFrame"),
    "one array": (lambda _: np.zeros((6, 3)), "are one ndarray"),
    "a number": (lambda _: 7, "are one int"),
    "too few": (lambda people: people.frames(pl.DataFrame)[:2], "holds 2 clients"),
    "none": (lambda _: [], "holds 0 clients"),
    "a column is missing": (bad_columns, "client 6: The data frame has no column 'plan'"),
    "no such folder": (lambda _: "nowhere", "no file or folder"),
    "no such file": (lambda _: ["a.csv", "b.csv", "c.csv"], "no file or folder a.csv"),
    "the same frame": (same_frame, "same records"),
    "the same file": (lambda _: ["clients/client 1.csv"] * 3, "listed twice"),
    "the same file by two names": (
        lambda _: {n: f"clients/{n[0]}/client 1.csv" for n in ("./a", ".", "./.")},
        "same records",
    ),
    "names that are numbers": (numbered, r"must be texts.*\{str\(k\): frame\}"),
    "a client that is nothing": (lambda _: [None] * 4, "of the type NoneType"),
    "arrays for columns": (
        lambda _: [[1, 2], [1, 3], [1, 4]],
        "the columns 'age', 'plan', got list",
    ),
    "a groupby": (lambda people: pd.DataFrame(people.rows[0]).groupby("plan"), r"for k, g in grou"),
}


@pytest.mark.parametrize(("make", "words"), BAD_CLIENTS.values(), ids=BAD_CLIENTS)
def test_bad_clients_charge_nothing(
    people: Population,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Population], Any],
    words: str,
) -> None:
    monkeypatch.setattr(local_parties, "count_all", None)  # refused before anything is counted
    with pytest.raises((InvalidInputError, RecordsError), match=words):
        people.compare(make(people), ledger="ledger.db", key="key.pem")
    assert sorted(path.name for path in folder.iterdir()) == ["clients"]


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("place", ["clients/d.csv", "clients/own/b.csv", "elsewhere.csv"])
def test_a_file_that_counts_twice_by_a_link_charges_nothing(
    people: Population, folder: Path, link: Callable[[Path, Path], None], place: str
) -> None:
    """As a client, inside a client's folder, and in a list of paths; both paths are named."""
    own, other, new = folder / "clients" / "own", folder / "clients/client 2.csv", folder / place
    own.mkdir()
    (folder / "clients/client 1.csv").rename(own / "a.csv")
    people.compare(folder / "clients", ledger=None)
    link(new, other)
    clients = [own, other, new] if place == "elsewhere.csv" else folder / "clients"
    with pytest.raises(RecordsError, match="count twice") as refused:
        people.compare(clients, ledger=folder / "ledger.db")
    assert str(other) in str(refused.value)
    assert str(new) in str(refused.value)
    assert not (folder / "ledger.db").exists()


def test_clients_folders_may_be_links(people: Population, folder: Path) -> None:
    linked = folder / "linked"
    linked.mkdir()
    for file in sorted((folder / "clients").iterdir()):
        own = folder / "stores" / file.stem
        own.mkdir(parents=True)
        file.rename(own / file.name)
        (linked / file.stem).symlink_to(own)
    assert people.compare(linked).release.records == 360
    (linked / "again").symlink_to(folder / "stores" / "client 1")
    with pytest.raises(RecordsError, match=r"again/client 1\.csv and .* same records"):
        people.compare(linked)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"largest_epsilon": 0.1}, "largest_epsilon"),
        ({"plan": 7}, "what `fedprikl.plan` returns"),
        ({"plan": "none.json"}, "Cannot read the plan"),
        ({"ledger": 7}, "path, a Ledger, or None"),
    ],
)
def test_bad_settings_charge_nothing(
    people: Population, folder: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        people.compare(**({"ledger": "ledger.db"} | settings))
    assert not (folder / "ledger.db").exists()


def test_a_ledger_is_opened() -> None:
    with pytest.raises(InvalidInputError, match=r"Ledger\.open\(path\)"):
        Ledger("ledger.db")  # type: ignore[arg-type]


def test_the_reference_must_be_the_plans(people: Population) -> None:
    other = Reference.fit(pl.DataFrame(people.rows[0]), bins=3)
    with pytest.raises(InvalidInputError, match="another reference"):
        comparing.compare(other, people.frames(pl.DataFrame), people.planned)
    with pytest.raises(InvalidInputError, match="or the path of one"):
        comparing.compare(7, [], people.planned)  # type: ignore[arg-type]


def test_bad_frames_may_be_left_out(people: Population) -> None:
    result = people.compare([*people.frames(pl.DataFrame)[:5], pl.DataFrame()], skip_bad_files=True)
    assert list(result.left_out) == ["client 6"]
    assert "1 source of clients cannot be used" in result.notes[0]
    assert "Counted: 5 of 5 clients." in str(result)


def test_one_record_changes_no_words(people: Population) -> None:
    """Values that the reference does not know, that are none, or of an odd type: no note of it."""
    plain = people.compare()
    for odd in ("platinum", None, b"\xff", 7, object()):
        rows = people.rows[0] | {"plan": [*people.rows[0]["plan"][:-1], odd]}
        frame = pd.DataFrame({name: pd.Series(rows[name], dtype=object) for name in rows})
        result = people.compare([frame, *people.frames(pd.DataFrame)[1:]], ledger=None)
        assert (result.notes, result.left_out, result.refusals) == (plain.notes, {}, {})


def test_progress_is_told_to_whoever_asks(
    people: Population, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, int, int]] = []
    people.compare(ledger="ledger.db", progress=lambda *told: calls.append(told))
    for what in ("reading records", "counting records"):
        assert [done for name, done, _ in calls if name == what] == [1, 2, 3, 4, 5, 6]
    assert calls[-1] == ("secure sums", 5, 5)
    assert capsys.readouterr() == ("", "")
    assert folder


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_it_is_the_estimate_of_the_command_line(
    people: Population, folder: Path, monkeypatch: pytest.MonkeyPatch, trust: Any
) -> None:
    """The same release to the last digit, if the noise is the same."""
    planned = plan(people.reference, clients=6, records=360, epsilon=1.0, trust=trust)
    people.reference.save(folder / "ref.json")
    (folder / "plan.json").write_text(json.dumps(SignedPlan(planned.plan).to_dict()))
    people.key.save(folder / "aggregator.pem")
    noise: list[InsecureSeededNoise] = []  # one for each round

    def noisy_client(*arguments: Any, **settings: Any) -> Client:
        return Client(*arguments, **(settings | {"source": noise[-1]}))

    def fixed(*arguments: Any, **settings: Any) -> RoundResult:
        chance = {"rng": np.random.default_rng(5), "randomness": lambda size: bytes(size)}
        return run_round(*arguments, **(settings | chance | {"source": noise[-1]}))

    monkeypatch.setattr(comparing, "now", lambda: "2030-01-31T12:00:00+00:00")
    monkeypatch.setattr(local_parties, "Client", noisy_client)
    monkeypatch.setattr(local_parties, "run_round", fixed)
    noise.append(InsecureSeededNoise(5))
    call = runner.invoke(app, ["estimate", "plan.json", "clients", "--json"])
    assert call.exit_code == 0, call.output
    shown = json.loads(call.stdout)
    (folder / "books").mkdir()
    noise.append(InsecureSeededNoise(5))
    mine = people.compare("clients", plan="plan.json", ledger="books/ledger.db").to_dict()
    assert mine.keys() | {"report"} == shown.keys()
    for document in (mine, shown):  # a hash chain under a salt of its own
        assert document["release"]["ledger"].pop("hash")
    assert mine["release"] == shown["release"]


def test_a_line_break_in_a_name_makes_no_line_of_an_error(people: Population, folder: Path) -> None:
    odd = folder / "odd"
    odd.mkdir()
    for name in ("a.csv", "b.csv", "c\nfedprikl: all is well.csv"):
        (odd / name).write_text("wrong\n1\n")
    with pytest.raises(RecordsError) as raised:
        people.compare(odd, ledger=None)
    assert "all is well" in str(raised.value)
    assert not any(line.startswith("fedprikl:") for line in str(raised.value).split("\n"))


@pytest.mark.parametrize("least", [0.05, 0.9])
@pytest.mark.parametrize("ask", ["kl", "columns"])
def test_what_is_tolerated_is_signed(people: Population, least: float, ask: str) -> None:
    """The verdict of a tolerance is a plain number, of counts as well as of single answers."""
    asked = plan(
        people.reference, clients=6, records=360, epsilon=1.0, ask=["tv", ask], tolerate=least
    )
    result = people.compare(plan=asked)
    assert result.drifted is (least < 0.5)
    assert verify(result.release).drifted is result.drifted
