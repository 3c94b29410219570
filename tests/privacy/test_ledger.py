"""The ledger: what is charged, what is refused, and what is noticed."""

import contextlib
import hashlib
import json
import math
import os
import pickle
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.errors import (
    BudgetExceededError,
    FedPriKLError,
    InvalidInputError,
    LedgerDamagedError,
    LedgerError,
)
from fedprikl.privacy import (
    AccountedRelease,
    Charge,
    Head,
    IntegerGaussianMechanism,
    InverseSensitivityMechanism,
    Ledger,
    LedgerRound,
    Numbers,
    calibrate,
    total_epsilon,
)
from fedprikl.privacy.account import LEDGER, worst_epsilon
from fedprikl.privacy.ledger import left_words, worthwhile
from fedprikl.store import Store

AT = "2030-01-31T12:00:00+00:00"
LATER = "2030-01-31T12:00:01Z"
HASH = hashlib.sha256(b"release").hexdigest()


def release(epsilon: float) -> AccountedRelease:
    return AccountedRelease(proved_epsilon=epsilon)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        opened.set_budget("phones", epsilon=1.0, delta=1e-6, at=AT)
        yield opened


def fill(path: Path, rounds: int = 4) -> Head:
    """A ledger with a budget and some committed rounds."""
    with Ledger.open(path) as opened:
        opened.set_budget("phones", epsilon=1.0, delta=1e-6, at=AT)
        for i in range(rounds):
            reserved = opened.reserve("phones", release(0.1), round_id=f"r{i}", at=AT)
            opened.commit(reserved, release_hash=HASH, at=AT)
        return opened.head


@contextlib.contextmanager
def tampering(path: Path) -> Iterator[sqlite3.Connection]:
    """Hands on the file, the guards taken away and put back."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        known = guards.fetchall()
        for name, _ in known:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in known:
            connection.execute(sql)
        connection.commit()


def test_a_budget_holds_more_adaptive_releases_than_their_epsilons_allow(path: Path) -> None:
    """By their bounded range: 6 of epsilon 0.1 fit into 0.3, where 3 would add up to it."""
    adaptive = InverseSensitivityMechanism(epsilon=0.1)
    with Ledger.open(path) as opened:
        opened.set_budget("phones", epsilon=0.3, delta=1e-3, at=AT)
        for i in range(6):
            opened.reserve("phones", adaptive, round_id=str(i), at=AT)
        with pytest.raises(BudgetExceededError):
            opened.reserve("phones", adaptive, round_id="x", at=AT)
    with Ledger.open(path) as again:
        account = again.account("phones")
        assert account.spent <= 0.3
        assert {known.charge for known in account.rounds} == {adaptive}


def test_reserve_commit_cancel(ledger: Ledger) -> None:
    first = ledger.reserve("phones", release(0.25), round_id="one", at=AT, note="weekly")
    assert (first.population, first.round_id, first.head) == ("phones", "one", ledger.head)
    assert ledger.reservation("one") == first
    assert ledger.account("phones").spent == 0.25  # charged before anything is released
    head = ledger.commit(first, release_hash=HASH, at=LATER)
    assert head == ledger.head == Head(3, ledger.entries()[-1].hash)
    second = ledger.reserve("phones", release(0.5), round_id="two", at=AT)
    assert ledger.account("phones").left == 0.25
    assert [known.round_id for known in ledger.account("phones").open_rounds] == ["two"]
    ledger.cancel(second, reason="the cohort was too small", at=LATER)
    account = ledger.account("phones")
    assert (account.spent, account.left, account.open_rounds) == (0.25, 0.75, ())
    one, two = account.rounds
    assert (one.state, one.release_hash, one.closed_at) == ("committed", HASH, LATER)
    assert (two.state, two.reason, two.charged) == (
        "cancelled",
        "the cohort was too small",
        False,
    )
    events = [entry.body["event"] for entry in ledger.entries()]
    assert events == ["budget", "reserve", "commit", "reserve", "cancel"]
    assert json.dumps(account.to_dict(), allow_nan=False)


def test_an_open_reservation_stays_charged(path: Path, ledger: Ledger) -> None:
    ledger.reserve("phones", release(0.75), round_id="lost", at=AT)
    ledger.close()
    with Ledger.open(path) as again:
        assert again.account("phones").spent == 0.75
        with pytest.raises(BudgetExceededError):
            again.reserve("phones", release(0.5), round_id="next", at=AT)
        again.commit(again.reservation("lost"), release_hash=HASH, at=AT)


def test_gaussian_rounds_compose_exactly_and_populations_are_apart(ledger: Ledger) -> None:
    part = calibrate(Numbers(0.1), epsilon=0.5, delta=1e-6, law="gaussian")
    for i in range(3):
        ledger.reserve("phones", part, round_id=f"r{i}", at=AT)
    spent = ledger.account("phones").spent
    assert spent == total_epsilon([part] * 3, delta=1e-6)
    assert 0.5 < spent < 1.0  # the sum would be 1.5
    ledger.set_budget("banks", epsilon=2.0, delta=0.0, at=AT)
    assert ledger.account("banks").spent == 0
    assert ledger.populations() == ("banks", "phones")


def test_ten_tenths_make_one(ledger: Ledger) -> None:
    for i in range(10):
        noise = calibrate(Numbers(3.0), epsilon=0.1, law="laplace")
        mechanism: Charge = noise if i % 2 else release(0.1)
        ledger.reserve("phones", mechanism, round_id=f"r{i}", at=AT)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("phones", release(0.01), round_id="more", at=AT)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_an_exhausted_budget_says_what_would_fit(ledger: Ledger, kind: str) -> None:
    ledger.reserve("phones", release(0.6), round_id="one", at=AT)
    before = ledger.head
    with pytest.raises(BudgetExceededError, match="Nothing was charged") as caught:
        ledger.reserve("phones", release(0.5), round_id="two", at=AT)
    error = caught.value
    assert (error.spent, error.needed) == (0.6, 1.1)
    assert error.left == pytest.approx(0.4)
    assert "0.6 is spent, 0.4 is left" in str(error)
    assert f"{error.fits[kind]:g} with {kind.capitalize()} noise" in str(error)
    assert ledger.head == before
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    assert (str(copied), copied.fits) == (str(error), error.fits)
    epsilon = error.fits[kind]
    more, fitting = (
        calibrate(Numbers(), epsilon=factor * epsilon, delta=1e-6, law=kind) for factor in (1.02, 1)
    )
    with pytest.raises(BudgetExceededError):
        ledger.reserve("phones", more, round_id="two", at=AT)
    ledger.reserve("phones", fitting, round_id="two", at=AT)


def test_where_nothing_is_left_no_thousandth_is_offered(ledger: Ledger) -> None:
    room = {"laplace": 0.0016, "gaussian": 0.02}
    assert worthwhile(room, ledger.account("phones")) == room
    ledger.reserve("phones", release(0.99999), round_id="all", at=AT)
    assert left_words(ledger.account("phones")) == "0"
    assert worthwhile(room, ledger.account("phones")) == {"gaussian": 0.02}


def test_a_refusal_says_how_to_raise_the_budget_of_this_very_ledger(
    path: Path, ledger: Ledger
) -> None:
    with pytest.raises(BudgetExceededError, match="raise their budget") as refused:
        ledger.check("phones", release(1.5))
    assert f"`fedprikl ledger --ledger {path} --population phones --set-epsilon 1.5`" in str(
        refused.value
    )


def test_a_full_budget_and_a_pure_budget(ledger: Ledger) -> None:
    ledger.reserve("phones", release(1.0), round_id="all", at=AT)
    with pytest.raises(BudgetExceededError, match="No further release fits") as caught:
        ledger.reserve("phones", release(0.1), round_id="more", at=AT)
    assert caught.value.fits == {"laplace": 0, "gaussian": 0}
    ledger.set_budget("pure", epsilon=1.0, delta=0.0, at=AT)
    noise = calibrate(Numbers(), epsilon=0.1, delta=1e-6, law="gaussian")
    with pytest.raises(BudgetExceededError, match="epsilon 1 with Laplace noise\\.") as caught:
        ledger.reserve("pure", noise, round_id="more", at=AT)
    assert caught.value.needed == math.inf


def test_a_round_is_charged_once_for_ever(ledger: Ledger) -> None:
    reserved = ledger.reserve("phones", release(0.1), round_id="one", at=AT)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="charged only once"):
            ledger.reserve("phones", release(0.1), round_id="one", at=AT)
        with contextlib.suppress(InvalidInputError):
            ledger.cancel(reserved, reason="nothing left", at=AT)
    ledger.set_budget("banks", epsilon=1.0, delta=0.0, at=AT)
    with pytest.raises(InvalidInputError, match="charged only once"):
        ledger.reserve("banks", release(0.1), round_id="one", at=AT)
    assert ledger.account("phones").spent == 0


def test_a_budget_may_rise_but_not_fall_below_what_is_spent(ledger: Ledger) -> None:
    ledger.reserve("phones", release(0.75), round_id="one", at=AT)
    head = ledger.head
    assert ledger.set_budget("phones", epsilon=1.0, delta=1e-6, at=AT).left == 0.25
    assert ledger.head == head  # the same budget again: nothing is written
    with pytest.raises(InvalidInputError, match=r"already spent epsilon 0\.75"):
        ledger.set_budget("phones", epsilon=0.5, delta=1e-6, at=AT)
    assert ledger.set_budget("phones", epsilon=2.0, delta=1e-6, at=AT).left == 1.25
    assert ledger.set_budget("phones", epsilon=0.75, delta=1e-6, at=AT).left == 0
    noise = calibrate(Numbers(), epsilon=0.1, delta=1e-6, law="gaussian")
    ledger.set_budget("phones", epsilon=1.0, delta=1e-6, at=AT)
    ledger.reserve("phones", noise, round_id="two", at=AT)
    with pytest.raises(InvalidInputError, match="cannot be set"):
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda x, _: x.reserve("cars", release(0.1), round_id="a", at=AT), "has no budget"),
        (lambda x, _: x.account("cars"), "Known: 'phones'"),
        (lambda x, _: x.reserve("phones", release(0.1), round_id="", at=AT), "round id"),
        (lambda x, _: x.reserve("phones", release(0.1), round_id="a\nb", at=AT), "printable"),
        (lambda x, _: x.reserve("phones", release(0.1), round_id="a" * 201, at=AT), "200"),
        (lambda x, _: x.reserve("phones", release(0.1), round_id="a", at="today"), "ISO 8601"),
        (
            lambda x, _: x.reserve("phones", release(0.1), round_id="a", at="2030-01-31T12:00:00"),
            "with an offset",
        ),
        (lambda x, _: x.reserve("phones", release(0.1), round_id="a", at=None), "ISO 8601"),
        (lambda x, _: x.reserve("phones", release(-1), round_id="a", at=AT), "above 0"),
        (lambda x, _: x.reserve("phones", release(math.nan), round_id="a", at=AT), "finite"),
        (lambda x, _: x.reserve("phones", 0.5, round_id="a", at=AT), "cannot be charged"),
        (lambda x, _: x.set_budget("", epsilon=1, delta=0, at=AT), "population"),
        (lambda x, _: x.set_budget("a", epsilon=0, delta=0, at=AT), "above 0"),
        (lambda x, _: x.set_budget("a", epsilon=1, delta=1, at=AT), "under 1"),
        (lambda x, r: x.commit(r, release_hash="abc", at=AT), "SHA-256"),
        (lambda x, r: x.commit(r, release_hash=None, at=AT), "SHA-256"),
        (lambda x, r: x.cancel(r, reason="", at=AT), "needs a reason"),
        (lambda x, r: x.cancel(r, reason="why\x1b[0m", at=AT), "one line"),
        (lambda x, _: x.reservation("nobody"), "never reserved"),
    ],
)
def test_bad_input_says_what_to_do_and_charges_nothing(
    ledger: Ledger, use: Any, words: str
) -> None:
    reserved = ledger.reserve("phones", release(0.1), round_id="one", at=AT)
    before = ledger.head
    with pytest.raises(InvalidInputError, match=words):
        use(ledger, reserved)
    assert ledger.head == before


def test_a_name_may_have_as_many_characters_as_the_message_says(ledger: Ledger) -> None:
    reserved = ledger.reserve("phones", release(0.1), round_id="a" * 200, at=AT)
    ledger.cancel(reserved, reason="b" * 1000, at=AT)
    assert [each.round_id for each in ledger.account("phones").rounds] == ["a" * 200]


def test_a_closed_round_is_never_changed(ledger: Ledger) -> None:
    done = ledger.reserve("phones", release(0.1), round_id="one", at=AT)
    ledger.commit(done, release_hash=HASH, at=AT)
    gone = ledger.reserve("phones", release(0.1), round_id="two", at=AT)
    ledger.cancel(gone, reason="nothing left", at=AT)
    for reserved in (done, gone):
        with pytest.raises(InvalidInputError, match="already"):
            ledger.commit(reserved, release_hash=HASH, at=AT)
        with pytest.raises(InvalidInputError, match="already"):
            ledger.cancel(reserved, reason="regret", at=AT)
    assert ledger.account("phones").spent == 0.1


# A simple model: a dictionary of rounds and a sum.
operations = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "commit", "cancel", "budget", "reopen"]),
        st.integers(0, 5),
        st.sampled_from([0.125, 0.25, 0.5]),
    ),
    max_size=25,
)


@settings(max_examples=30)
@given(operations)
def test_any_sequence_of_operations_agrees_with_a_simple_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, float]]
) -> None:
    path = tmp_path_factory.mktemp("model") / "ledger.db"
    budget, rounds = 1.0, dict[str, tuple[str, float]]()
    opened = Ledger.open(path)
    opened.set_budget("p", epsilon=budget, delta=0.0, at=AT)

    def spent() -> float:
        return sum(cost for state, cost in rounds.values() if state != "cancelled")

    for action, which, cost in steps:
        name = f"r{which}"
        state, held = rounds.get(name, ("", 0.0))
        nowhere = Head(0, LEDGER.genesis)
        token = LedgerRound(
            population="p", round_id=name, charge=release(cost), at=AT, head=nowhere
        )
        try:
            if action == "reserve":
                opened.reserve("p", release(cost), round_id=name, at=AT)
                assert not state
                rounds[name] = ("open", cost)
            elif action == "commit":
                opened.commit(token, release_hash=HASH, at=AT)
                assert state == "open"
                rounds[name] = ("committed", held)
            elif action == "cancel":
                opened.cancel(token, reason="nothing left", at=AT)
                assert state == "open"
                rounds[name] = ("cancelled", held)
            elif action == "budget":
                opened.set_budget("p", epsilon=2 * cost, delta=0.0, at=AT)
                budget = 2 * cost
            else:
                opened.close()
                opened = Ledger.open(path)
        except BudgetExceededError:
            assert spent() + cost > budget
        except InvalidInputError:
            refused = {"reserve": bool(state), "budget": 2 * cost < spent()}
            assert refused.get(action, state != "open")
        account = opened.account("p")
        assert (account.spent, account.epsilon) == (spent(), budget)
        assert spent() <= budget
        assert {r.round_id: (r.state, r.charge) for r in account.rounds} == {
            name: (state, release(cost)) for name, (state, cost) in rounds.items()
        }
    opened.close()


def test_sqlite_itself_refuses_to_change_a_row(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in ("UPDATE entries SET body = ''", "DELETE FROM entries WHERE number = 2"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


EDIT = "UPDATE entries SET body = replace(body, '0.1', '0.0') WHERE number = 4"
INSERT = "INSERT INTO entries SELECT 3, body, hash FROM entries WHERE number = 5"


@pytest.mark.parametrize(
    ("statements", "entry"),
    [
        ([EDIT], 4),
        (["UPDATE entries SET hash = 'x' WHERE number = 4"], 4),
        (["UPDATE entries SET body = CAST(body AS BLOB) WHERE number = 4"], 4),
        (["UPDATE entries SET body = body || ' ' WHERE number = 1"], 1),
        (["DELETE FROM entries WHERE number = 4"], 4),
        (["DELETE FROM entries WHERE number = 1"], 1),
        (  # deleted, and the rest moved up
            [
                "DELETE FROM entries WHERE number = 4",
                "UPDATE entries SET number = -number WHERE number > 4",
                "UPDATE entries SET number = -number - 1 WHERE number < 0",
            ],
            4,
        ),
        (  # two swapped
            [
                "UPDATE entries SET number = -4 WHERE number = 4",
                "UPDATE entries SET number = 4 WHERE number = 6",
                "UPDATE entries SET number = 6 WHERE number = -4",
            ],
            4,
        ),
        (  # one inserted
            [
                "UPDATE entries SET number = -number WHERE number > 2",
                "UPDATE entries SET number = -number + 1 WHERE number < 0",
                INSERT,
            ],
            3,
        ),
        (["INSERT INTO entries VALUES (10, '{}', 'x')"], 10),
        (["INSERT INTO entries VALUES (0, '{}', 'x')"], 1),
    ],
)
def test_tampering_is_noticed_and_named(path: Path, statements: list[str], entry: int) -> None:
    fill(path)
    with tampering(path) as connection:
        for statement in statements:
            connection.execute(statement)
    with pytest.raises(LedgerDamagedError, match=f"entry {entry} .*nothing can be reserved"):
        Ledger.open(path)


def test_tampering_under_an_open_ledger_is_noticed(path: Path, ledger: Ledger) -> None:
    reserved = ledger.reserve("phones", release(0.5), round_id="one", at=AT)
    with tampering(path) as connection:  # the last row: only someone who saw it can tell
        connection.execute("DELETE FROM entries WHERE number = 2")
    with pytest.raises(LedgerDamagedError, match="cut off"):
        ledger.reserve("phones", release(0.5), round_id="two", at=AT)
    with pytest.raises(LedgerDamagedError):
        ledger.commit(reserved, release_hash=HASH, at=AT)


def test_taking_away_the_guards_is_noticed(path: Path) -> None:
    fill(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TRIGGER entries_are_never_deleted")
    with pytest.raises(LedgerDamagedError, match="guards against editing"):
        Ledger.open(path)


def test_cut_off_rows_are_seen_only_with_a_head_kept_elsewhere(path: Path) -> None:
    head = fill(path)
    with tampering(path) as connection:
        connection.execute("DELETE FROM entries WHERE number > 7")
    with Ledger.open(path) as opened:  # the chain alone is whole
        assert opened.account("phones").spent == pytest.approx(0.3)
        with pytest.raises(LedgerDamagedError, match="7 entries, but entry 9 was seen before"):
            opened.verify(head)
        assert opened.verify(Head(0, LEDGER.genesis)) == opened.head
        with pytest.raises(LedgerDamagedError, match=r"entry 3 .*entries were rewritten"):
            opened.verify(Head(3, HASH))
    with pytest.raises(LedgerDamagedError, match="rows were cut off"):
        Ledger.open(path, anchor=head)


def test_an_older_copy_that_was_put_back_is_refused(path: Path) -> None:
    fill(path, rounds=2)
    old = path.read_bytes()
    with Ledger.open(path) as opened:
        later = opened.reserve("phones", release(0.1), round_id="later", at=AT).head
    path.write_bytes(old)
    with pytest.raises(LedgerDamagedError, match="an older copy of the file was put back"):
        Ledger.open(path, anchor=later)
    with Ledger.open(path) as opened:  # without a head nobody can tell
        assert opened.account("phones").spent == pytest.approx(0.2)


def cut_last_row(path: Path) -> None:
    with tampering(path) as connection:
        connection.execute("DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)")


def test_rows_cut_off_between_two_reads_of_one_object_are_noticed(path: Path) -> None:
    """An object remembers the last head it read, wrote or opened."""
    fill(path)
    with Ledger.open(path) as opened:  # what it saw when it was opened
        cut_last_row(path)
        with pytest.raises(LedgerDamagedError, match="cut off"):
            opened.account("phones")
    with Ledger.open(path) as opened, Ledger.open(path) as other:  # what somebody else wrote
        other.reserve("phones", release(0.1), round_id="theirs", at=AT)
        assert opened.account("phones").open_rounds
        cut_last_row(path)
        with pytest.raises(LedgerDamagedError, match="cut off"):
            _ = opened.head


@pytest.mark.parametrize("write", ["reserve", "commit", "cancel", "bind", "budget"])
def test_a_row_cut_off_right_after_it_was_written_is_noticed(
    path: Path, ledger: Ledger, write: str
) -> None:
    reserved = ledger.reserve("phones", release(0.1), round_id="one", at=AT)
    if write == "commit":
        ledger.commit(reserved, release_hash=HASH, at=AT)
    if write == "cancel":
        ledger.cancel(reserved, reason="nothing has left", at=AT)
    if write == "bind":
        ledger.bind_records("phones", {"a.csv": "1"}, at=AT)
    if write == "budget":
        ledger.set_budget("banks", epsilon=1.0, delta=0.0, at=AT)
    cut_last_row(path)
    with pytest.raises(LedgerDamagedError, match="cut off"):
        ledger.account("phones")


@pytest.mark.parametrize("epsilon", [0.25, 0.75, 0.7500001, 3.0])
def test_a_check_says_what_a_reservation_would_and_charges_nothing(
    ledger: Ledger, epsilon: float
) -> None:
    ledger.reserve("phones", release(0.25), round_id="one", at=AT)
    before = ledger.head

    def outcome(ask: Any) -> str:
        try:
            ask()
        except BudgetExceededError as error:
            return str(error)
        return "fits"

    found = outcome(lambda: ledger.check("phones", release(epsilon)))
    assert ledger.head == before
    again = outcome(lambda: ledger.reserve("phones", release(epsilon), round_id="two", at=AT))
    assert found == again
    assert (found == "fits") == (epsilon <= 0.75)


def test_a_check_needs_a_budget_and_a_charge(ledger: Ledger) -> None:
    with pytest.raises(InvalidInputError, match="has no budget"):
        ledger.check("banks", release(0.1))
    with pytest.raises(InvalidInputError, match="above 0"):
        ledger.check("phones", release(-1.0))


@pytest.mark.parametrize(
    "body",
    [
        "nonsense",
        "[]",
        "{}",
        '{"event":"dance","round":"r0","at":"x"}',
        '{"event":"commit","round":"r0","at":"x"}',  # was committed before
        '{"event":"budget","population":"phones","epsilon":-1,"delta":0}',
        '{"event":"budget","population":"phones","epsilon":"a","delta":0}',
        '{"event":"budget","population":["phones"],"epsilon":1,"delta":0}',
        '{"event":"reserve","population":"x","round":"y","mechanism":{},"at":"x","note":""}',
        '{"event":"reserve","population":"phones","round":"y","mechanism":3,"at":"","note":""}',
        '{"event":"reserve","population":"phones","round":"y","mechanism":{"kind":[]},'
        '"at":"","note":""}',
        '{"event":"records","population":"phones","at":"x"}',
        '{"event":"records","population":["x"],"salt":"' + "0" * 64 + '","marks":[]}',
        '{"event":"records","population":"x","salt":"short","marks":[]}',
        '{"event":"records","population":"x","salt":1,"marks":[]}',
        '{"event":"records","population":"x","salt":"' + "0" * 64 + '","marks":["ab"]}',
        '{"event":"records","population":"x","salt":"' + "0" * 64 + '","marks":[3]}',
    ],
)
def test_a_forged_entry_with_a_right_hash_must_still_make_sense(path: Path, body: str) -> None:
    head = fill(path)
    number = head.count + 1
    forged = hashlib.sha256(f"{number}\n{head.hash}\n{body}".encode()).hexdigest()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, body, forged))
        connection.commit()
    with pytest.raises(LedgerDamagedError, match=f"Entry {number} .*makes no sense"):
        Ledger.open(path)


def test_the_hash_is_what_the_documentation_says(path: Path) -> None:
    fill(path)
    previous = hashlib.sha256(b"fedprikl ledger, version 1").hexdigest()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for number, body, claimed in connection.execute("SELECT * FROM entries ORDER BY number"):
            previous = hashlib.sha256(f"{number}\n{previous}\n{body}".encode()).hexdigest()
            assert previous == claimed
            assert body == json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"))


def test_a_new_ledger_is_for_its_owner_only(path: Path, ledger: Ledger) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # nothing left behind
    assert ledger.head.count == 1


def test_files_that_are_no_ledger(path: Path) -> None:
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger.open(path, create=False)
    with pytest.raises(LedgerError, match="No such file or directory"):
        Ledger.open(path.parent / "nowhere" / "ledger.db")
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger.open(path.parent)
    for content in (b"", b"hello " * 1000):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match="is not a ledger"):
            Ledger.open(path)
        assert path.read_bytes() == content
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (number)")
    with pytest.raises(LedgerError, match="another program"):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["a b?mode=ro#x.db", "100%25.db", "é.db"])
def test_any_file_name_will_do(path: Path, name: str) -> None:
    fill(path.parent / name)
    assert (path.parent / name).is_file()
    with Ledger.open(path.parent / name, create=False) as opened:
        assert opened.populations() == ("phones",)


def test_a_failing_disk_leaves_no_claim_about_the_charge(path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with Store(path, LEDGER) as store:
        refused = pytest.raises(LedgerError, match="Release nothing")
        with refused, store.writing():
            raise error


def test_another_version_and_a_read_only_file(path: Path) -> None:
    fill(path)
    path.chmod(0o400)
    with Ledger.open(path) as opened:
        assert opened.account("phones").spent == pytest.approx(0.4)
        if os.geteuid() != 0:
            with pytest.raises(LedgerError, match="may not be written"):
                opened.set_budget("banks", epsilon=1, delta=0, at=AT)
    path.chmod(0o600)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(LedgerError, match="version 7"):
        Ledger.open(path)


def test_a_locked_ledger_is_an_error_after_the_timeout(path: Path) -> None:
    fill(path)
    with (
        Ledger.open(path, timeout=0.05) as opened,
        contextlib.closing(sqlite3.connect(path)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"locked by another process for 0\.05 seconds"):
            opened.reserve("phones", release(0.1), round_id="next", at=AT)
        assert opened.account("phones").spent == pytest.approx(0.4)  # reading goes on
        other.execute("ROLLBACK")
        opened.reserve("phones", release(0.1), round_id="next", at=AT)


def test_nobody_else_may_charge_between_the_check_and_the_charge(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one comes while the first one computes: it waits, and gives up without a look."""
    outcomes: list[str] = []

    def interrupted(*arguments: Any, **more: Any) -> float:
        outcomes.append("checked")
        if len(outcomes) == 1:
            try:
                other.reserve("phones", release(0.75), round_id="two", at=AT)
            except LedgerError as error:
                outcomes.append(str(error))
        return worst_epsilon(*arguments, **more)

    with Ledger.open(path, timeout=0.05) as other:
        monkeypatch.setattr("fedprikl.privacy.ledger.worst_epsilon", interrupted)
        ledger.reserve("phones", release(0.75), round_id="one", at=AT)
    checked, refused = outcomes  # one check only: the lock comes before the first read
    assert checked == "checked"
    assert "locked by another process" in refused
    assert ledger.account("phones").spent == 0.75


def fill_the_disk(opened: Ledger, width: int = 40) -> None:
    for i in range(100):
        opened.set_budget(f"{i}" * width, epsilon=1.0, delta=0.0, at=AT)


def test_a_closed_ledger_and_a_full_disk_are_plain_errors(path: Path) -> None:
    fill(path)
    opened = Ledger.open(path)
    opened._store.connection.execute("PRAGMA max_page_count = 1")  # no smaller than it is
    before = opened.head
    with pytest.raises(LedgerError, match="full; nothing was charged"):
        fill_the_disk(opened)
    assert opened.head.count >= before.count
    opened.close()
    with pytest.raises(LedgerError, match="is closed"):
        opened.account("phones")


@pytest.mark.parametrize("step", ["noised", "commit"])
def test_a_full_or_busy_disk_after_the_charge_does_not_deny_the_charge(
    path: Path, step: str
) -> None:
    fill(path)
    with (
        Ledger.open(path, timeout=0.05) as opened,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        held = opened.reserve("phones", release(0.1), round_id="next", at=AT)

        def go_on() -> None:
            if step == "noised":
                opened.keep_noised(held, bytes(100_000), at=AT)
            else:
                opened.commit(held, release_hash="ab" * 32, at=AT)

        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"locked .* the round was charged before and stays"):
            go_on()
        other.execute("ROLLBACK")
        opened._store.connection.execute("PRAGMA max_page_count = 1")  # no smaller than it is
        with pytest.raises(LedgerError, match="full; nothing was charged"):
            fill_the_disk(opened, width=1)  # with what is shorter than what follows
        with pytest.raises(LedgerError, match="full; the round was charged before and stays"):
            go_on()


def test_a_ledger_belongs_to_one_thread(ledger: Ledger) -> None:
    caught: list[Exception] = []

    def use() -> None:
        try:
            ledger.account("phones")
        except FedPriKLError as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "another thread" in str(caught[0])


@settings(max_examples=150)
@given(st.data())
def test_any_damage_to_the_file_is_noticed_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes flipped, cut or added anywhere: a plain error, or the same entries."""
    path = tmp_path_factory.mktemp("fuzz") / "ledger.db"
    head, whole = _whole_ledger(tmp_path_factory)
    content = bytearray(whole)
    places = st.one_of(st.integers(0, 120), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(places) :]
    path.write_bytes(content)
    with (
        contextlib.suppress(LedgerError),
        Ledger.open(path, anchor=head, timeout=0.01) as opened,
    ):
        assert opened.head == head
        assert opened.account("phones").spent == pytest.approx(0.4)


def test_bytes_that_are_no_text_are_noticed(path: Path) -> None:
    """In the schema, SQLite quotes them in an error message that cannot be decoded."""
    fill(path)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CRE\x80TE TABLE"))
    with pytest.raises(LedgerDamagedError, match="cannot be read"):
        Ledger.open(path)


_WHOLE: list[tuple[Head, bytes]] = []


def _whole_ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Head, bytes]:
    if not _WHOLE:
        path = tmp_path_factory.mktemp("whole") / "ledger.db"
        _WHOLE.append((fill(path), path.read_bytes()))
    return _WHOLE[0]


def test_mechanisms_survive_the_file(ledger: Ledger) -> None:
    made: list[Charge] = [
        calibrate(Numbers(1 / 3), epsilon=0.1, law="laplace"),
        calibrate(Numbers(1 / 3), epsilon=0.1, delta=1e-6, law="gaussian"),
        IntegerGaussianMechanism(sigma=100 / 3, coordinates=1),
    ]
    for i, mechanism in enumerate(made):
        ledger.reserve("phones", mechanism, round_id=f"r{i}", at=AT)
    assert [each.charge for each in ledger.account("phones").rounds] == made
