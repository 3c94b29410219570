"""Rounds whose process died after the noise: kept once, finished by one, never given back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedprikl.errors import InvalidInputError, LedgerError
from fedprikl.privacy import AccountedRelease, Ledger, LedgerRound

AT = "2030-01-31T12:00:00+00:00"
HASH = "ab" * 32
NUMBERS = b"noised numbers"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        for name in ("phones", "tablets"):
            opened.set_budget(name, epsilon=1.0, delta=0.0, at=AT)
        yield opened


def reserved(ledger: Ledger, name: str, population: str = "phones") -> LedgerRound:
    return ledger.reserve(population, AccountedRelease(proved_epsilon=0.25), round_id=name, at=AT)


def unfinished(ledger: Ledger, population: str = "phones") -> dict[str, bytes]:
    with ledger.unfinished(population) as found:
        return found


def test_noise_is_kept_once(ledger: Ledger) -> None:
    held = reserved(ledger, "a")
    ledger.keep_noised(held, NUMBERS, at=AT)
    before = ledger.head
    with pytest.raises(InvalidInputError, match="drawn once"):
        ledger.keep_noised(held, b"other numbers", at=AT)
    with pytest.raises(InvalidInputError, match="never given back"):
        ledger.cancel(held, reason="regret", at=AT)
    assert ledger.head == before
    assert unfinished(ledger) == {"a": NUMBERS}


def test_times_are_checked_before_anything_is_written(ledger: Ledger) -> None:
    held = reserved(ledger, "a")
    before = ledger.head
    with pytest.raises(InvalidInputError, match="ISO 8601"):
        ledger.keep_noised(held, NUMBERS, at="today")
    with pytest.raises(InvalidInputError, match="ISO 8601"):
        ledger.commit(held, release_hash=HASH, at="today")
    with pytest.raises(InvalidInputError, match="ISO 8601"):
        ledger.set_budget("phones", epsilon=2.0, delta=0.0, at="today")
    assert ledger.head == before


def test_what_is_unfinished_is_charged_noised_and_not_closed(ledger: Ledger) -> None:
    first, second, _, other = (
        *(reserved(ledger, name) for name in "abc"),
        reserved(ledger, "d", "tablets"),
    )
    for held in (first, second, other):
        ledger.keep_noised(held, held.round_id.encode(), at=AT)
    assert unfinished(ledger) == {"a": b"a", "b": b"b"}
    assert unfinished(ledger, "tablets") == {"d": b"d"}
    ledger.commit(second, release_hash=HASH, at=AT)
    assert unfinished(ledger) == {"a": b"a"}
    assert unfinished(ledger, "watches") == {}
    assert ledger.account("phones").spent == pytest.approx(0.75)


def test_nobody_finishes_a_round_while_another_process_is_at_work(
    path: Path, ledger: Ledger
) -> None:
    ledger.keep_noised(reserved(ledger, "a"), NUMBERS, at=AT)
    ledger.close()
    with Ledger.open(path) as working, Ledger.open(path, timeout=0.01) as finishing:
        held = [reserved(working, name) for name in "bc"]
        working.commit(held[0], release_hash=HASH, at=AT)
        with pytest.raises(LedgerError, match="in the middle of a round"):
            unfinished(finishing)
        working.cancel(held[1], reason="nobody came", at=AT)  # its last round is over
        assert unfinished(finishing) == {"a": NUMBERS}


def test_a_refused_round_is_not_under_way(path: Path, ledger: Ledger) -> None:
    ledger.keep_noised(reserved(ledger, "a"), NUMBERS, at=AT)
    ledger.close()
    with Ledger.open(path) as refused, Ledger.open(path, timeout=0.01) as finishing:
        with pytest.raises(InvalidInputError, match="charged only once"):
            reserved(refused, "a")
        assert unfinished(finishing) == {"a": NUMBERS}


def test_a_process_finishes_what_it_left_itself(ledger: Ledger) -> None:
    ledger.keep_noised(reserved(ledger, "a"), NUMBERS, at=AT)
    with ledger.unfinished("phones") as found:
        assert found == {"a": NUMBERS}
        ledger.commit(ledger.reservation("a"), release_hash=HASH, at=AT)
    assert unfinished(ledger) == {}
