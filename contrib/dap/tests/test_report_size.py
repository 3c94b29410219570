"""Lengths by formula, against those of the published vectors and against trying all."""

from pathlib import Path

import pytest
from tests.plans import make_plan

from contrib.dap import (
    Prio3,
    Prio3Histogram,
    Prio3L1BoundSum,
    Prio3SumVec,
    Proof,
    ProofSize,
    ReportSize,
    best_chunk_length,
    dap_task,
)

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize(
    ("kind", "leader_share", "verifier_share"),
    [  # bytes of the shares in the vectors of the drafts (published.py says which)
        (Prio3Histogram(length=4, chunk_length=2), 272, 128),
        (Prio3Histogram(length=5, chunk_length=2), 288, 128),
        (Prio3Histogram(length=11, chunk_length=3), 544, 160),
        (Prio3Histogram(length=100, chunk_length=10), 2448, 384),
        (Prio3SumVec(length=10, max_measurement=255, chunk_length=9), 2096, 352),
        (Prio3SumVec(length=3, max_measurement=32000, chunk_length=7), 1216, 288),
        (Prio3L1BoundSum(length=10, max_value=240, chunk_length=9), 2224, 352),
    ],
)
def test_lengths_are_those_of_the_published_vectors(
    kind: Prio3, leader_share: int, verifier_share: int
) -> None:
    size = ReportSize(kind.proof_size)
    assert size.leader_share == leader_share
    assert size.exchange == 2 * verifier_share + 32
    assert size.helper_share == size.public_share == 64


def test_proof_length_by_hand() -> None:
    # 100 elements in chunks of 10: 10 calls, P = 16, so 20 seeds and a polynomial of 2 * 15 + 1.
    assert ProofSize(100, 10).calls == 10
    assert ProofSize(100, 10).proof == 20 + 31
    assert ProofSize(3, 1).proof == 2 + 7  # 3 calls and the seed fill a P of 4
    assert ProofSize(4, 1).proof == 2 + 15


@pytest.mark.parametrize("encoded", [*range(1, 130), 251, 1255, 4001])
def test_no_other_chunk_length_has_a_shorter_proof(encoded: int) -> None:
    found = ProofSize(encoded, best_chunk_length(encoded)).proof
    assert found == min(ProofSize(encoded, chunk).proof for chunk in range(1, encoded + 1))


@pytest.mark.parametrize("cells", [10, 250, 4000])
def test_the_table_of_the_readme(cells: int) -> None:
    """Upload bytes of one task: k = 1, and k = 20 with each proof."""
    cases: list[tuple[int, Proof]] = [(1, "sum"), (20, "sum"), (20, "record"), (20, "cell")]
    found = [cells]
    for k, proof in cases:
        plan = make_plan(points=cells, trust="none", unit="client", per_client=k)
        task = dap_task(plan, clients=100, proof=proof)
        proof_size = task.kind.proof_size
        each = 16 * (proof_size.encoded + proof_size.proof) + 312  # as the README says it
        assert task.upload_bytes == task.reports_per_client * each
        found.append(task.upload_bytes)
    row = "| " + " | ".join(f"{number:,}" for number in found) + " |"
    assert row in README.read_text(encoding="utf-8").splitlines()
