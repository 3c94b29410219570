"""Entries that nobody wrote, with right hashes: the file is damaged, whatever they say."""

from pathlib import Path
from typing import Any

import pytest

from fedprikl.deployment.site_memory import SITE_MEMORY, BegunRound, Remembered, read_memory
from fedprikl.documents import to_plain
from fedprikl.errors import DeploymentError, LedgerDamagedError
from fedprikl.privacy import Ledger, Numbers, calibrate
from fedprikl.privacy.account import LEDGER
from fedprikl.privacy.charges import charge_to_dict
from fedprikl.store import Entry, Store, StoreKind

AT, LATER = "2030-01-31T12:00:00+00:00", "2031-01-31T12:00:00+00:00"
BUDGET = {"event": "budget", "population": "p", "epsilon": 1.0, "delta": 1e-6, "at": AT}
RESERVE = {
    "event": "reserve",
    "round": "a",
    "population": "p",
    "mechanism": charge_to_dict(calibrate(Numbers(), epsilon=0.5, law="laplace")),
    "at": AT,
    "note": "",
}


def _write(path: Path, kind: StoreKind, *bodies: dict[str, Any]) -> None:
    with Store(path, kind) as store, store.writing():
        for body in bodies:
            store.append(body)


@pytest.mark.parametrize(
    "forged",
    [
        [BUDGET | {"population": 7}],
        [BUDGET, RESERVE | {"span": [AT, LATER, []]}],
        [BUDGET, RESERVE | {"at": 7}],
        [BUDGET, RESERVE | {"note": None}],
    ],
)
def test_a_ledger_holds_texts_where_it_writes_texts(
    tmp_path: Path, forged: list[dict[str, Any]]
) -> None:
    _write(tmp_path / "genuine.db", LEDGER, BUDGET, RESERVE | {"span": [AT, LATER, ""]})
    with Ledger.open(tmp_path / "genuine.db") as ledger:
        assert ledger.account("p").spent > 0
    path = tmp_path / "ledger.db"
    _write(path, LEDGER, *forged)
    with pytest.raises(LedgerDamagedError, match="makes no sense"):
        Ledger.open(path)


def test_a_number_beyond_all_floats_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    _write(path, SITE_MEMORY, {"event": "forgot", "until": 10**400, "serials": []})
    with pytest.raises(DeploymentError, match="makes no sense"):
        read_memory(path)


def test_a_replaced_plan_stays_replaced_when_the_newer_one_is_forgotten() -> None:
    """Of two plans the newer one ends first: its serial number outlives it in the new log."""

    def begun(serial: int, ends: float | None) -> BegunRound:
        who = {"organiser": "o", "population": "p", "plan": str(serial)}
        return BegunRound(
            records="r", round_id=str(serial), serial=serial, ends=ends, step=0, **who
        )

    known = Remembered()
    for number, each in enumerate((begun(5, None), begun(6, 1.0)), start=1):
        known.apply(Entry(number, {"event": "begin"} | to_plain(each), ""))
    assert known.forget_expired(AT) == 1
    again = Remembered()
    for number, body in enumerate(known.bodies("head"), start=1):
        again.apply(Entry(number, body, ""))
    assert again.serials == known.serials == {("o", "p"): 6}
