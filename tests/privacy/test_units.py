"""Whose budget it is: releases about records never draw on the budget of whole clients."""

from pathlib import Path

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.privacy import Ledger, Numbers, PrivacyStatement, TimeInterval, calibrate

AT = "2030-01-31T12:00:00+00:00"
CHARGE = calibrate(Numbers(), epsilon=0.5, law="laplace")
JANUARY = TimeInterval("2030-01-01T00:00:00+00:00", "2030-02-01T00:00:00+00:00")


def test_the_budget_of_clients_refuses_what_protects_records_only(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT, unit="client")
        for charge in (ledger.check, lambda *args: ledger.reserve(*args, round_id="1", at=AT)):
            with pytest.raises(InvalidInputError, match="Plan with --unit client"):
                charge("phones", CHARGE)
        assert ledger.account("phones").spent == 0
        ledger.reserve("phones", CHARGE, round_id="1", at=AT, unit="client")
        ledger.set_budget("phones", epsilon=2.0, delta=0.0, at=AT)  # stays that of clients
        assert ledger.account("phones").unit == "client"
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        account = ledger.account("phones")
        assert (account.unit, account.rounds[0].unit) == ("client", "client")
        assert account.spent == pytest.approx(0.5)
        assert account.to_dict()["unit"] == "client"


def test_what_protects_clients_protects_their_records(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
        ledger.reserve("phones", CHARGE, round_id="1", at=AT, unit="client")
        ledger.reserve("phones", CHARGE, round_id="2", at=AT, times=JANUARY)
        assert ledger.account("phones").spent == pytest.approx(1.0)


def test_a_promise_to_clients_is_neither_made_too_late_nor_taken_back(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
        first = ledger.reserve("phones", CHARGE, round_id="1", at=AT)
        with pytest.raises(InvalidInputError, match="cannot become one of whole clients"):
            ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT, unit="client")
        ledger.cancel(first, reason="nothing left", at=AT)
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT, unit="client")
        with pytest.raises(InvalidInputError, match="not taken back"):
            ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT, unit="record")
        with pytest.raises(InvalidInputError, match="The unit is 'record' or 'client'"):
            ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT, unit="site")  # type: ignore[arg-type]


def test_charges_of_clients_add_up_over_all_periods(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("phones", epsilon=1.0, delta=0.0, at=AT)
        with pytest.raises(InvalidInputError, match="has no time interval"):
            ledger.reserve("phones", CHARGE, round_id="1", at=AT, times=JANUARY, unit="client")
        assert ledger.account("phones").rounds == ()


def statement(**changes: object) -> PrivacyStatement:
    usual: dict[str, object] = {
        "epsilon": 1.0,
        "delta": 0.0,
        "claimed_epsilon": 1.0,
        "mechanism": "Laplace noise of scale 1",
        "released": "one number",
        "trust": "the aggregator.",
    }
    return PrivacyStatement(**usual | changes)  # type: ignore[arg-type]


def test_the_statement_says_whom_it_protects() -> None:
    record, client = statement(held=112.3), statement(unit="client", per_client=20)
    assert "Protected: one record." in str(record)
    assert "a client with 112 records is protected to epsilon 112 only" in str(record)
    assert "plan with --unit client" in str(record)
    assert "Protected: one client, with all the records it holds" in str(client)
    assert "exactly 20 records, drawn at random from its own" in str(client)
    assert "epsilon 112" not in str(client)
    for held in (None, 1.0):  # nothing to warn of
        assert "--unit client" not in str(statement(held=held))


def test_a_statement_on_clients_knows_their_part() -> None:
    for odd in ({"unit": "client"}, {"per_client": 3}, {"unit": "site"}):
        with pytest.raises(InvalidInputError):
            statement(**odd)
    both = statement(unit="client", per_client=3)
    assert PrivacyStatement.from_dict(both.to_dict()) == both


def test_a_statement_on_a_series_of_clients_adds_up() -> None:
    said = str(
        statement(unit="client", per_client=3, counted=52, series_epsilon=4.0, series_delta=1e-6)
    )
    assert "each client is counted in up to 52 releases" in said
    assert "epsilon 4, delta 1e-06 to all it ever holds" in said
    assert "counts as public" not in said
