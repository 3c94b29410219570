"""One server of three: ids, challenge, checks and sums, with decoded shares."""

import numpy as np
import pytest

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, MessageDecodeError, WrongStepError
from fedprikl.protocol.server_share import (
    ID_BYTES,
    ServerShare,
    Stored,
    add_rows,
    check_weights,
    combine,
    commitment,
    draw_challenge,
    failing,
    to_ids,
)
from fedprikl.secure_sum.line_shares import PRIME, SERVERS, Field, expand, restore, split

BLOCKS = (3, 4)
CHALLENGE = bytes(range(32))


class InMemory:
    """What three servers hold of some clients: ids, and a row of shares each."""

    def __init__(self, vectors: Ints, rng: np.random.Generator) -> None:
        self.vectors = vectors
        self.ids = [rng.bytes(ID_BYTES) for _ in vectors]
        self.rows: dict[int, Field] = {}
        masks = rng.integers(0, PRIME // 2, len(vectors))
        found: dict[int, list[Field]] = {number: [] for number in SERVERS}
        for vector, mask in zip(vectors, masks, strict=True):
            seed, masked = rng.bytes(32), np.append(vector, mask)
            two, three = split(masked, seed)
            for number, share in zip(SERVERS, (expand(seed, len(masked)), two, three), strict=True):
                found[number].append(share)
        self.rows = {number: np.array(rows) for number, rows in found.items()}

    def stored(self, number: int, size: int = 7) -> Stored:
        ids = np.array(self.ids, dtype=f"S{ID_BYTES}")
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            yield ids[part], self.rows[number][part]


def honest_vectors(rng: np.random.Generator, clients: int = 20) -> Ints:
    found = []
    for _ in range(clients):
        records = int(rng.integers(0, 50))
        found.append([*(c for b in BLOCKS for c in rng.multinomial(records, [1 / b] * b)), records])
    return np.array(found)


def run(held: InMemory, present: tuple[int, ...] = SERVERS) -> tuple[Ints, list[bytes]]:
    """The sum that the servers restore, and the reports they leave out."""
    servers = {number: ServerShare(number=number, blocks=BLOCKS) for number in present}
    for server in servers.values():
        for each in held.ids:
            server.accept(each)
    told = {number: server.close() for number, server in servers.items()}
    others = {n: {m: told[m] for m in present if m != n} for n in present}
    agreed = {server.agree(others[n]) for n, server in servers.items()}
    assert len(agreed) == 1
    checks = {n: server.check(CHALLENGE, held.stored(n)) for n, server in servers.items()}
    others = {n: {m: checks[m] for m in present if m != n} for n in present}
    left_out = {server.settle(others[n]) for n, server in servers.items()}
    assert len(left_out) == 1
    (out,) = left_out
    shares = {
        n: server.total(out, lambda _, n=n: held.stored(n))  # type: ignore[misc]
        for n, server in servers.items()
    }
    return restore(shares), [out[i : i + ID_BYTES] for i in range(0, len(out), ID_BYTES)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(29)


@pytest.mark.parametrize("present", [(1, 2, 3), (1, 2), (1, 3), (2, 3)])
def test_sum_is_that_of_the_counts(rng: np.random.Generator, present: tuple[int, ...]) -> None:
    held = InMemory(honest_vectors(rng), rng)
    total, left_out = run(held, present)
    assert total.tolist() == held.vectors.sum(axis=0).tolist()
    assert left_out == []


@pytest.mark.parametrize("number", SERVERS)
def test_report_on_no_line_is_left_out_by_all(rng: np.random.Generator, number: int) -> None:
    held = InMemory(honest_vectors(rng), rng)
    held.rows[number][4, 2] = (int(held.rows[number][4, 2]) + 1) % PRIME
    total, left_out = run(held)
    assert left_out == [held.ids[4]]
    assert total.tolist() == np.delete(held.vectors, 4, axis=0).sum(axis=0).tolist()


@pytest.mark.parametrize("present", [(1, 2, 3), (1, 3)])
def test_blocks_that_do_not_add_up_are_left_out(
    rng: np.random.Generator, present: tuple[int, ...]
) -> None:
    vectors = honest_vectors(rng)
    vectors[3, 0] += 1
    held = InMemory(vectors, rng)
    total, left_out = run(held, present)
    assert left_out == [held.ids[3]]
    assert total.tolist() == np.delete(vectors, 3, axis=0).sum(axis=0).tolist()


def test_two_servers_take_what_two_shares_restore_to(rng: np.random.Generator) -> None:
    """With one lost, nothing can lie beside a line: a client only chooses its counts."""
    held = InMemory(honest_vectors(rng), rng)
    held.rows[3][4] = (held.rows[3][4] + np.uint64(5)) % np.uint64(PRIME)
    total, left_out = run(held, (1, 2))
    assert (total.tolist(), left_out) == (held.vectors.sum(axis=0).tolist(), [])
    assert run(held)[1] == [held.ids[4]]


def test_only_what_all_hold_is_counted() -> None:
    server = ServerShare(number=1, blocks=BLOCKS)
    one, two, three = (bytes([n]) * ID_BYTES for n in range(3))
    assert [server.accept(each) for each in (two, one, two)] == [True, True, False]
    assert server.close() == one + two
    others = {2: two + three, 3: one + two + three}
    assert server.missing(others) == 1
    assert server.agree(others) == two


def test_duplicates_in_several_files_count_once(rng: np.random.Generator) -> None:
    held = InMemory(honest_vectors(rng), rng)
    held.rows[2][5, 0] += 1

    class Twice(InMemory):
        def __init__(self) -> None:
            self.__dict__ |= held.__dict__

        def stored(self, number: int, size: int = 7) -> Stored:
            yield from held.stored(number, size)
            yield from held.stored(number, 3)

    total, left_out = run(Twice())
    assert left_out == [held.ids[5]]
    assert total.tolist() == np.delete(held.vectors, 5, axis=0).sum(axis=0).tolist()


def test_arithmetic_is_that_of_python(rng: np.random.Generator) -> None:
    rows = rng.integers(0, PRIME, (5, 4500), dtype=np.uint64)
    rows[0] = PRIME - 1
    weights = rng.integers(0, PRIME, (4500, 2), dtype=np.uint64)
    weights[:, 0] = PRIME - 1
    exact = rows.astype(object) @ weights.astype(object) % PRIME
    assert np.array_equal(combine(rows, weights).astype(object), exact)
    assert np.array_equal(add_rows(rows).astype(object), rows.astype(object).sum(axis=0) % PRIME)


def test_weights_depend_on_the_challenge_alone() -> None:
    weights = check_weights(CHALLENGE, BLOCKS)
    assert weights.shape == (9, 2)
    assert weights[-1].tolist() == [1, 0]
    honest = np.array([[1, 0, 2, 0, 3, 0, 0, 3, 12345]], dtype=np.uint64)
    assert combine(honest, weights)[0, 1] == 0
    assert not np.array_equal(weights, check_weights(bytes(32), BLOCKS))


def test_published_numbers_are_uniform_whatever_the_counts(rng: np.random.Generator) -> None:
    """The published number that restores, of two very different clients: chi-square of 16 bins."""
    assert not told_apart(rng, masked=True)
    assert told_apart(rng, masked=False)


def told_apart(rng: np.random.Generator, *, masked: bool) -> bool:
    """Whether what is published tells a client of no records from one of 40."""
    weights, bins = check_weights(CHALLENGE, BLOCKS), []
    for records in (0, 40):
        vector = np.array([records, 0, 0, 0, 0, 0, records, records])
        rows = np.array(
            [
                np.append(vector, rng.integers(0, PRIME) if masked else 0).astype(np.uint64)
                for _ in range(2000)
            ]
        )
        published = combine(rows, weights)[:, 0]
        bins.append(np.bincount((published >> np.uint64(57)).astype(int), minlength=16))
    first, second = bins
    chi = float(((first - second) ** 2 / np.maximum(first + second, 1)).sum())
    return chi > 79.0  # 15 degrees of freedom: 1e-9 of false alarms lies below


def test_challenge_binds_everybody() -> None:
    secrets = {n: bytes([n]) * 32 for n in SERVERS}
    said = {n: commitment(secret) for n, secret in secrets.items()}
    found = draw_challenge(secrets, said)
    assert found != draw_challenge(secrets | {2: bytes(32)}, said | {2: commitment(bytes(32))})
    with pytest.raises(MessageDecodeError, match="Server 2 reveals another"):
        draw_challenge(secrets | {2: bytes(32)}, said)
    with pytest.raises(InvalidInputError, match="two or three"):
        draw_challenge({1: secrets[1]}, {1: said[1]})


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"x", "middle of an id"), (b"b" * 16 + b"a" * 16, "not sorted"), (b"a" * 32, "twice")],
)
def test_malformed_lists_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(MessageDecodeError, match=words):
        to_ids(data)


@pytest.mark.parametrize("data", [b"", b"x", bytes(16), b"\xff" * 8, bytes(32)])
def test_malformed_checks_are_refused(rng: np.random.Generator, data: bytes) -> None:
    held = InMemory(honest_vectors(rng, 1), rng)
    server = ServerShare(number=1, blocks=BLOCKS)
    server.agree({2: server.close(held.ids[0])})
    server.check(CHALLENGE, held.stored(1))
    with pytest.raises(MessageDecodeError, match="Server 2 did not publish"):
        server.settle({2: data})


def test_each_step_once_and_in_order() -> None:
    server = ServerShare(number=3, blocks=BLOCKS)
    with pytest.raises(WrongStepError, match="one answer per plan and period"):
        server.agree({1: b""})
    server.close()
    with pytest.raises(WrongStepError, match="is closed"):
        server.accept(bytes(16))
    with pytest.raises(InvalidInputError, match="other servers"):
        server.agree({3: b""})


def test_store_that_lost_reports_says_so() -> None:
    server = ServerShare(number=1, blocks=BLOCKS)
    server.accept(bytes(16))
    server.agree({2: server.close()})
    with pytest.raises(InvalidInputError, match="1 reports that this server said it holds"):
        server.check(CHALLENGE, [])


def test_nobody_reported() -> None:
    server = ServerShare(number=1, blocks=BLOCKS)
    server.agree({2: server.close(), 3: b""})
    assert server.check(CHALLENGE, []) == b""
    assert server.settle({2: b"", 3: b""}) == b""
    assert server.total(b"", lambda _: []).tolist() == [0] * 8


def test_failing_needs_both_lines() -> None:
    line = {n: np.array([[5 + 2 * n, 3 * n]], dtype=np.uint64) for n in SERVERS}
    assert not failing(line).any()
    off = line | {3: line[3] + np.array([[1, 0]], dtype=np.uint64)}
    assert failing(off).all()
    high = {n: line[n] + np.array([[0, 1]], dtype=np.uint64) for n in SERVERS}
    assert failing(high).all()
