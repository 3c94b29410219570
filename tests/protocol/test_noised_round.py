"""What a ledger keeps of a round after its noise: the whole release follows from it, and no sum."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.privacy import InsecureSeededNoise, Ledger
from fedprikl.protocol import Look, NoisedRound, Plan, Question, RoundResult, finish_round
from tests.long import long
from tests.protocol import test_columns as columns
from tests.protocol.worlds import AT, InsecureNoNoise, World, budgeted, noisy_counts

WORLD = World.make()
SEVERAL = (
    Question(divergence="kl", share=0.4, release="adaptive"),
    Question(divergence="tv", share=0.3, release="value"),
    Question(divergence="js", share=0.3, release="counts"),
)
PLANS: dict[str, dict[str, Any]] = {
    "value": {"release": "value"},
    "adaptive": {"release": "adaptive", "points": 12},
    "after a small look": {"release": "looked", "points": 12, "look": Look(share=0.1, switch=99.0)},
    "after a large look": {"release": "looked", "points": 12, "look": Look(share=0.1, switch=-9.0)},
    "counts": {"release": "counts", "noise": "gaussian", "delta": 1e-6},
    "several": {"questions": SEVERAL, "points": 12},
    "batches": {"release": "value", "batches": 2, "points": 4},
    "untrusted": {"trust": "none", "delta": 1e-6},
    "untrusted, batches": {"trust": "none", "delta": 1e-6, "batches": 2, "points": 4},
    "clients": {"unit": "client", "per_client": 4, "most_records": 4, "release": "counts"},
}


class Killed(BaseException):
    """The process ends here."""


def die(*_: Any, **__: Any) -> None:
    raise Killed


def run_and_die(ledger: Ledger) -> None:
    """A round that ends right after its noise."""
    with patch.object(NoisedRound, "release", die), pytest.raises(Killed):
        WORLD.run(WORLD.plan(), ledger=ledger)


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What ledgers are given to keep."""
    found: list[bytes] = []
    keep = Ledger.keep_noised

    def record(self: Ledger, reservation: Any, document: bytes, *, at: str) -> None:
        found.append(document)
        keep(self, reservation, document, at=at)

    monkeypatch.setattr(Ledger, "keep_noised", record)
    return found


def run(kind: str, ledger: Ledger, **more: Any) -> tuple[Plan, RoundResult]:
    plan, here = WORLD.plan(**PLANS[kind]), WORLD
    if kind == "clients":
        held = np.zeros_like(WORLD.held)
        held[:, :4] = 1
        here = World(held, WORLD.reference, key=WORLD.key)
    return plan, here.run(plan, ledger=ledger, **more)


@pytest.mark.parametrize("kind", PLANS)
def test_the_very_same_release_follows_from_what_is_kept(
    kind: str, tmp_path: Path, documents: list[bytes]
) -> None:
    """Again, from the bytes alone: values, intervals, verdict, words, signature."""
    with budgeted(tmp_path / "ledger.db") as ledger:
        plan, result = run(kind, ledger)
    (document,) = documents
    kept, release = NoisedRound.from_bytes(document), result.release
    again = kept.release(plan, WORLD.reference, key=WORLD.key, head=release.ledger)
    assert again.to_bytes() == release.to_bytes()
    assert set(kept.counted) == set(kept.asked) == set(WORLD.names())


@pytest.mark.parametrize("trust", [long("aggregator"), "none"])
def test_so_it_is_with_columns(
    trust: columns.Trust, tmp_path: Path, documents: list[bytes]
) -> None:
    plan = columns.plan_of(columns.REFERENCE, trust=trust)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget(plan.population, epsilon=9, delta=1e-5, at=AT)
        release = columns.run(plan, columns.REFERENCE, ledger=ledger).release
    kept = NoisedRound.from_bytes(documents[0])
    again = kept.release(plan, columns.REFERENCE, key=WORLD.key, head=release.ledger)
    assert again.fingerprint == release.fingerprint


def test_no_exact_sum_is_kept(tmp_path: Path, documents: list[bytes]) -> None:
    """Of values nothing but the values; of counts those that are released."""
    with budgeted(tmp_path / "ledger.db") as ledger:
        _, exact = run("counts", ledger, source=InsecureNoNoise())
        _, noisy = run("counts", ledger, source=InsecureSeededNoise(3))
        _, value = run("value", ledger)
    found = [json.loads(document)["noised"] for document in documents]
    assert found[0]["counts"][0][:6] == list(noisy_counts(exact.release).counts)
    assert found[1]["counts"][0][:6] == list(noisy_counts(noisy.release).counts)
    assert found[0]["counts"] != found[1]["counts"]
    [[raw]] = found[2]["values"]
    assert value.release.value == max(raw, 0.0)  # noise may throw it out of what is possible
    assert [found[2][name] for name in ("counts", "variances")] == 2 * [[]]


def test_noise_is_drawn_once_and_its_charge_is_never_given_back(tmp_path: Path) -> None:
    plan = WORLD.plan()
    with budgeted(tmp_path / "ledger.db") as ledger:
        run_and_die(ledger)
        (left,) = ledger.account("testers").open_rounds
        reservation = ledger.reservation(left.round_id)
        with pytest.raises(InvalidInputError, match="drawn once"):
            ledger.keep_noised(reservation, b"{}", at=AT)
        with pytest.raises(InvalidInputError, match="never given back"):
            ledger.cancel(reservation, reason="nothing left", at=AT)
        told: list[str] = []
        for expected in (left.round_id, None):  # once, and then it is over
            found = finish_round(
                ledger,
                plan,
                WORLD.reference,
                key=lambda: WORLD.key,
                at=AT,
                keep=lambda kept, _: told.append(kept.round_id),
            )
            assert (None if found is None else found.round_id) == expected
        assert told == [left.round_id]
        assert ledger.account("testers").spent == pytest.approx(1.0, abs=1e-6)


def test_a_round_of_another_plan_or_period_is_left_alone(tmp_path: Path) -> None:
    with budgeted(tmp_path / "ledger.db") as ledger:
        run_and_die(ledger)
        for plan, more in (
            (WORLD.plan(epsilon=2.0), {}),
            (WORLD.plan(), {"period": 3}),
            (WORLD.plan(), {"round_id": "another"}),
        ):
            assert (
                finish_round(
                    ledger, plan, WORLD.reference, key=lambda: WORLD.key, at=AT, keep=die, **more
                )
                is None
            )


def test_kept_numbers_that_were_changed_are_not_released(tmp_path: Path) -> None:
    """The chain has their hash. The charge stays, and the next round is a new one."""
    path = tmp_path / "ledger.db"
    with budgeted(path) as ledger:
        run_and_die(ledger)
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE documents SET body = replace(body, 'values', 'Values')")
    with Ledger.open(path) as ledger, ledger.unfinished("testers") as found:
        assert not found
        assert ledger.account("testers").spent == pytest.approx(1.0, abs=1e-6)
