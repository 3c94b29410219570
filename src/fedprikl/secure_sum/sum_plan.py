"""What all parties of one secure sum agree on before the first message."""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints, check_finite, check_open_unit, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum.masking import Ring, derive, stream_of
from fedprikl.secure_sum.shamir import PRIME

DEFAULT_FAILURE = 2.0**-40
NONCE_BYTES = 32
_DOMAIN = b"fedprikl/secure-sum/1/plan"


@dataclass(frozen=True, slots=True)
class Degree:
    """k neighbours per client, of whom any t open a secret and fewer learn nothing."""

    neighbours: int
    threshold: int


class Graph:
    """A random k-regular graph on the cohort, the same for everybody who knows the round.

    The clients stand in a circle in random order, and each is a neighbour of the k/2 nearest
    on either side (a circulant graph under a random permutation). The order sorts one 64-bit
    word of a ChaCha20 stream per client, so a client finds its own neighbours from the public
    plan alone; the aggregator has no say once the plan is fixed.
    """

    def __init__(self, clients: int, neighbours: int, round_id: bytes) -> None:
        self.clients = clients
        self.neighbours = neighbours
        self._complete = neighbours >= clients - 1
        if not self._complete:
            key = derive(round_id, salt=round_id, label=b"graph")
            words = np.frombuffer(stream_of(key, bytes(8 * clients)), dtype="<u8")
            self._order = np.argsort(words, kind="stable")
            self._place = np.empty(clients, dtype=np.int64)
            self._place[self._order] = np.arange(clients)
            side = np.arange(1, neighbours // 2 + 1)
            self._offsets = np.concatenate((-side, side))

    def of(self, client: int) -> frozenset[int]:
        """The neighbours of a client; the relation is symmetric."""
        if self._complete:
            return frozenset(range(self.clients)) - {client}
        places = (self._place[client] + self._offsets) % self.clients
        return frozenset(self._order[places].tolist())


@lru_cache(maxsize=256)
def choose_degree(
    clients: int,
    *,
    dropout: float,
    corruption: float,
    failure: float = DEFAULT_FAILURE,
    complete: bool = False,
) -> Degree:
    """The fewest neighbours k, and their threshold t, that keep a round private and alive.

    Let every client drop out with probability `dropout` (delta) at some step, and be
    corrupt, that is, tell the aggregator all it knows, with probability `corruption`
    (gamma), independently, because the cohort is a random draw from a large population and
    the graph a random order of it. Client i then has Bin(k, gamma) corrupt and Bin(k, delta)
    missing neighbours. Three things can go wrong, each with probability at most failure/3,
    by a union over the n clients:

    1. Secrets leak. Let c be the smallest number with n Pr[Bin(k, gamma) > c] <= failure/3.
       An aggregator may tell some neighbours that i is alive and others that it dropped, to get
       t shares of both of its secrets; honest neighbours give one share each and corrupt ones
       two, so it needs 2 t <= (k - c) + 2 c. We ask for 2 t > k + c.
    2. The round stalls. Let d be the smallest number with n Pr[Bin(k, delta) > d] <=
       failure/3. Everybody's secrets can be opened if t <= k - d.
    3. Honest survivors fall apart into groups whose sums would show separately. The aggregator
       says who is gone, and may tell everybody otherwise, but every client insists on t
       neighbours. Let v and w be next to each other among the
       members of two groups, and A and B the k/2 places from v towards w and from w towards
       v. What v and w count as neighbours differs, up to corrupt ones, wherever both look,
       and between them there is nobody else to count, so together they count at most
       k + corrupt(A) + corrupt(B) >= 2 t: A or B holds at least t - k/2 corrupt clients. A
       circle is cut in two places, so we ask for
       n (n-1)/2 * Pr[Bin(k/2, gamma) >= t - k/2]^2 <= failure/3.

    We take the smallest even k that allows all three, and the smallest t. A smaller cohort
    than that gets the complete graph, k = n - 1, where nothing is left to the draw of
    neighbours: the rates then are a promise about this cohort, with at most c = floor(gamma
    n) corrupt and d = floor(delta n) missing clients, and 1. and 2. must hold for those.
    `complete` asks for it whatever the size, and rounds c up: for cohorts whose places an adversary
    deals out, and whose noise is reckoned with as many colluders.
    """
    n = check_positive_int(clients, "clients")
    gamma, delta = _rate(corruption, "corruption"), _rate(dropout, "dropout")
    eta = check_open_unit(failure, "failure", "The default is 2^-40.") / 3
    for k in range(2, 2 if complete else n - 1, 2):
        if degree := _allowed(n, k, gamma, delta, eta):
            return degree
    corrupt = math.ceil(gamma * n) if complete else math.floor(gamma * n)
    k, missing = n - 1, math.floor(delta * n)
    threshold = (k + corrupt) // 2 + 1
    if n < 3 or threshold > k - missing:
        raise InvalidInputError(
            f"No threshold suits a cohort of {n} with {corrupt} corrupt and {missing} missing "
            "clients. Use a larger cohort (at least 3), or assume lower rates."
        )
    return Degree(k, threshold)


def _rate(value: float, name: str) -> float:
    rate = check_finite(value, name)
    if not 0 <= rate < 1:
        raise InvalidInputError(f"{name} must be a share of the clients in [0, 1), got {rate}.")
    return rate


def _allowed(n: int, k: int, gamma: float, delta: float, eta: float) -> Degree | None:
    """A degree with k neighbours, if some threshold meets all three conditions."""
    pairs, each = n * (n - 1) / 2, eta / n
    leak = (k + _bound(k, gamma, each)) // 2 + 1
    cut = k // 2 + _bound(k // 2, gamma, math.sqrt(eta / pairs)) + 1
    threshold = max(leak, cut)
    return Degree(k, threshold) if threshold <= k - _bound(k, delta, each) else None


def _bound(k: int, rate: float, rarely: float) -> int:
    """The smallest c with Pr[Bin(k, rate) > c] <= rarely.

    Every party finds the same one on every processor: only + - * / in a fixed order, which
    IEEE 754 rounds alike everywhere; a logarithm may differ in its last bit.
    """
    if rate == 0:
        return 0
    x: Ints = np.arange(k)
    rise = (k - x) / (x + 1) * (rate / (1 - rate))  # Pr[Bin = x + 1] / Pr[Bin = x]
    mode = min(int((k + 1) * rate), k)
    below = np.cumprod(1 / rise[:mode][::-1])[::-1]
    mass = np.concatenate((below, [1.0], np.cumprod(rise[mode:])))
    tail: Floats = np.cumsum(mass[::-1])[::-1]  # tail[x] / tail[0] = Pr[Bin >= x]
    rare = np.nonzero(tail <= rarely * tail[0])[0]
    return int(rare[0]) - 1 if len(rare) else k


@dataclass(frozen=True, slots=True, kw_only=True)
class SumPlan:
    """Everything the parties of one secure sum agree on beforehand. All of it is public.

    `round_id` is the SHA-256 of all of it and stands in every message: parties whose plans
    differ in anything reject each other's messages as foreign. A plan serves one round.
    """

    nonce: bytes  # 32 fresh random bytes; two sums never share one
    clients: int  # n, the cohort; clients are called 0 ... n-1
    neighbours: int  # k, n-1 for the complete graph, else even
    threshold: int  # t, shares that open a secret
    minimum: int  # fewest inputs that a sum may be made of
    maxima: tuple[int, ...]  # largest value a client may report, per entry
    roster: tuple[bytes, ...] = ()  # Ed25519 public keys of the clients, or none
    round_id: bytes = field(init=False)

    def __post_init__(self) -> None:
        for name in ("maxima", "roster"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name), name))
        numbers = (self.clients, self.neighbours, self.threshold, self.minimum, *self.maxima)
        if not all(type(number) is int for number in numbers):
            raise InvalidInputError("The sizes and maxima of a plan must be whole numbers (int).")
        self._check_cohort()
        self._check_bytes()
        self.ring()  # refuses maxima whose sums do not fit
        object.__setattr__(self, "round_id", hashlib.sha256(self._encode()).digest())

    def _check_cohort(self) -> None:
        n, k, t = self.clients, self.neighbours, self.threshold
        if not 3 <= n < PRIME:
            raise InvalidInputError(f"A cohort has 3 to {PRIME - 1} clients, got {n}.")
        if not 2 <= k <= n - 1 or (k < n - 1 and k % 2):
            raise InvalidInputError(
                f"{k} neighbours do not fit a cohort of {n}: use an even number of at least 2, "
                f"or {n - 1} for the complete graph."
            )
        if not k // 2 < t <= k:
            raise InvalidInputError(
                f"The threshold must be more than half of the {k} neighbours and at most all, "
                f"got {t}: with less, two disjoint groups could open both secrets of a client."
            )
        if not t < self.minimum <= n:
            raise InvalidInputError(
                f"The minimum must be from {t + 1} (threshold + 1) to {n} inputs, "
                f"got {self.minimum}."
            )

    def _check_bytes(self) -> None:
        if not isinstance(self.nonce, bytes) or len(self.nonce) != NONCE_BYTES:
            raise InvalidInputError(f"The nonce must be {NONCE_BYTES} fresh random bytes.")
        if self.roster and (
            any(not isinstance(key, bytes) or len(key) != 32 for key in self.roster)
            or len(set(self.roster)) != self.clients
            or len(self.roster) != self.clients
        ):
            raise InvalidInputError(
                f"The roster must hold {self.clients} different Ed25519 public keys of 32 bytes."
            )

    def _encode(self) -> bytes:
        numbers = (self.clients, self.neighbours, self.threshold, self.minimum, len(self.maxima))
        parts = [_DOMAIN, self.nonce]
        parts += [number.to_bytes(4, "little") for number in numbers]
        parts += [top.to_bytes(8, "little") for top in self.maxima]
        return b"".join(parts + [bytes(key) for key in self.roster])

    def ring(self) -> Ring:
        """The ring the sum lives in."""
        return _ring(self.maxima, self.clients)

    def graph(self) -> Graph:
        """Who is whose neighbour."""
        return _graph(self.clients, self.neighbours, self.round_id)


# The same for all clients of a sum, of whom one process may hold many.
_ring, _graph = lru_cache(maxsize=4)(Ring), lru_cache(maxsize=4)(Graph)


def _as_tuple(values: Sequence[Any], name: str) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InvalidInputError(f"The {name} of a plan must be a tuple or a list.") from None


def plan_sum(
    clients: int,
    maxima: Sequence[int],
    *,
    dropout: float = 0.1,
    corruption: float = 0.1,
    failure: float = DEFAULT_FAILURE,
    minimum: int | None = None,
    roster: Sequence[bytes] = (),
    randomness: Callable[[int], bytes] = os.urandom,
) -> SumPlan:
    """A fresh plan whose graph and threshold follow `choose_degree`."""
    n = check_positive_int(clients, "clients")
    degree = choose_degree(n, dropout=dropout, corruption=corruption, failure=failure)
    return SumPlan(
        nonce=randomness(NONCE_BYTES),
        clients=n,
        neighbours=degree.neighbours,
        threshold=degree.threshold,
        minimum=degree.threshold + 1 if minimum is None else minimum,
        maxima=tuple(
            check_positive_int(top, "a public maximum") for top in _as_tuple(maxima, "maxima")
        ),
        roster=_as_tuple(roster, "roster"),
    )
