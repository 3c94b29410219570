"""One of three servers: which reports all of them hold, which are whole, and its share of the sum.

No sockets, no clock, no disk: reports come from whoever keeps them.

    OPEN --accept*--> OPEN --close--> CLOSED --agree--> AGREED
    AGREED --check--> CHECKED --settle--> SETTLED --total*--> SETTLED

A report is a vector of counts, shared on lines (`secure_sum.line_shares`): the blocks of all views,
each of which adds up to the number of records N, then N, then a random mask. After the upload the
servers draw a challenge together, and each publishes two numbers per report, linear in its share:

    a = mask + sum_j c_j v_j,        b = sum_B d_B (sum_{j in B} v_j - N)

with c and d expanded from the challenge. The shares of a and b at the points 1, 2, 3 must lie on
lines, and b must be 0. The mask makes a uniform and b is 0 for every honest client, so neither says
anything about its counts. A report whose shares lie on no line, or whose blocks do not add up,
passes with probability 1 / (2^61 - 1): the challenge did not exist when it was sent.

A mask hides one challenge, not two: the difference of two numbers a would tell about the counts. So
a server answers one challenge per plan and period, keeps it before it publishes anything, and first
makes sure that the others answer the same one. Two servers publish b alone: a tells them nothing,
as two points always lie on a line, and neither can ask the third one which challenge it answered.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from fedprikl.errors import InvalidInputError, MessageDecodeError, WrongStepError
from fedprikl.secure_sum.line_shares import PRIME, SERVERS, Field, expand

ID_BYTES = 16
CHECKS = 2  # published numbers per report; two servers publish the second
SECRET_BYTES = 32  # of each server's part of the challenge
_LABEL = b"fedprikl/servers/1/"
_LIMB = 21  # bits: products of two limbs, 2^11 of them added up, are exact in a double
_COLUMNS = 2**11
_PRIME = np.uint64(PRIME)

Ids = npt.NDArray[np.bytes_]  # sorted, each once
Stored = Iterable[tuple[Ids, Field]]  # ids, in any order, with one row of shares each


class Stage(Enum):
    """What a server has done for a plan and period."""

    OPEN = "open"
    CLOSED = "closed"
    AGREED = "agreed"
    CHECKED = "checked"
    SETTLED = "settled"


def to_ids(data: bytes) -> Ids:
    """Sorted ids, from those of a message; refused if they are not sorted or not whole."""
    if len(data) % ID_BYTES:
        raise MessageDecodeError("A list of reports ends in the middle of an id.")
    ids = np.frombuffer(data, dtype=f"S{ID_BYTES}")
    if np.any(ids[1:] <= ids[:-1]):
        raise MessageDecodeError("A list of reports is not sorted, or names a report twice.")
    return ids


def commitment(secret: bytes) -> bytes:
    """What a server says before it reveals its part of the challenge."""
    return hashlib.sha256(_LABEL + b"commitment/" + secret).digest()


def draw_challenge(secrets: Mapping[int, bytes], commitments: Mapping[int, bytes]) -> bytes:
    """The challenge, from what the servers reveal; refused if one reveals another than it said.

    It is random if one of them is honest: all were fixed before any was known.
    """
    if len(secrets) < 2 or set(secrets) != set(commitments):
        raise InvalidInputError("A challenge is drawn by two or three servers.")
    for number, secret in sorted(secrets.items()):
        if len(secret) != SECRET_BYTES or commitment(secret) != commitments[number]:
            raise MessageDecodeError(
                f"Server {number} reveals another part of the challenge than it committed to. "
                "Nothing was opened."
            )
    parts = b"".join(bytes([number]) + secret for number, secret in sorted(secrets.items()))
    return hashlib.sha256(_LABEL + b"challenge/" + parts).digest()


def check_weights(challenge: bytes, blocks: Sequence[int]) -> Field:
    """Coefficients of the two published numbers, one row for each entry of a report.

    a:  c_1, ..., c_E, 1            b:  d_B for the entries of block B, -sum d_B for N, 0
    """
    cells = sum(blocks)
    drawn = expand(challenge, cells + 1 + len(blocks))
    each = drawn[cells + 1 :]
    last = np.uint64((-int(each.astype(object).sum())) % PRIME)
    first = np.append(drawn[: cells + 1], np.uint64(1))
    second = np.concatenate([np.repeat(each, blocks), np.array([last, 0], dtype=np.uint64)])
    return np.column_stack([first, second])


def combine(rows: Field, weights: Field) -> Field:
    """rows @ weights modulo the prime, exact.

    Numbers are cut into limbs of 21 bits, whose products are added up as doubles without rounding.
    """
    found = np.zeros((len(rows), weights.shape[1]), dtype=np.uint64)
    for start in range(0, rows.shape[1], _COLUMNS):
        part, places = rows[:, start : start + _COLUMNS], weights[start : start + _COLUMNS]
        limbs = np.concatenate([_limb(places, place) for place in range(3)], axis=1)
        for i in range(3):
            products = (_limb(part, i) @ limbs).astype(np.uint64)
            for j, product in enumerate(np.split(products, 3, axis=1)):
                found += _shifted(product, _LIMB * (i + j) % 61)
                found %= _PRIME
    return found


def _limb(numbers: Field, place: int) -> npt.NDArray[np.float64]:
    cut = (numbers >> np.uint64(_LIMB * place)) & np.uint64(2**_LIMB - 1)
    return cut.astype(np.float64)


def _shifted(numbers: Field, bits: int) -> Field:
    """numbers * 2^bits modulo the prime: a rotation of 61 bits."""
    high = np.uint64(61 - bits)
    low = numbers & np.uint64((1 << (61 - bits)) - 1)
    return (low << np.uint64(bits)) + (numbers >> high)


def add_rows(rows: Field) -> Field:
    """The sum of rows modulo the prime; up to 2^32 of them."""
    low = (rows & np.uint64(2**32 - 1)).sum(axis=0, dtype=np.uint64) % _PRIME
    high = (rows >> np.uint64(32)).sum(axis=0, dtype=np.uint64) % _PRIME
    total: Field = (low + _shifted(high, 32)) % _PRIME
    return total


def failing(checks: Mapping[int, Field]) -> npt.NDArray[np.bool_]:
    """Which reports are left out, from the published numbers of two or three servers.

    On a line f(1) - 2 f(2) + f(3) = 0, and j f(i) - i f(j) is a multiple of f(0). Two points always
    lie on a line: with a server lost, a client can only choose what its two shares restore to.
    """
    (i, first), (j, second), *more = sorted(checks.items())
    negative = _PRIME - second[:, -1]
    height = (np.uint64(j) * first[:, -1] + np.uint64(i) * negative) % _PRIME
    bad: npt.NDArray[np.bool_] = height != 0
    for _, third in more:
        bend = (first + 2 * (_PRIME - second) % _PRIME + third) % _PRIME
        bad |= np.any(bend != 0, axis=1)
    return bad


def _picked(wanted: Ids, stored: Stored) -> Iterator[tuple[npt.NDArray[np.int64], Field]]:
    """Rows of the wanted ids with their places; each once, though several files may hold it."""
    missing = np.ones(len(wanted), dtype=bool)
    for ids, rows in stored:
        places = np.searchsorted(wanted, ids)
        places[places == len(wanted)] = 0
        fits = missing[places] & (wanted[places] == ids)
        first = np.unique(places[fits], return_index=True)[1]
        chosen = np.flatnonzero(fits)[first]
        missing[places[chosen]] = False
        yield places[chosen], rows[chosen]


@dataclass(eq=False)
class ServerShare:
    """The role of one server in one plan and period. SECRET: its total is a share of the sums.

    Holds ids and its share of one sum, whatever the number of reports.

    >>> servers = [ServerShare(number=n, blocks=(2,)) for n in SERVERS]
    >>> [server.accept(bytes(ID_BYTES)) for server in servers]
    [True, True, True]
    >>> servers[0].accept(bytes(ID_BYTES))  # again: counts once
    False
    """

    number: int
    blocks: tuple[int, ...]  # counts of each view, with that of all its other records
    stage: Stage = Stage.OPEN
    agreed: Ids = field(default_factory=lambda: to_ids(b""), repr=False)
    _known: set[bytes] = field(default_factory=set, repr=False)
    _held: Ids = field(default_factory=lambda: to_ids(b""), repr=False)
    _published: int = CHECKS  # numbers per report
    _checks: Field | None = field(default=None, repr=False)
    _total: Field | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.number not in SERVERS or not self.blocks or min(self.blocks) < 1:
            raise InvalidInputError("A server has a number from 1 to 3, and a view to count.")

    @property
    def entries(self) -> int:
        """Numbers of a report without its mask: the blocks and N."""
        return sum(self.blocks) + 1

    def accept(self, report: bytes) -> bool:
        """Whether the report with this id is new; one that is known counts once."""
        self._step(Stage.OPEN)
        if len(report) != ID_BYTES:
            raise InvalidInputError(f"The id of a report has {ID_BYTES} bytes.")
        new = report not in self._known
        self._known.add(report)
        return new

    def close(self, held: bytes = b"") -> bytes:
        """Takes no more reports. The ids of all that it holds, sorted: what it tells the others.

        `held` are ids that a store has kept, in any order, beside those that were accepted here.
        """
        self._step(Stage.OPEN, Stage.CLOSED)
        kept = np.frombuffer(held + b"".join(self._known), dtype=f"S{ID_BYTES}")
        self._known = set()
        self._held = np.unique(kept)
        return self._held.tobytes()

    def agree(self, others: Mapping[int, bytes]) -> bytes:
        """The ids that all present servers hold: nobody can add one, and one that is left out is
        left out by all.
        """
        self._step(Stage.CLOSED, Stage.AGREED)
        self._others(others)
        self._published = CHECKS if len(others) == len(SERVERS) - 1 else 1
        self.agreed = self._held
        for ids in others.values():
            self.agreed = np.intersect1d(self.agreed, to_ids(ids), assume_unique=True)
        return self.agreed.tobytes()

    def missing(self, others: Mapping[int, bytes]) -> int:
        """Reports that all the others hold and this server does not.

        A few are on their way when servers close; many say that a store lost what it had.
        """
        first, *rest = map(to_ids, others.values())
        for ids in rest:
            first = np.intersect1d(first, ids, assume_unique=True)
        return int(np.setdiff1d(first, self._held, assume_unique=True).size)

    def check(self, challenge: bytes, stored: Stored) -> bytes:
        """The numbers of every agreed report, in the order of the ids: what it publishes.

        Reads each report once, and adds it up on the way. Reports that were not agreed on may be
        among the stored ones.
        """
        self._step(Stage.AGREED, Stage.CHECKED)
        weights = check_weights(challenge, self.blocks)
        checks = np.zeros((len(self.agreed), CHECKS), dtype=np.uint64)
        total, found = np.zeros(self.entries + 1, dtype=np.uint64), 0
        for places, rows in _picked(self.agreed, stored) if len(self.agreed) else ():
            checks[places] = combine(rows, weights)
            total = (total + add_rows(rows)) % _PRIME
            found += len(rows)
        if found < len(self.agreed):
            raise InvalidInputError(
                f"{len(self.agreed) - found} reports that this server said it holds are not in its "
                "store. Nothing was opened; look for the files of its collectors."
            )
        self._checks, self._total = checks[:, -self._published :], total
        return self._checks.astype("<u8").tobytes()

    def settle(self, others: Mapping[int, bytes]) -> bytes:
        """The ids of the reports that are left out: their shares are not those of counts."""
        self._step(Stage.CHECKED, Stage.SETTLED)
        self._others(others)
        assert self._checks is not None  # noqa: S101  by the step
        checks = {self.number: self._checks}
        checks |= {number: self._read(number, data) for number, data in others.items()}
        return self.agreed[failing(checks)].tobytes()

    def total(self, left_out: bytes, read: Callable[[Ids], Stored]) -> Field:
        """SECRET: the share of the sum of all agreed reports but those left out, read once more.

        Without the mask: the counts of all blocks, and N.
        """
        self._step(Stage.SETTLED)
        assert self._total is not None  # noqa: S101  by the step
        total, out = self._total, to_ids(left_out)
        for _, rows in _picked(out, read(out)) if len(out) else ():
            total = (total + _PRIME - add_rows(rows)) % _PRIME
        return total[:-1]

    def _read(self, number: int, data: bytes) -> Field:
        checks = np.frombuffer(data, dtype="<u8").astype(np.uint64) if len(data) % 8 == 0 else None
        size = self._published * len(self.agreed)
        if checks is None or len(checks) != size or np.any(checks >= _PRIME):
            raise MessageDecodeError(
                f"Server {number} did not publish {self._published} numbers for each of "
                f"{len(self.agreed)} reports. Nothing was opened."
            )
        return checks.reshape(-1, self._published)

    def _others(self, others: Mapping[int, bytes]) -> None:
        if not others or not set(others) <= set(SERVERS) - {self.number}:
            raise InvalidInputError("An answer needs one or two of the other servers.")

    def _step(self, now: Stage, after: Stage | None = None) -> None:
        if self.stage is not now:
            raise WrongStepError(
                f"Server {self.number} is {self.stage.value}, and this step is for one that is "
                f"{now.value}. It takes part in one answer per plan and period."
            )
        self.stage = after or now
