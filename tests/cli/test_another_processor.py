"""What one processor made, another accepts: nothing that parties compare depends on last bits."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.documents import readable
from fedprikl.errors import BudgetExceededError, InvalidInputError, PolicyRefusal
from fedprikl.monitoring import sequential
from fedprikl.planning import budget
from fedprikl.planning.budget import largest_epsilon
from fedprikl.privacy import (
    AccountedRelease,
    Charge,
    Ledger,
    Numbers,
    SecureNoise,
    SharedCounts,
    calibrate,
    total_epsilon,
)
from fedprikl.privacy import account as accounts
from fedprikl.privacy import shares as noise_shares
from fedprikl.privacy.noise import tail_bits
from fedprikl.protocol import Invitation, Release, Server, SignedPlan, trust_of
from fedprikl.secure_sum import choose_degree
from tests.monitoring.small_series import (
    DRIFTED,
    LIKE_PI,
    REFERENCE,
    World,
    over,
    plan_of,
    quick_folder,
)
from tests.protocol.worlds import AT
from tests.protocol.worlds import World as Federation

pytestmark = pytest.mark.slow
CPU = Path("/proc/cpuinfo")
WIDE = CPU.exists() and " avx512f " in CPU.read_text(encoding="utf-8")
HERE: Mapping[str, str] = {}
THERE = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR" if WIDE else "X86_V3",
    "OPENBLAS_CORETYPE": "Prescott",
}
HASWELL = {"OPENBLAS_CORETYPE": "Haswell"}
# Commands in one process, each at a time of its own: where they end and what they print.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from fedprikl.cli import app, monitor_command
from fedprikl.front import series
found = []
for at, *line in json.loads(sys.argv[1]):
    for module in (series, monitor_command):
        module.now = lambda at=at: at
    ended = CliRunner().invoke(app.app, line)
    found.append([ended.exit_code, ended.output or repr(ended.exception)])
print(json.dumps(found))
"""
# What every party computes for itself from public numbers.
NUMBERS = """
import json
from tests.cli.test_another_processor import numbers
print(json.dumps(numbers()))
"""


def child(code: str, *arguments: str, processor: Mapping[str, str], folder: Path) -> Any:
    """What a Python process prints that computes as this processor does."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **processor},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def called(
    *lines: tuple[str, ...], processor: Mapping[str, str], folder: Path, codes: tuple[int, ...]
) -> list[str]:
    found = child(COMMANDS, json.dumps(lines), processor=processor, folder=folder)
    assert tuple(code for code, _ in found) == codes, found
    return [said for _, said in found]


@pytest.fixture
def world() -> Iterator[World]:
    """Four weeks of a series; the second is far from the reference."""
    with quick_folder() as folder:
        made = World.create(folder, plan_of(false_alarm=1e-4))
        REFERENCE.save(folder / "ref.json")
        text = readable(SignedPlan(made.plan).to_dict())
        (folder / "series.json").write_text(text, encoding="utf-8")
        for week, counts in enumerate([LIKE_PI, DRIFTED, DRIFTED, LIKE_PI]):
            made.grow(week, [10 * count for count in counts])
        shutil.copytree(folder / "clients", folder / "others")
        yield made


MONITOR = ("monitor", "run", "series.json", "clients", "--history", "history.db", "--json")


@pytest.mark.parametrize(("first", "then"), [(HERE, THERE), (THERE, HERE)], ids=["there", "back"])
def test_a_release_is_accepted_and_a_series_goes_on(
    world: World, first: Mapping[str, str], then: Mapping[str, str]
) -> None:
    size = ("--clients", "3", "--records", "2400", "--population", "others", "--releases", "2")
    estimate = ("estimate", "once.json", "others", "--ledger", "once.db", "--key", "once.pem")
    called(
        (AT, "plan", "ref.json", *size, "-o", "once.json"),
        (AT, *estimate, "-o", "once-release.json"),
        (over(0), *MONITOR),
        (over(1), *MONITOR),
        (over(1), "monitor", "acknowledge", "series.json", "1", "--note", "seen"),
        processor=first,
        folder=world.folder,
        codes=(0, 0, 0, 3, 0),
    )
    release = Release.load(world.folder / "once-release.json")
    genuine, book, _, status, again, whole = called(
        (AT, "verify", "once-release.json", "--signer", release.signer, "--plan", "once.json"),
        (AT, "ledger", "--ledger", "once.db", "--json"),
        (AT, *estimate, "-o", "again-release.json", "--report", "again.html"),
        (over(1), "monitor", "status", "series.json", "--json"),
        (over(3), *MONITOR),
        (over(3), "monitor", "verify", "series.json"),
        processor=then,
        folder=world.folder,
        codes=(0, 0, 0, 0, 0, 0),
    )
    assert "genuine" in genuine
    (account,) = json.loads(book)["populations"]
    assert account["rounds"][0]["release_hash"] == release.fingerprint
    assert json.loads(status)["alarms"] == json.loads(again)["alarms"]
    assert [point["state"] for point in json.loads(again)["points"][:4]] == ["released"] * 4
    assert json.loads(again)["points"][:2] == json.loads(status)["points"][:2]
    assert whole


def numbers() -> dict[str, Any]:
    """Whole numbers, words and fingerprints that parties compare and that follow from reals."""
    rng = np.random.default_rng(3)
    who = rng.integers(0, 60, 3000)
    column = (who + rng.integers(0, 5, 3000)) % 7
    number = rng.normal(size=3000) + who * 0.02
    letter = rng.choice(list("xyz"), 3000)
    frame = pl.DataFrame({"a": column, "b": number, "c": letter, "who": who})
    rates = [(size, rate) for size in (9, 40, 200, 1000) for rate in (0.05, 0.1, 1 / 3, 0.45)]
    degrees = [choose_degree(n, dropout=0.1, corruption=rate) for n, rate in rates]
    shares = [
        noise_shares.SharedGaussianMechanism.calibrated(
            SharedCounts(30, coordinates=4, contribution=moved),
            epsilon=epsilon,
            delta=1e-6,
        ).reach
        for epsilon in (0.1, 0.7, 2.0)
        for moved in (1, 20)
    ]
    return {
        "reference": fk.Reference.fit(frame, client="who").fingerprint,
        "degrees": [[each.neighbours, each.threshold] for each in degrees],
        "reach": shares,
        "bits": [tail_bits(scale, n) for scale in (0.5, 2.0, 40.0) for n in (2, 3, 4, 64, 65)],
    }


def test_whole_numbers_and_fingerprints_are_the_same_everywhere(tmp_path: Path) -> None:
    """With OpenBLAS for a Haswell, a factor of nothing but rounding errors had another sign."""
    found = [child(NUMBERS, processor=each, folder=tmp_path) for each in (HERE, THERE, HASWELL)]
    assert found[0] == found[1] == found[2]


def moved_by(value: float, ulps: int) -> float:
    for _ in range(abs(ulps)):
        value = math.nextafter(value, math.copysign(math.inf, ulps))
    return value


LAST_BITS = [lambda value, ulps=ulps: moved_by(value, ulps) for ulps in (-8, -1, 1, 8)]
MORE = [lambda value: value * (1 + 1e-6)]
CHARGES: list[Charge] = [
    calibrate(Numbers(0.3), epsilon=0.2, delta=1e-6, law="gaussian"),
    *[calibrate(Numbers(), epsilon=0.1, law="laplace")] * 4,
]


def spend(path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[float], float]) -> None:
    """All but the last charge here, the last one where every total comes out changed; the budget
    is exactly what this processor finds that all of them cost.
    """
    with Ledger.open(path) as ledger:
        total = total_epsilon(CHARGES, delta=1e-6)
        ledger.set_budget("people", epsilon=total, delta=1e-6, at=AT)
        for number, charge in enumerate(CHARGES[:-1]):
            ledger.reserve("people", charge, round_id=str(number), at=AT)
    monkeypatch.setattr(
        accounts, "total_epsilon", lambda each, delta: change(total_epsilon(each, delta=delta))
    )
    with Ledger.open(path) as ledger:
        ledger.check("people", CHARGES[-1])
        ledger.reserve("people", CHARGES[-1], round_id="last", at=AT)
        ledger.set_budget("people", epsilon=total, delta=1e-6, at=AT)


@pytest.mark.parametrize("change", LAST_BITS)
def test_a_budget_holds_what_it_was_set_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[float], float]
) -> None:
    spend(tmp_path / "ledger.db", monkeypatch, change)


@pytest.mark.parametrize("change", MORE)
def test_a_budget_holds_no_millionth_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[float], float]
) -> None:
    with pytest.raises(BudgetExceededError):
        spend(tmp_path / "ledger.db", monkeypatch, change)


def test_a_planned_total_leaves_room_for_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every share that is tried costs exactly the budget here, and a little more there."""

    def charge(share: float) -> AccountedRelease:
        return AccountedRelease(proved_epsilon=share)

    def total(charges: list[AccountedRelease], **_: float) -> float:
        return charges[0].proved_epsilon  # as if the others were free

    monkeypatch.setattr(budget, "total_epsilon", total)
    found = largest_epsilon(charge, epsilon=1.0, delta=1e-6, releases=4)
    assert 0.999 < found <= 1 - 1e-6


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("more", [-2, -1, 0, 1, 2])
def test_a_client_whose_shares_reach_one_further(
    noise: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses the reach that it was told; were it told another one, it would refuse."""
    federation = Federation.make(clients=9)
    plan = federation.plan(trust="none", noise=noise, cohort=9, delta=1e-4)
    server = Server(SignedPlan(plan), federation.reference)
    current = server.open_round(
        federation.names(), rng=np.random.default_rng(1), randomness=os.urandom
    )
    (cohort,), mode = current.cohorts, trust_of(plan)
    asked = Invitation.to_member(current, cohort, 0).to_bytes()
    client = federation.clients()[cohort.members[0]]
    name = "polya_reach" if noise == "laplace" else "_reach"
    real: Callable[..., int] = getattr(noise_shares, name)
    monkeypatch.setattr(noise_shares, name, lambda *law: real(*law) + more)
    if abs(more) > 1:
        with pytest.raises(PolicyRefusal, match="does not fit the plan"):
            client.join(asked, at=AT)
        return
    client.join(asked, at=AT)
    counts = np.full(len(cohort.cells), 500)
    vector = trust_of(plan).vector(
        [counts], 10**4, sums=cohort.sums, source=SecureNoise(), randomness=os.urandom
    )
    monkeypatch.undo()
    assert np.all((vector >= 0) & (vector <= cohort.sums.maxima))
    opened = mode.open(vector, clients=9, included=1)
    shift = (vector[:-2] - np.concatenate(opened.counts)).tolist()
    assert set(shift) == {(cohort.sums.maxima[0] - plan.sums.most_records) // 2}


@pytest.mark.parametrize("change", LAST_BITS)
def test_the_words_of_a_release_do_not_hang_on_a_last_bit(
    change: Callable[[float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """e^epsilon lies between two numbers of three digits: one processor writes 2.72, one 2.73."""
    federation = Federation.make(clients=9)
    found = federation.run(federation.plan(cohort=9)).release
    between = replace(found.privacy, epsilon=math.log(2.725), claimed_epsilon=2.0)
    signed = replace(found, privacy=between).sign(federation.key)
    real = math.exp
    monkeypatch.setattr(math, "exp", lambda value: change(real(value)))
    assert Release.from_bytes(signed.to_bytes()).is_signed_by(federation.key.public)


def test_a_release_that_claims_less_than_it_costs_is_refused() -> None:
    federation = Federation.make(clients=9)
    plan = federation.plan(cohort=9)
    release = federation.run(plan).release
    costs = plan.budget.epsilon * (1 + 1e-6)
    content = replace(release, privacy=replace(release.privacy, epsilon=costs)).to_dict()
    assert content["release"]["privacy"]["holds"] is False
    content["release"]["privacy"]["holds"] = True
    with pytest.raises(InvalidInputError, match="do not follow from its numbers"):
        Release.from_bytes(readable(content))
    claims = replace(release.privacy, claimed_epsilon=plan.budget.epsilon * (1 - 1e-6))
    assert not replace(release, privacy=claims).is_about(plan)


def test_what_was_said_about_a_period_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it lies below its threshold where the series goes on: alarms keep their numbers."""
    before = world.monitor(over(1))
    (alarm,) = before.alarms
    real = sequential._threshold
    monkeypatch.setattr(sequential, "_threshold", lambda *known: 1000 * real(*known))
    sequential._depths.cache_clear()
    try:
        after = world.monitor(over(3))
    finally:
        sequential._depths.cache_clear()
    assert [point.exceeds for point in after.points[:4]] == [False, True, False, False]
    assert after.alarms == (alarm,)
