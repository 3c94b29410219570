"""Noise on a vector: its charge, its draws, its privacy by experiment and by another account."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.audit import audit
from fedprikl.checks import Floats
from fedprikl.privacy import (
    Calibrated,
    Charge,
    ComposedCharge,
    Counts,
    GaussianMechanism,
    LaplaceMechanism,
    Ledger,
    Numbers,
    SecureNoise,
    calibrate,
    share_out,
    total_epsilon,
)
from fedprikl.privacy.charges import LaplaceLoss, charge_from_dict, charge_to_dict
from fedprikl.privacy.laws import VectorMechanism
from fedprikl.privacy.noise import GRID_EXPONENT, GRID_SLACK
from tests.false_alarm import FALSE_ALARM

pytestmark = pytest.mark.slow

AT = "2030-01-31T12:00:00+00:00"
DELTA = 1e-6
AUDITED_DELTA = 1e-2  # large, so that few trials tell noise from half of it
KINDS: list[Any] = ["laplace", "gaussian"]


@given(
    st.floats(1e-3, 20),
    st.integers(1, 300),
    st.sampled_from(KINDS),
    st.floats(1e-9, 10),
)
def test_the_charge_holds_for_every_sensitivity(
    epsilon: float, coordinates: int, kind: Any, sensitivity: float
) -> None:
    """Every number loses what its share of the charge allows, slack of the grid included."""
    noise = Calibrated(Numbers(coordinates=coordinates), epsilon, DELTA, kind)
    assert epsilon * (1 - 1e-4) < noise.charge.epsilon(DELTA) <= epsilon
    one = noise.for_sensitivity(sensitivity)
    if isinstance(one, LaplaceMechanism):
        assert (sensitivity + GRID_SLACK) / one.scale * coordinates <= epsilon
        assert noise.charge.proved_delta(DELTA) == 0
    else:
        assert isinstance(one, GaussianMechanism)
        ratio = math.sqrt(coordinates) * (sensitivity + GRID_SLACK) / one.sigma
        whole = GaussianMechanism(sigma=(1 + GRID_SLACK) / ratio, sensitivity=1.0)
        assert whole.epsilon(DELTA) <= epsilon
        assert noise.charge.proved_delta(DELTA) == DELTA


@pytest.mark.parametrize("kind", KINDS)
def test_one_number_costs_what_one_number_costs(kind: Any) -> None:
    vector, one = (
        Calibrated(Numbers(coordinates=1), 0.7, DELTA, kind),
        Calibrated(Numbers(), 0.7, DELTA, kind),
    )
    for sensitivity in (1.0, 0.003):
        assert vector.for_sensitivity(sensitivity) == one.for_sensitivity(sensitivity)
    assert vector.charge.epsilon(DELTA) == pytest.approx(one.charge.epsilon(DELTA), rel=1e-6)


def test_the_smaller_noise_is_taken() -> None:
    kinds = [Calibrated(Numbers(coordinates=d), 1.0, DELTA).law for d in range(1, 31)]
    switch = kinds.index("gaussian")
    assert kinds == ["laplace"] * switch + ["gaussian"] * (30 - switch)
    for d in (switch, switch + 1):  # the last with Laplace noise, the first without
        laplace, gaussian = (
            Calibrated(Numbers(coordinates=d), 1.0, DELTA, kind)
            .for_sensitivity(1.0)
            .standard_deviation
            for kind in KINDS
        )
        assert (laplace <= gaussian) == (d == switch)
    assert (
        Calibrated(Numbers(coordinates=30), 1.0, 1e-31).law == "laplace"
    )  # nothing else is accounted there


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_written_and_read_and_kept_by_a_ledger(kind: Any, tmp_path: Path) -> None:
    charge = Calibrated(Numbers(coordinates=4), 0.5, DELTA, kind).charge
    document = charge_to_dict(charge)
    assert document["kind"] == "vector"
    assert document["one"]["kind"] == kind
    assert charge_from_dict(document) == charge
    assert "per unit of sensitivity on each of 4 numbers" in str(charge)
    assert charge.per_unit() == str(charge)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("p", epsilon=1.0, delta=DELTA, at=AT)
        ledger.reserve("p", ComposedCharge((charge, charge)), round_id="1", at=AT)
        (charged,) = ledger.account("p").rounds
        assert charged.charge == ComposedCharge((charge, charge))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coordinates": 0}, "at least 1"),
        ({"one": calibrate(Numbers(2.0), epsilon=1.0, law="laplace")}, "sensitivity of 1"),
        ({"one": calibrate(Counts(), epsilon=1.0, delta=DELTA)}, "sensitivity of 1"),
        ({"one": LaplaceMechanism(scale=0.0, sensitivity=1.0)}, "no privacy"),
    ],
)
def test_a_charge_that_cannot_be_computed_is_refused(change: Any, words: str) -> None:
    settings = {"one": LaplaceMechanism(scale=1.0, sensitivity=1.0), "coordinates": 2} | change
    with pytest.raises(InvalidInputError, match=words):
        charge_to_dict(VectorMechanism(**settings))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "above 0"),
        ({"epsilon": 0.0, "law": "laplace"}, "above 0"),
        ({"epsilon": 0.0, "law": "gaussian"}, "above 0"),
        ({"epsilon": -1.0, "law": "gaussian"}, "above 0"),
        ({"delta": 1.0}, "under 1"),
        ({"coordinates": 0}, "at least 1"),
        ({"law": "x"}, "There is no noise"),
        ({"law": "gaussian", "delta": 1e-31}, "Raise delta"),
    ],
)
def test_bad_settings_say_what_to_do(settings: Any, words: str) -> None:
    asked = {"epsilon": 1.0, "delta": DELTA, "coordinates": 3} | settings
    on = Numbers(coordinates=asked.pop("coordinates"))
    with pytest.raises(InvalidInputError, match=words):
        Calibrated(on, **asked)


@pytest.mark.parametrize(
    ("values", "sensitivities"),
    [
        ([0.12345, 0.2], [1.0, 1.0, 1.0]),
        ([0.12345, 0.2, 0.3], [1.0, 1.0]),
        ([0.12345, 0.2, 0.3], [1.0, 0.0, 1.0]),
        ([0.12345, 0.2, 0.3], [1.0, -1.0, 1.0]),
        ([0.12345, 0.2, 0.3], [1.0, math.inf, 1.0]),
        ([0.12345, 0.2, 0.3], [1.0, math.nan, 1.0]),
        ([0.12345, math.nan, 0.3], [1.0, 1.0, 1.0]),
    ],
)
def test_bad_vectors_are_refused_and_not_shown(values: Any, sensitivities: Any) -> None:
    with pytest.raises(InvalidInputError) as error:
        Calibrated(Numbers(coordinates=3), 1.0, DELTA).add_to(values, sensitivities, SecureNoise())
    assert "12345" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_is_drawn_with_its_own_noise(kind: Any) -> None:
    """What the mechanism of each number draws from the same source, in order."""
    noise, sensitivities = (
        Calibrated(Numbers(coordinates=3), 1.0, DELTA, kind),
        [0.5, 2e-4, 30.0],
    )
    source = InsecureSeededNoise(5)
    expected = [
        float(noise.for_sensitivity(s).add_to([v], source)[0])
        for v, s in zip([1.0, 2.0, 3.0], sensitivities, strict=True)
    ]
    found = noise.add_to([1.0, 2.0, 3.0], sensitivities, InsecureSeededNoise(5))
    assert found.tolist() == expected
    sd = [noise.for_sensitivity(s).standard_deviation for s in sensitivities]
    np.testing.assert_allclose(sd, sd[0] * np.array(sensitivities) / 0.5, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_released_number_lies_on_the_grid(kind: Any) -> None:
    """Whatever the sensitivity: low bits tell nothing. They would if noise were multiplied."""
    values, sensitivities = np.full(40, math.pi), np.geomspace(1e-4, 10, 40)
    steps = 2.0**-GRID_EXPONENT
    noise = Calibrated(Numbers(coordinates=40), 1.0, DELTA, kind)
    on_grid = noise.add_to(values, sensitivities, SecureNoise()) * steps
    assert np.array_equal(on_grid, np.rint(on_grid))
    careless = noise.add_to(values, sensitivities, InsecureSeededNoise(1)) * steps
    assert not np.array_equal(careless, np.rint(careless))


def released_losses(noise: Calibrated, sensitivities: Floats, *, moved: bool, factor: float) -> Any:
    """n releases in one of two worlds, as the statistic that tells the worlds apart best: the
    privacy loss itself. `factor` is the part of the noise that is drawn.
    """

    def sample(n: int) -> Floats:
        total = np.zeros(n)
        for sensitivity in sensitivities:
            one = noise.for_sensitivity(float(sensitivity))
            centre = 0.4 + sensitivity * moved
            drawn = centre + factor * (one.add_to(np.full(n, centre), SecureNoise()) - centre)
            unit = (drawn - 0.4) / sensitivity
            total += unit if noise.law == "gaussian" else np.abs(unit) - np.abs(unit - 1)
        return total

    return sample


def audited(kind: Any, coordinates: int, trials: int, factor: float) -> Any:
    noise = Calibrated(Numbers(coordinates=coordinates), 1.0, AUDITED_DELTA, kind)
    moves = np.resize([0.1, 2, 0.01], coordinates)
    return audit(
        released_losses(noise, moves, moved=False, factor=factor),
        released_losses(noise, moves, moved=True, factor=factor),
        epsilon=1.0,
        delta=AUDITED_DELTA,
        gaussian=kind == "gaussian",
        trials=trials,
        false_alarm=FALSE_ALARM,
    )


@pytest.mark.parametrize(
    ("kind", "coordinates", "trials"), [("laplace", 2, 20_000), ("gaussian", 5, 6_000)]
)
def test_an_audit_does_not_refute_the_noise_and_refutes_half_of_it(
    kind: Any, coordinates: int, trials: int
) -> None:
    """False alarms: 1e-9. Of half the noise the audit finds an epsilon of 1.74 (Laplace) and
    1.56 (Gaussian), with standard deviations of 0.05 and 0.08: 7 of them above the claimed 1.
    """
    assert not audited(kind, coordinates, trials, 1.0).refuted
    assert audited(kind, coordinates, trials, 0.5).refuted


def laplace_delta(shift: float, epsilon: float) -> float:
    """Of Laplace noise of scale 1 on a number that moves by `shift`, by numerical integration."""
    x = np.linspace(-40, 40, 400_001)
    left, right = np.exp(-np.abs(x)) / 2, np.exp(-np.abs(x - shift)) / 2
    return float(np.maximum(left - math.exp(epsilon) * right, 0).sum() * (x[1] - x[0]))


@pytest.mark.parametrize("epsilon", [-0.5, 0.0, 0.1, 0.4])
def test_a_number_that_moves_less_loses_less(epsilon: float) -> None:
    """On which it rests that all numbers at their worst are the worst case."""
    deltas = [laplace_delta(shift, epsilon) for shift in (0.0, 0.1, 0.3, 0.7, 1.0)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(deltas))
    assert deltas[-1] > deltas[0] + 0.01
    if epsilon >= 0:
        assert deltas[-1] == pytest.approx(-math.expm1((epsilon - 1) / 2), abs=1e-3)


@pytest.mark.parametrize("shifts", [(1.0, 1.0, 1.0), (1.0, 0.5, 0.0), (0.6, 0.6, 0.6)])
def test_the_account_of_the_vector_covers_every_split_of_the_moves(
    shifts: tuple[float, ...],
) -> None:
    """delta at several epsilons: what dp-accounting has for the worst case is never below."""
    step, scale = 2.0**-11, 2.0
    loss = LaplaceLoss(len(shifts) / scale, len(shifts)).distribution(step)
    for epsilon in (0.0, 0.3, 0.9, 1.3):
        true = joint_delta([laplace_losses(shift / scale) for shift in shifts], epsilon)
        bound = loss.get_delta_for_epsilon(epsilon)
        assert true <= bound + 1e-6
        if shifts == (1.0, 1.0, 1.0):
            assert bound == pytest.approx(true, rel=0.03, abs=1e-4)


Losses = tuple[Floats, Floats]  # values, probabilities


def laplace_losses(epsilon: float) -> Losses:
    """Of Laplace noise moved by epsilon scales, rounded down: P(loss <= l) = e^((l-epsilon)/2)/2
    from -epsilon to epsilon, and the rest at epsilon.
    """
    values = np.linspace(-epsilon, epsilon, 201)
    below = np.exp((values - epsilon) / 2) / 2
    masses = np.append(np.diff(below), 0.5)
    masses[0] += below[0]
    return values, masses


def count_losses(scale: float) -> Losses:
    """Of discrete Laplace noise on a count moved by 1: 1 / scale or as much less."""
    p = math.exp(-1 / scale)
    return np.array([-1 / scale, 1 / scale]), np.array([p / (1 + p), 1 / (1 + p)])


def joint_delta(parts: list[Losses], epsilon: float, cells: int = 6000) -> float:
    """delta of independent losses, each rounded down to a fine grid and convolved directly."""
    reach = sum(float(np.abs(values).max()) for values, _ in parts)
    step = 2 * reach / cells
    total, first = np.ones(1), 0
    for values, probabilities in parts:
        places = np.floor(values / step + 1e-9).astype(int)
        one = np.bincount(places - places.min(), probabilities)
        total, first = np.convolve(total, one), first + int(places.min())
    loss = step * (first + np.arange(len(total)))
    return float(total[loss > epsilon] @ -np.expm1(epsilon - loss[loss > epsilon]))


def test_the_joint_release_is_charged_for_what_it_loses() -> None:
    """tv and js of two columns, their noisy counts, and one number about the whole, charged
    together: against all losses at their worst, convolved by another method, rounded down.
    """
    delta, columns = 1e-3, 2
    tv, js, counts, whole = share_out(2.0, (0.2, 0.2, 0.3, 0.3))
    vectors = [
        Calibrated(Numbers(coordinates=columns), share, delta, "laplace") for share in (tv, js)
    ]
    noisy: Any = calibrate(
        Counts(coordinates=2 * columns), epsilon=counts, delta=delta, law="laplace"
    )
    number = calibrate(Numbers(), epsilon=whole, law="laplace")
    parts: tuple[Charge, ...] = (*(vector.charge for vector in vectors), noisy, number)
    charge = ComposedCharge(parts)
    losses = [
        *[laplace_losses(tv / columns)] * columns,
        *[laplace_losses(js / columns)] * columns,
        *[count_losses(noisy.scale)] * (2 * columns),
        laplace_losses(whole),
    ]
    total = total_epsilon([charge], delta=delta)
    assert total < 2.0
    assert joint_delta(losses, total) <= delta
    assert joint_delta(losses, 0.97 * total) > delta  # and it is not wasteful


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_of_the_whole_budget_fits_into_it(kind: Any, tmp_path: Path) -> None:
    epsilons, deltas = (share_out(total, (0.2, 0.2, 0.3, 0.3)) for total in (1.0, DELTA))
    charge = ComposedCharge(
        (
            Calibrated(Numbers(coordinates=20), epsilons[0], deltas[0], kind).charge,
            Calibrated(Numbers(coordinates=20), epsilons[1], deltas[1], kind).charge,
            calibrate(Counts(coordinates=40), epsilon=epsilons[2], delta=deltas[2], law=kind),
            Calibrated(Numbers(), epsilons[3], deltas[3]).charge,
        )
    )
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("p", epsilon=1.0, delta=DELTA, at=AT)
        ledger.reserve("p", charge, round_id="1", at=AT)
        assert 0 < ledger.account("p").spent <= 1.0
