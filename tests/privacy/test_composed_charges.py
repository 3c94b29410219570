"""A release by several mechanisms: one charge, composed part by part, never beyond the budget."""

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl import InvalidInputError
from fedprikl.privacy import (
    Calibrated,
    Charge,
    ComposedCharge,
    Counts,
    InverseSensitivityMechanism,
    Ledger,
    Numbers,
    calibrate,
    compose_charges,
    share_out,
    total_epsilon,
)
from fedprikl.privacy.charges import charge_from_dict, charge_to_dict

AT = "2030-01-31T12:00:00+00:00"
DELTA = 1e-6


def laplace(epsilon: float) -> Charge:
    return calibrate(Numbers(), epsilon=epsilon, law="laplace")


PARTS: tuple[Charge, ...] = (
    laplace(0.1),
    Calibrated(Numbers(), 0.3, DELTA / 3, "gaussian").charge,
    InverseSensitivityMechanism(epsilon=0.4),
    calibrate(Counts(), epsilon=0.2, delta=DELTA / 3),
)


def test_it_is_written_and_read_with_all_its_parts() -> None:
    charge = ComposedCharge(PARTS)
    document = charge_to_dict(charge)
    assert document["kind"] == "together"
    assert [part["kind"] for part in document["parts"]] == [
        "laplace",
        "gaussian",
        "adaptive",
        "integer_laplace",
    ]
    assert charge_from_dict(document) == charge == charge_from_dict(charge_to_dict(charge))
    assert "Laplace noise of scale 10 and Gaussian noise" in str(charge)
    assert "per unit of sensitivity and adaptive noise" in charge.per_unit()


@pytest.mark.parametrize("parts", list(itertools.combinations(PARTS, 2)))
def test_its_parts_are_composed_one_by_one(parts: tuple[Charge, ...]) -> None:
    assert total_epsilon([ComposedCharge(parts)], delta=DELTA) == total_epsilon(parts, delta=DELTA)
    more = [laplace(0.05)] * 3
    assert total_epsilon([ComposedCharge(parts), *more], delta=DELTA) == total_epsilon(
        [*parts, *more], delta=DELTA
    )


@pytest.mark.parametrize(
    "parts", [(), (PARTS[0],), (PARTS[0], ComposedCharge(PARTS[:2])), (PARTS[0], object())]
)
def test_what_is_no_charge_of_several_parts_is_refused(parts: Any) -> None:
    with pytest.raises(InvalidInputError):
        charge_to_dict(ComposedCharge(parts))


def test_one_mechanism_is_charged_as_itself() -> None:
    assert compose_charges([PARTS[0]]) is PARTS[0]
    assert compose_charges(PARTS) == ComposedCharge(PARTS)


@given(
    st.floats(1e-3, 20),
    st.lists(st.floats(1e-3, 1), min_size=1, max_size=6),
)
def test_shares_never_exceed_the_whole(total: float, shares: list[float]) -> None:
    parts = share_out(total, shares)
    assert math.fsum(parts) <= total
    assert math.fsum(parts) == pytest.approx(total, rel=1e-14)
    if len(shares) == 1:
        assert parts == (total,)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.3, 0.6), (0.05, 0.05, 0.9)])
def test_a_release_of_the_whole_budget_fits_into_it(
    kind: str, shares: tuple[float, ...], tmp_path: Path
) -> None:
    """Whatever the rounding and the accountant's safety; a second one does not."""
    epsilons, deltas = share_out(1.0, shares), share_out(DELTA, shares)
    parts: list[Charge] = [
        Calibrated(Numbers(), epsilon, delta, kind).charge
        for epsilon, delta in zip(epsilons[:-1], deltas[:-1], strict=True)
    ]
    last: Any = calibrate(Counts(), epsilon=epsilons[-1], delta=deltas[-1], law=kind)
    charge = ComposedCharge((*parts, last))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("p", epsilon=1.0, delta=DELTA, at=AT)
        ledger.reserve("p", charge, round_id="1", at=AT)
        assert [each.charge for each in ledger.account("p").rounds] == [charge]
        assert not ledger.account("p").left > 0.6
        with pytest.raises(InvalidInputError):  # the round is charged once, and as one
            ledger.reserve("p", charge, round_id="1", at=AT)
