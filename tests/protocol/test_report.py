"""A report opens at its server, for its plan and period; anything else is a decode error."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.checks import Ints
from fedprikl.errors import (
    FedPriKLError,
    InvalidInputError,
    MessageDecodeError,
    ReportAddressError,
    ReportSealError,
)
from fedprikl.protocol.keys import HybridKey, OpeningKey, SealingKey, SigningKey
from fedprikl.protocol.report import (
    SUITES,
    ReportHeader,
    SuiteName,
    make_reports,
    message_bytes,
    open_report,
    read_header,
    share_bytes,
)
from fedprikl.secure_sum.line_shares import PRIME, Field, restore

PLAN, PERIOD = b"p" * 32, 7
COUNTS = np.array([5, 0, 12, 3, 20])
IDENTITY = SigningKey.generate()
KEYS: dict[SuiteName, list[OpeningKey]] = {
    "x25519": [SealingKey.generate() for _ in range(3)],
    "hybrid": [HybridKey.generate() for _ in range(3)],
}
CASES = [(suite, identity) for suite in SUITES for identity in (None, IDENTITY)]


def made(
    suite: SuiteName = "hybrid", identity: SigningKey | None = None, vector: Ints = COUNTS
) -> tuple[bytes, bytes, bytes]:
    publics = [key.public for key in KEYS[suite]]
    return make_reports(
        vector, plan=PLAN, period=PERIOD, suite=suite, servers=publics, identity=identity
    )


def opened(
    message: bytes,
    server: int,
    *,
    suite: SuiteName = "hybrid",
    plan: bytes = PLAN,
    period: int = PERIOD,
    entries: int = len(COUNTS),
) -> tuple[ReportHeader, Field]:
    key = KEYS[suite][server - 1]
    return open_report(message, key, plan=plan, period=period, server=server, entries=entries)


@pytest.mark.parametrize(("suite", "identity"), CASES)
def test_any_two_servers_restore_the_counts(suite: SuiteName, identity: SigningKey | None) -> None:
    read = [opened(m, i, suite=suite) for i, m in enumerate(made(suite, identity), start=1)]
    headers = [header for header, _ in read]
    assert [header.server for header in headers] == [1, 2, 3]
    assert len({header.report_id for header in headers}) == 1
    assert headers[0].identity == (identity and bytes.fromhex(identity.public))
    shares = {i: share for i, (_, share) in enumerate(read, start=1)}
    for lost in shares:
        left = restore({i: share for i, share in shares.items() if i != lost})
        assert left[:-1].tolist() == COUNTS.tolist()
    restore(shares)  # on lines, with the mask


@given(
    st.lists(st.integers(-(PRIME // 2), PRIME // 2), min_size=1, max_size=9),
    st.sampled_from(CASES),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_what_was_sealed_is_what_opens(
    vector: list[int], case: tuple[SuiteName, SigningKey | None], plan: bytes, period: int
) -> None:
    suite, identity = case
    publics = [key.public for key in KEYS[suite]]
    messages = make_reports(
        np.array(vector), plan=plan, period=period, suite=suite, servers=publics, identity=identity
    )
    shares = {}
    for server, message in enumerate(messages, start=1):
        header, shares[server] = opened(
            message, server, suite=suite, plan=plan, period=period, entries=len(vector)
        )
        assert header == read_header(message)
        assert message.startswith(header.to_bytes())
        size = message_bytes(len(vector), server=server, suite=suite, signed=identity is not None)
        assert len(message) == size
    assert restore(shares)[:-1].tolist() == vector


@pytest.mark.parametrize(("suite", "identity"), CASES)
def test_a_report_opens_nowhere_else(suite: SuiteName, identity: SigningKey | None) -> None:
    """Also if its header is changed to fit: the seal holds the header."""
    first, second, third = made(suite, identity)
    header = read_header(second)
    elsewhere: list[tuple[ReportHeader, dict[str, object]]] = [
        (replace(header, plan=b"q" * 32), {"plan": b"q" * 32}),
        (replace(header, period=8), {"period": 8}),
        (replace(header, server=3), {"server": 3}),
        (replace(header, report_id=bytes(16)), {}),
    ]
    for changed, place in elsewhere:
        asked: dict[str, object] = {"server": 2, **place}
        if place:
            with pytest.raises(ReportAddressError):
                opened(second, suite=suite, **asked)  # type: ignore[arg-type]
        forged = changed.to_bytes() + second[len(header.to_bytes()) :]
        with pytest.raises(ReportSealError):
            opened(forged, suite=suite, **asked)  # type: ignore[arg-type]
    for message, server in ((third, 2), (second, 3), (first, 2)):
        with pytest.raises(ReportAddressError):
            opened(message, server, suite=suite)
    with pytest.raises(ReportSealError):  # the right server with the key of another one
        open_report(second, KEYS[suite][2], plan=PLAN, period=PERIOD, server=2, entries=len(COUNTS))
    with pytest.raises(MessageDecodeError):
        opened(second, 2, suite=suite, entries=len(COUNTS) + 1)


def test_nobody_takes_over_a_report_with_an_identity_of_their_own() -> None:
    thief = SigningKey.generate()
    for victim in (None, IDENTITY):
        message = made(identity=victim)[1]
        header = read_header(message)
        sealed = message[len(header.to_bytes()) :]
        sealed = sealed if victim is None else sealed[:-64]
        for taker in (None, thief):
            public = None if taker is None else bytes.fromhex(taker.public)
            head = replace(header, identity=public).to_bytes()
            forged = head + sealed + (b"" if taker is None else sign(taker, head, sealed))
            if taker is victim:
                opened(forged, 2)
                continue
            with pytest.raises(ReportSealError, match="does not open"):
                opened(forged, 2)


def sign(identity: SigningKey, head: bytes, sealed: bytes) -> bytes:
    from fedprikl.protocol.report import _signature

    return _signature(identity, head, sealed)


def test_a_changed_signature_is_refused() -> None:
    message = made(identity=IDENTITY)[0]
    with pytest.raises(ReportSealError, match="signature"):
        opened(message[:-1] + bytes([message[-1] ^ 1]), 1)


def changes(rng: random.Random, message: bytes) -> bytes:
    """One of the things that happen to bytes on their way."""
    data, at = bytearray(message), rng.randrange(len(message))
    kinds: list[Callable[[], bytes]] = [
        lambda: bytes(data[:at]) + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
        lambda: bytes(data[:at]),
        lambda: bytes(data[:at] + data[at + 1 :]),
        lambda: bytes(data) + rng.randbytes(rng.randrange(1, 80)),
        lambda: bytes(data[:at]) + rng.randbytes(8) + data[at + 8 :],
        lambda: rng.randbytes(len(data)),
        lambda: bytes(data[:60]) + bytes(len(data) - 60),  # a key of low order
        lambda: bytes(data[:at]) + data[at:][::-1],
    ]
    return rng.choice(kinds)()


def test_ten_thousand_changed_messages_raise_decode_errors_only() -> None:
    rng = random.Random(29)  # noqa: S311
    messages = [(suite, made(suite, identity)) for suite, identity in CASES]
    refused = 0
    for _ in range(10_000):
        suite, three = rng.choice(messages)
        server = rng.randrange(1, 4)
        wrong = changes(rng, three[server - 1])
        if wrong == three[server - 1]:
            continue  # an end turned round in place
        with pytest.raises(MessageDecodeError):
            opened(wrong, server, suite=suite)
        refused += 1
    assert refused > 9_900


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_of_any_kind_are_refused(data: bytes) -> None:
    for message in (data, b"FPR\1" + data):
        with pytest.raises(MessageDecodeError):
            opened(message, 1)


def test_a_number_outside_the_field_is_refused() -> None:
    from fedprikl.protocol import report

    header = read_header(made()[1])
    for number, fits in ((PRIME - 1, True), (PRIME, False), (2**64 - 1, False)):
        share = number.to_bytes(8, "little") * (len(COUNTS) + 1)
        message = report._message(header, share, KEYS["hybrid"][1].public, None)
        if fits:
            opened(message, 2)
        else:
            with pytest.raises(MessageDecodeError, match="below"):
                opened(message, 2)


def test_lengths_say_nothing_about_counts() -> None:
    few, many = made(vector=np.zeros(5, dtype=np.int64)), made(vector=np.full(5, 10**12))
    assert [len(message) for message in few] == [len(message) for message in many]


def test_the_same_counts_make_another_report() -> None:
    once, again = made(), made()
    assert read_header(once[0]).report_id != read_header(again[0]).report_id
    assert not set(once) & set(again)


def test_randomness_is_an_argument() -> None:
    seed, second, third = share_bytes(COUNTS, b"s" * 32, b"m" * 32)
    assert (seed, second, third) == share_bytes(COUNTS, b"s" * 32, b"m" * 32)
    drawn: list[int] = []

    def zeros(size: int) -> bytes:
        drawn.append(size)
        return bytes(size)

    publics = [key.public for key in KEYS["x25519"]]
    message = make_reports(
        COUNTS, plan=PLAN, period=0, suite="x25519", servers=publics, randomness=zeros
    )[1]
    assert drawn == [16, 32, 32]
    share = opened(message, 2, suite="x25519", period=0)[1]
    assert share.astype("<u8").tobytes() == share_bytes(COUNTS, bytes(32), bytes(32))[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"plan": b"short"},
        {"period": -1},
        {"period": 2**32},
        {"suite": "rot13"},
        {"servers": ["ab" * 32] * 2},
        {"servers": ["zz" * 32] * 3},
        {"servers": ["00" * 32] * 3},  # of low order
        {"servers": ["ab" * 16] * 3},
        {"suite": "hybrid", "servers": ["ab" * 32] * 3},
    ],
)
def test_what_makes_no_report_says_so(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {
        "plan": PLAN,
        "period": 0,
        "suite": "x25519",
        "servers": [key.public for key in KEYS["x25519"]],
        **wrong,
    }
    with pytest.raises(InvalidInputError):
        make_reports(COUNTS, **given)  # type: ignore[arg-type]


def test_secrets_never_print() -> None:
    said: list[str] = []
    counts = np.array([123456789, 987654321])
    messages = made(vector=counts)
    for server, message in enumerate(messages, start=1):
        said.append(repr(opened(message, server, entries=2)[0]))
        for wrong in (
            message[:-1],
            message[:80] + bytes([message[80] ^ 1]) + message[81:],
            message + b"\0",
        ):
            with pytest.raises(FedPriKLError) as caught:
                opened(wrong, server, entries=2)
            said.append(repr(caught.value))
    key = KEYS["hybrid"][0]
    said.append(repr(key))
    text = "".join(said)
    assert "123456789" not in text
    assert "987654321" not in text
    assert repr(key) == f"HybridKey(public {key.public[:8]}...)"


def test_the_hybrid_key_is_a_private_file_of_two_keys(tmp_path: Path) -> None:
    path, key = tmp_path / "server.pem", HybridKey.generate()
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert HybridKey.load(path).public == key.public
    assert len(key.public) == 2 * (1184 + 32)
    parts = path.read_text().split("-----BEGIN")
    (tmp_path / "half.pem").write_text("-----BEGIN" + parts[1])
    (tmp_path / "turned.pem").write_text("-----BEGIN" + parts[2] + "-----BEGIN" + parts[1])
    SealingKey.generate().save(tmp_path / "x25519.pem")
    for name in ("half", "turned", "x25519"):
        with pytest.raises(InvalidInputError, match="ML-KEM-768 with X25519"):
            HybridKey.load(tmp_path / f"{name}.pem")
    with pytest.raises(InvalidInputError, match="X25519 key"):
        SealingKey.load(path)


def chi_square(samples: list[int], *, bins: int = 16) -> float:
    """Of the four highest bits of numbers below 2^61."""
    counts = np.bincount(np.array(samples, dtype=np.uint64) >> np.uint64(57), minlength=bins)
    expected = len(samples) / bins
    return float(((counts - expected) ** 2 / expected).sum())


LIMIT = 76.0  # chi-square with 15 degrees of freedom exceeds it with probability below 1e-9


@pytest.mark.parametrize("server", [1, 2, 3])
def test_one_share_is_uniform_whatever_the_counts(server: int) -> None:
    """FALSE_ALARM = 1e-9 each."""
    for vector in (np.zeros(400, dtype=np.int64), np.full(400, 10**9)):
        share = shares(vector)[server - 1]
        assert chi_square(share) < LIMIT


def test_that_check_would_see_a_share_of_one_bit_less() -> None:
    first, _, _ = shares(np.zeros(400, dtype=np.int64))
    assert chi_square([number // 2 for number in first]) > LIMIT


def shares(vector: Ints) -> list[list[int]]:
    publics = [key.public for key in KEYS["x25519"]]
    messages = make_reports(vector, plan=PLAN, period=7, suite="x25519", servers=publics)
    return [
        opened(message, server, suite="x25519", entries=len(vector))[1].tolist()
        for server, message in enumerate(messages, start=1)
    ]
