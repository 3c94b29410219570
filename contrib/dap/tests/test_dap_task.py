"""A plan as DAP tasks: parameters, noise, times, and a batch from counts to noisy counts."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from tests.plans import AskColumns, make_plan

from contrib.dap import DapTask, Interval, Proof, dap_task, dap_tasks
from contrib.dap.field import MODULUS
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts
from fedprikl.privacy import laplace_variance
from fedprikl.protocol import Plan, Question, Series
from fedprikl.protocol.sums import NoisyHistogram

COLUMNS = AskColumns(views=(("age",), ("age", "sex")), sizes=(9, 18), counts=0.5)


def a_plan(per_client: int = 1, points: int = 250, **changes: Any) -> Plan:
    share = 0.5 if changes.get("columns") else 1.0
    values: dict[str, Any] = {
        "population": "phones",
        "reference": 64 * "0",
        "trust": "none",
        "unit": "client",
        "per_client": per_client,
        "epsilon": 1.0,
        "points": points,
        "questions": (Question(share=share, release="counts"),),
    }
    if "series" in changes:
        values["releases"] = changes["series"].periods  # a client is in all of them
    return make_plan(**values | changes)


def a_series(**changes: Any) -> Series:
    values: dict[str, Any] = {"every": "week", "first": "2027-01-04", "periods": 52}
    return Series(**values | changes)


def test_one_record_is_a_histogram_of_the_cells_and_the_rest() -> None:
    task = dap_task(a_plan(), clients=1000)
    assert json.loads(json.dumps(task.to_dict())) == {
        "drafts": [
            "draft-ietf-ppm-dap-18",
            "draft-irtf-cfrg-vdaf-20",
            "draft-ietf-ppm-l1-bound-sum-02",
        ],
        "plan": a_plan().fingerprint,
        "view": [],
        "task_info": task.task_info.hex(),
        "time_precision": 86_400,
        "min_batch_size": 900,
        "batch_mode": 2,
        "batch_config": "",
        "vdaf_type": 4,
        "vdaf": {"type": "Prio3Histogram", "length": 251, "chunk_length": 17},
        "vdaf_configuration": "000000fb00000011",
        "extensions": [],
        "reports_per_client": 1,
        "noise": {
            "distribution": "discrete laplace",
            "scale": task.noise.scale,
            "added_by": "each party",
            "service_epsilon": list(map(str, (2 / Fraction(task.noise.scale)).as_integer_ratio())),
        },
    }
    assert task.provable == 1


@pytest.mark.parametrize(
    ("proof", "expected", "reports", "provable"),
    [
        ("sum", {"type": "Prio3L1BoundSum", "length": 251, "max_value": 20}, 1, 20),
        ("record", {"type": "Prio3Histogram", "length": 251}, 20, 20),
        ("cell", {"type": "Prio3SumVec", "length": 251, "max_measurement": 20}, 1, 20 * 251),
    ],
)
def test_several_records_and_what_is_proved_of_them(
    proof: Proof, expected: dict[str, Any], reports: int, provable: int
) -> None:
    task = dap_task(a_plan(20), clients=1000, proof=proof)
    assert expected.items() <= task.to_dict()["vdaf"].items()
    assert (task.reports_per_client, task.min_batch_size) == (reports, 900 * reports)
    assert task.provable == provable
    assert task.records(reports * 950) == 20 * 950


@pytest.mark.parametrize(
    ("whole", "columns"),
    [(True, None), (True, COLUMNS), (False, replace(COLUMNS, counts=1.0))],
)
def test_tasks_count_what_a_client_of_a_round_counts(
    whole: bool, columns: AskColumns | None
) -> None:
    changes: dict[str, Any] = {} if whole else {"questions": ()}
    plan = a_plan(5, columns=columns, **changes)
    tasks = dap_tasks(plan, clients=100)
    assert [task.kind.length for task in tasks] == NoisyHistogram(plan).blocks
    names = (((),) if whole else ()) + (() if columns is None else columns.views)
    assert tuple(task.view for task in tasks) == names
    assert len({task.task_info for task in tasks}) == len(tasks)
    # The same L1 distance that the clients' own noise is made for.
    assert {task.noise.sensitivity for task in tasks} == {2 * 5 * len(tasks)}


def test_task_info_is_of_one_plan() -> None:
    one, other = (dap_task(a_plan(epsilon=each), clients=9) for each in (1.0, 2.0))
    assert len(one.task_info) == 32
    assert one.task_info != other.task_info


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [False, True])
def test_noise_of_one_party_gives_epsilon_against_all_neighbours(k: int, columns: bool) -> None:
    """All counts of one client with k records of 3 cells, in the whole and in one view of it."""
    view = AskColumns(views=(("a",),), sizes=(1,), counts=0.5) if columns else None
    plan = a_plan(k, points=2, epsilon=0.7, columns=view)
    tasks = dap_tasks(plan, clients=3)
    worst = 0
    cells = list(itertools.combinations_with_replacement(range(3), k))
    for mine, others in itertools.product(cells, repeat=2):
        whole = sum(abs(mine.count(cell) - others.count(cell)) for cell in range(3))
        merged = 2 * abs(mine.count(0) - others.count(0))  # the view: cell 0, and the rest
        worst = max(worst, whole + (merged if columns else 0))
    noise = tasks[0].noise
    assert worst == noise.sensitivity == 2 * k * len(tasks)
    assert worst / noise.scale <= noise.epsilon
    assert 0.7 * (1 - 1e-11) < worst / noise.scale <= 0.7
    # Both parties' noise is in the counts.
    assert noise.standard_deviation == math.sqrt(2 * laplace_variance(noise.scale))


@pytest.mark.parametrize("proof", get_args(Proof))
@pytest.mark.parametrize("k", [1, 20])
def test_a_service_that_is_told_its_epsilon_adds_that_noise(proof: Proof, k: int) -> None:
    tasks = dap_tasks(a_plan(k, columns=COLUMNS, epsilon=0.3), clients=100, proof=proof)
    for task in tasks:
        budget = task.noise.service_epsilon(task.kind)
        assert task.kind.service_sensitivity / budget == Fraction(task.noise.scale)
    if proof == "sum":  # k records of three tasks: a third of epsilon for each
        assert float(budget) == pytest.approx(0.1, rel=1e-9)


def encoded(task: DapTask, measurement: int | list[int]) -> tuple[int, ...]:
    counts = measurement
    if isinstance(counts, int):
        counts = [int(cell == measurement) for cell in range(task.kind.length)]
    return task.kind.encode(counts)


@pytest.mark.parametrize("proof", get_args(Proof))
@pytest.mark.parametrize("k", [1, 6])
def test_a_batch_from_counts_to_noisy_counts(proof: Proof, k: int) -> None:
    """Shares without proofs: what two aggregators add up, with noise, is read back exactly."""
    rng = np.random.default_rng(7)
    task = dap_task(a_plan(k, points=4), clients=8, proof=proof)
    length = task.kind.length
    counts = rng.multinomial(k, np.full(length, 1 / length), size=8)
    leader, helper = [0] * length, [0] * length
    reports = 0
    for client in counts:
        for measurement in task.measurements(client.tolist()):
            bits = encoded(task, measurement)
            mask = [int.from_bytes(rng.bytes(16), "little") % MODULUS for _ in bits]
            rest = [(bit - hidden) % MODULUS for bit, hidden in zip(bits, mask, strict=True)]
            leader = [a + b for a, b in zip(leader, task.kind.truncate(rest), strict=True)]
            helper = [a + b for a, b in zip(helper, task.kind.truncate(mask), strict=True)]
            reports += 1
    noise = rng.integers(-40, 41, size=(2, length)).tolist()
    total = [sum(each) % MODULUS for each in zip(leader, helper, *noise, strict=True)]
    expected = counts.sum(axis=0) + np.sum(noise, axis=0)
    assert min(expected) < 0  # so that the sign is tested
    assert list(task.read(total)) == expected.tolist()
    assert task.records(reports) == 8 * k
    assert reports == 8 * task.reports_per_client


@pytest.mark.parametrize("proof", get_args(Proof))
@pytest.mark.parametrize(
    "counts", [(1, 1, 0), (3, 0, 0), (3, -1, 0), (), (2, 0), (1, 0, 1, 0)], ids=str
)
def test_counts_that_are_not_exactly_k_of_all_cells(proof: Proof, counts: tuple[int, ...]) -> None:
    task = dap_task(a_plan(2, points=2), clients=9, proof=proof)
    if counts == (1, 1, 0):
        assert len(task.measurements(counts)) == task.reports_per_client
        return
    with pytest.raises(InvalidInputError) as caught:
        task.measurements(counts)
    assert str(list(counts)) not in str(caught.value)


def test_a_release_states_the_noise_of_both_parties() -> None:
    task = dap_task(a_plan(3, points=2), clients=9)
    read = task.read([20, MODULUS - 4, 11])
    released = NoisyCounts.of(read, [task.records(9)], [task.noise.released])
    assert released.noise[0].scale == task.noise.scale
    assert released.noise[0].variables == pytest.approx(2.0, rel=1e-12)
    assert released.counts == (20.0, -4.0)


def test_an_aggregate_of_another_task_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="has 251 counts"):
        dap_task(a_plan(), clients=9).read([0] * 250)


def test_each_period_is_a_batch() -> None:
    task = dap_task(a_plan(series=a_series()), clients=9)
    timing = task.timing
    assert (timing.precision, timing.mode, len(timing.batches)) == (86_400, 1, 52)
    assert timing.life == Interval(20_822, 7 * 52)  # 2027-01-04 is day 20,822 of the epoch
    assert timing.query(51) == {
        "batch_mode": 1,
        "batch_interval": {"start": 20_822 + 7 * 51, "duration": 7},
    }
    assert task.to_dict()["extensions"] == [
        {"extension_type": 1, "task_interval": {"start": 20_822, "duration": 364}}
    ]
    with pytest.raises(InvalidInputError, match="no batch 52"):
        timing.query(52)


@pytest.mark.parametrize(
    ("zone", "precision"),
    [
        ("UTC", 86_400),
        ("Europe/Amsterdam", 3_600),
        ("Asia/Kolkata", 1_800),
        ("Asia/Kathmandu", 900),
    ],
)
@pytest.mark.parametrize("every", ["day", "month", "quarter"])
def test_periods_are_exact_in_every_zone(zone: str, precision: int, every: str) -> None:
    series = a_series(every=every, first="2027-01-01", periods=8, zone=zone)
    timing = dap_task(a_plan(series=series), clients=9).timing
    if every != "day":  # eight days in January have no change of the clock
        assert timing.precision == precision
    for number, batch in enumerate(timing.batches):
        period = series.period(number)
        assert batch.start * timing.precision == period.start.timestamp()
        assert (batch.start + batch.duration) * timing.precision == period.end.timestamp()


def test_a_plan_without_series_lives_as_long_as_it_is_valid() -> None:
    valid: dict[str, Any] = {
        "valid_from": "2027-01-01T00:00:00+00:00",
        "valid_until": "2027-02-01T06:00:00+00:00",
    }
    timing = dap_task(a_plan(**valid), clients=9).timing
    assert timing.life is not None
    assert timing.precision == 6 * 3600
    assert timing.life.duration == 31 * 4 + 1
    assert timing.query(0) == {"batch_mode": 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"trust": "aggregator"}, "plan with trust='none'"),
        ({"unit": "record", "per_client": None}, "plan with unit='client'"),
        ({"batches": 2}, "plan with batches=1"),
        ({"noise": "gaussian"}, "plan with noise='laplace'"),
        ({"valid_until": "2027-02-01T00:00:00+00:00"}, "give the plan both"),
        (
            {
                "valid_from": "2027-01-01T00:00:00.5+00:00",
                "valid_until": "2027-02-01T00:00:00+00:00",
            },
            "whole seconds",
        ),
        ({"series": a_series(window=2, time_column="at")}, "Use window=1"),
        ({"series": a_series(first="1969-01-06")}, "from 1970"),
    ],
)
def test_what_does_not_map_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        dap_task(a_plan(**changes), clients=9)


def test_views_and_proofs_that_do_not_exist() -> None:
    with pytest.raises(InvalidInputError, match="does not ask about this view"):
        dap_task(a_plan(columns=COLUMNS), clients=9, view=("sex",))
    with pytest.raises(InvalidInputError, match="A proof is about"):
        dap_task(a_plan(), clients=9, proof="none")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="clients"):
        dap_task(a_plan(), clients=0)
