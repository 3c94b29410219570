"""What the entries of a ledger say, without a file: accounts and time intervals, exactly."""

from collections.abc import Mapping
from typing import Any

import pytest

from fedprikl.errors import InvalidInputError, LedgerError
from fedprikl.privacy import Charge, Numbers, TimeInterval, calibrate
from fedprikl.privacy.account import Account, Accounts, LedgerRound, exposures, worst_epsilon
from fedprikl.privacy.charges import charge_to_dict
from fedprikl.privacy.ledger import left_words, worthwhile
from fedprikl.store import Entry, Head

AT = "2030-01-31T12:00:00+00:00"
HALF, ONE = (calibrate(Numbers(), epsilon=each, law="laplace") for each in (0.5, 1.0))
BUDGET = {"event": "budget", "population": "p", "epsilon": 1.0, "delta": 0.0}
RESERVE = {
    "event": "reserve",
    "round": "a",
    "population": "p",
    "mechanism": charge_to_dict(HALF),
    "at": AT,
    "note": "why",
}
NOISED = {"event": "noised", "round": "a", "document": "f" * 64}
COMMIT = {"event": "commit", "round": "a", "at": AT, "release_hash": "e" * 64}
CANCEL = {"event": "cancel", "round": "a", "at": AT, "reason": "nobody came"}


def days(first: int, last: int, clock: str = "") -> TimeInterval:
    """Days of January, up to and without the last."""
    start, end = (f"2027-01-{day:02}T00:00:00+00:00" for day in (first, last))
    return TimeInterval(start, end, clock)


def applied(*bodies: Mapping[str, Any]) -> Accounts:
    accounts = Accounts()
    for number, body in enumerate(bodies, start=1):
        accounts.apply(Entry(number, dict(body), f"hash {number}"))
    return accounts


def charged(epsilon: float, *charges: Charge) -> Account:
    accounts = applied(
        BUDGET | {"epsilon": epsilon},
        *(
            RESERVE | {"round": str(number), "mechanism": charge_to_dict(charge)}
            for number, charge in enumerate(charges)
        ),
    )
    return accounts.account("p")


def test_what_is_left_is_what_is_not_spent_and_never_below_nothing() -> None:
    for account, spent, left in [
        (charged(2.0), 0.0, 2.0),
        (charged(2.0, HALF), 0.5, 1.5),
        (charged(2.0, HALF, ONE), 1.5, 0.5),
        (charged(1.0, HALF, ONE), 1.5, 0.0),
    ]:
        assert (account.spent, account.left) == pytest.approx((spent, left))
        written = account.to_dict()
        assert (written["spent"], written["left"]) == pytest.approx((spent, left))


@pytest.mark.parametrize("budget", [0.01, 1.0, 100.0])
def test_what_is_left_is_said_unless_it_is_a_ten_thousandth(budget: float) -> None:
    for share, words in ((0.5, f"{budget / 2:.4g}"), (2e-4, f"{2e-4 * budget:.4g}"), (5e-5, "0")):
        spent = calibrate(Numbers(), epsilon=budget * (1 - share), law="laplace")
        assert left_words(charged(budget, spent)) == words
        fits = {"laplace": 2e-3 * budget, "gaussian": 5e-4 * budget}
        assert worthwhile(fits, charged(budget)) == {"laplace": 2e-3 * budget}


def test_an_account_lists_its_rounds_and_what_each_gives_alone() -> None:
    accounts = applied(BUDGET, RESERVE, CANCEL, RESERVE | {"round": "b"})
    written = accounts.account("p").to_dict()
    assert (written["epsilon"], written["delta"], written["unit"]) == (1.0, 0.0, "record")
    assert written["open"] == 1
    assert [each["charged"] for each in written["rounds"]] == [False, True]
    assert [each["epsilon"] for each in written["rounds"]] == pytest.approx([0.5, 0.5])
    assert written["rounds"][1]["charge"] == charge_to_dict(HALF)


def test_a_round_is_open_until_it_is_committed_or_cancelled() -> None:
    for closing, state, counts in (
        ((), "open", True),
        ((COMMIT,), "committed", True),
        ((CANCEL,), "cancelled", False),
    ):
        accounts = applied(BUDGET, RESERVE, *closing)
        (found,) = accounts.account("p").rounds
        assert (found.state, found.charged, found.is_open) == (state, counts, state == "open")
        assert accounts.account("p").open_rounds == ((found,) if found.is_open else ())
        assert accounts.account("p").timed == ([(HALF, None)] if counts else [])


def test_a_reservation_is_kept_as_it_was_written() -> None:
    span = ["2027-01-04T00:00:00+00:00", "2027-01-05T00:00:00+00:00", "arrival"]
    accounts = applied(BUDGET, RESERVE | {"span": span}, NOISED, COMMIT)
    assert accounts.rounds["a"] == LedgerRound(
        round_id="a",
        population="p",
        charge=HALF,
        at=AT,
        head=Head(2, "hash 2"),
        note="why",
        times=days(4, 5, "arrival"),
        state="committed",
        noised="f" * 64,
        closed_at=AT,
        release_hash="e" * 64,
    )


@pytest.mark.parametrize(
    "forged",
    [
        (RESERVE,),  # no budget
        (BUDGET, RESERVE, RESERVE),
        (BUDGET, RESERVE | {"round": 7}),
        (BUDGET, RESERVE, NOISED, NOISED),
        (BUDGET, RESERVE, NOISED, CANCEL),
        (BUDGET, RESERVE, COMMIT, COMMIT),
        (BUDGET, RESERVE, CANCEL, NOISED),
        (BUDGET, RESERVE, CANCEL | {"at": 7}),
        (BUDGET, COMMIT),
        (BUDGET, {"event": "open", "round": "a"}),
        (BUDGET | {"epsilon": -1.0},),
        (BUDGET | {"delta": 1.0},),
        (BUDGET | {"unit": "site"},),
    ],
)
def test_what_no_ledger_would_have_written_is_refused(forged: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        applied(*forged)


def test_a_mechanism_that_is_not_known_here_is_not_damage() -> None:
    with pytest.raises(LedgerError, match="'new', which is not known here"):
        applied(BUDGET, RESERVE | {"mechanism": {"kind": "new"}})


def test_accounts_are_of_one_population_each() -> None:
    other = {"population": "q"}
    accounts = applied(BUDGET, BUDGET | other, RESERVE, RESERVE | other | {"round": "b"})
    assert [each.round_id for each in accounts.account("p").rounds] == ["a"]
    assert [each.round_id for each in accounts.account("q").rounds] == ["b"]
    with pytest.raises(InvalidInputError, match=r"'r' has no budget.*Known: 'p', 'q'"):
        accounts.account("r")
    with pytest.raises(InvalidInputError, match="Known: none"):
        applied().account("p")
    with pytest.raises(InvalidInputError, match="was never reserved"):
        accounts.open_round("c")


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (days(1, 3), days(3, 5), False),
        (days(1, 3), days(2, 5), True),
        (days(1, 5), days(2, 3), True),
        (days(1, 2), days(4, 5), False),
        (days(1, 3), days(3, 5, "arrival"), True),
        (days(1, 3), None, True),
    ],
)
def test_intervals_share_records_where_they_overlap(
    one: TimeInterval, other: TimeInterval | None, shared: bool
) -> None:
    assert one.overlaps(other) is shared
    if other is not None:
        assert other.overlaps(one) is shared


def test_an_interval_ends_after_it_begins() -> None:
    for first, last in [(3, 3), (4, 3)]:
        with pytest.raises(InvalidInputError, match="ends after it begins"):
            days(first, last)


def test_charges_of_one_clock_add_up_where_they_overlap() -> None:
    touching = [(HALF, days(1, 3)), (ONE, days(3, 5))]
    assert set(exposures(touching)) == {(), (HALF,), (ONE,)}
    assert worst_epsilon(touching, delta=0.0) == pytest.approx(1.0)
    overlapping = [(HALF, days(1, 4)), (ONE, days(3, 5))]
    assert set(exposures(overlapping)) == {(), (HALF,), (HALF, ONE)}
    assert worst_epsilon(overlapping, delta=0.0) == pytest.approx(1.5)


def test_charges_of_other_clocks_or_none_always_add_up() -> None:
    found = exposures([(ONE, None), (HALF, days(1, 2)), (HALF, days(3, 4, "arrival"))])
    assert sorted(map(len, found)) == [1, 2, 2, 3]
    assert all(each[0] == ONE for each in found)


def test_clients_are_not_protected_by_what_protects_records() -> None:
    account = applied(BUDGET | {"unit": "client"}).account("p")
    account.check_protects("client")
    with pytest.raises(InvalidInputError, match="protects single records only"):
        account.check_protects("record")
    applied(BUDGET).account("p").check_protects("record")
    applied(BUDGET).account("p").check_protects("client")
