"""Our encoding, sizes and decoding against the vectors that the drafts publish.

Helper shares are seeds for an XOF (TurboSHAKE128) that neither Python nor cryptography has.
Everything here needs no XOF: output and aggregate shares are published for every party.
"""

from pathlib import Path
from typing import Any

import pytest

from contrib.dap import Prio3, Prio3Histogram, ReportSize
from contrib.dap.field import ELEMENT_BYTES, MODULUS, read_elements, signed
from contrib.dap.tests.published import FOLDERS, counts_of, read_vector, vector_files

FILES = vector_files()
pytestmark = pytest.mark.skipif(not FILES, reason=f"{FOLDERS} names no folder with vectors")
every_vector = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
valid_vectors = pytest.mark.parametrize(
    "path", [path for path in FILES if "_bad_" not in path.name], ids=lambda path: path.stem
)


def add(vectors: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(each) % MODULUS for each in zip(*vectors, strict=True))


def shares(report: dict[str, Any], name: str) -> list[tuple[int, ...]]:
    return [read_elements(bytes.fromhex(share)) for share in report[name]]


def leader_measurement(kind: Prio3, report: dict[str, Any]) -> tuple[int, ...]:
    share = bytes.fromhex(report["input_shares"][0])
    return read_elements(share[: ELEMENT_BYTES * kind.encoded_length])


def test_all_kinds_are_there() -> None:
    kinds = {path.name.split("_")[0] for path in FILES}
    assert kinds == {"Prio3Histogram", "Prio3L1BoundSum", "Prio3SumVec"}


@every_vector
def test_shares_are_as_long_as_we_say(path: Path) -> None:
    kind, vector = read_vector(path)
    size, parties = ReportSize(kind.proof_size), vector["shares"]
    for report in vector["reports"]:
        leader, *helpers = (len(share) // 2 for share in report["input_shares"])
        assert leader == size.leader_share
        assert helpers == [size.helper_share] * (parties - 1)
        assert len(report["public_share"]) == size.public_share * parties  # of two parties, in hex
        for share in report["verifier_shares"][0]:
            assert 2 * (len(share) // 2) + 32 == size.exchange


@valid_vectors
def test_output_shares_sum_to_our_encoding(path: Path) -> None:
    kind, vector = read_vector(path)
    for report in vector["reports"]:
        counts = counts_of(kind, report["measurement"])
        found = add(shares(report, "out_shares"))
        assert found == kind.truncate(kind.encode(counts)) == tuple(counts)
        assert kind.measurement(counts) == report["measurement"]


@valid_vectors
def test_we_read_the_leaders_share_as_the_leader_does(path: Path) -> None:
    # Elements of a share are random, so that every weight of every bit counts.
    kind, vector = read_vector(path)
    for report in vector["reports"]:
        assert kind.truncate(leader_measurement(kind, report)) == shares(report, "out_shares")[0]


@valid_vectors
def test_leader_shares_differ_by_our_encodings(path: Path) -> None:
    # All reports of a vector have the same randomness, so the helpers' shares are the same.
    kind, vector = read_vector(path)
    first, *others = vector["reports"]
    base = leader_measurement(kind, first), kind.encode(counts_of(kind, first["measurement"]))
    for report in others:
        assert report["input_shares"][1:] == first["input_shares"][1:]
        encoded = kind.encode(counts_of(kind, report["measurement"]))
        found = zip(leader_measurement(kind, report), base[0], strict=True)
        ours = zip(encoded, base[1], strict=True)
        assert [(a - b) % MODULUS for a, b in found] == [(a - b) % MODULUS for a, b in ours]


@valid_vectors
def test_aggregate_shares_sum_to_the_result(path: Path) -> None:
    kind, vector = read_vector(path)
    result = signed(add(shares(vector, "agg_shares")))
    assert list(result) == vector["agg_result"]
    counted = [counts_of(kind, report["measurement"]) for report in vector["reports"]]
    assert result == tuple(map(sum, zip(*counted, strict=True)))
    if isinstance(kind, Prio3Histogram):
        assert sum(result) == len(counted)
