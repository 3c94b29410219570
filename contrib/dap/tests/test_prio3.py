"""Encoding and decoding of counts, by trying all of small worlds."""

import itertools

import pytest

from contrib.dap import Prio3, Prio3Histogram, Prio3L1BoundSum, Prio3SumVec
from contrib.dap.bits import bit_weights, from_bits, to_bits
from contrib.dap.field import MODULUS, read_elements, signed
from fedprikl.errors import InvalidInputError


@pytest.mark.parametrize("maximum", range(1, 40))
def test_bits_stand_for_every_count_and_for_nothing_above(maximum: int) -> None:
    assert all(from_bits(to_bits(count, maximum), maximum) == count for count in range(maximum + 1))
    weights = bit_weights(maximum)
    possible = {from_bits(bits, maximum) for bits in itertools.product((0, 1), repeat=len(weights))}
    assert possible == set(range(maximum + 1))


def test_of_two_ways_to_write_a_count_the_drafts_take_one() -> None:
    # 5 is also the last bit alone: it is set only where the others do not suffice.
    assert to_bits(5, 20) == (1, 0, 1, 0, 0)
    assert to_bits(15, 20) == (1, 1, 1, 1, 0)
    assert to_bits(16, 20) == (1, 1, 0, 1, 1)


@pytest.mark.parametrize("count", [-1, 21])
def test_counts_outside_have_no_bits(count: int) -> None:
    with pytest.raises(InvalidInputError, match="between 0 and the maximum"):
        to_bits(count, 20)


KINDS: list[Prio3] = [
    Prio3Histogram(length=3, chunk_length=2),
    Prio3L1BoundSum(length=3, max_value=4, chunk_length=4),
    Prio3SumVec(length=3, max_measurement=2, chunk_length=4),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_a_report_can_hold_is_what_is_provable(kind: Prio3) -> None:
    held = []
    for counts in itertools.product(range(6), repeat=3):
        try:
            encoded = kind.encode(counts)
        except InvalidInputError:
            continue
        held.append(counts)
        assert len(encoded) == kind.encoded_length
        assert set(encoded) <= {0, 1}
        assert kind.truncate(encoded) == counts
    assert max(map(sum, held)) == kind.provable
    expected = {"Prio3Histogram": 3, "Prio3L1BoundSum": 35, "Prio3SumVec": 27}  # C(7, 3), 3^3
    assert len(held) == expected[kind.name]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_shares_are_read_as_what_they_share(kind: Prio3) -> None:
    counts = (0, 1, 0)
    mask = [pow(7, place + 50, MODULUS) for place in range(kind.encoded_length)]
    other = [
        (bit - hidden) % MODULUS for bit, hidden in zip(kind.encode(counts), mask, strict=True)
    ]
    parts = zip(kind.truncate(mask), kind.truncate(other), strict=True)
    assert signed((a + b) % MODULUS for a, b in parts) == counts


def test_configurations_are_those_of_the_drafts() -> None:
    assert [kind.code for kind in KINDS] == [4, 7, 3]
    assert [kind.configuration.hex() for kind in KINDS] == [
        "00000003" + "00000002",  # uint32 length, uint32 chunk_length
        "00000003" + "0000000000000004" + "00000004",  # uint32, uint64 max_value, uint32
        "00000003" + "0000000000000002" + "00000004",
    ]


def test_parameters_that_the_configuration_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"length of Prio3Histogram is below 2\^32"):
        Prio3Histogram(length=2**32, chunk_length=1)
    with pytest.raises(InvalidInputError, match=r"max_value of Prio3L1BoundSum is below 2\^64"):
        Prio3L1BoundSum(length=1, max_value=2**64, chunk_length=1)
    with pytest.raises(InvalidInputError, match="chunk_length"):
        Prio3Histogram(length=1, chunk_length=0)


def test_elements_outside_of_the_field_are_refused() -> None:
    assert read_elements((MODULUS - 1).to_bytes(16, "little")) == (MODULUS - 1,)
    with pytest.raises(InvalidInputError, match="outside of its field"):
        read_elements(MODULUS.to_bytes(16, "little"))
    with pytest.raises(InvalidInputError, match="16 bytes"):
        read_elements(bytes(17))
