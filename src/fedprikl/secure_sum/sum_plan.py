"""What all parties of one secure sum agree on before the first message."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum.graph import DEFAULT_FAILURE, Graph, choose_degree
from fedprikl.secure_sum.ring import Ring
from fedprikl.secure_sum.shamir import PRIME

__all__ = ["NONCE_BYTES", "SumPlan", "plan_sum"]

NONCE_BYTES = 32
_DOMAIN = b"fedprikl/secure-sum/1/plan"


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
        Ring.for_sum(self.maxima, self.clients)
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
        return Ring.for_sum(self.maxima, self.clients)

    def graph(self) -> Graph:
        """Who is whose neighbour."""
        return Graph(self.clients, self.neighbours, self.round_id)


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
    active: bool = True,
    minimum: int | None = None,
    roster: Sequence[bytes] = (),
    randomness: Callable[[int], bytes] = os.urandom,
) -> SumPlan:
    """A fresh plan whose graph and threshold follow `choose_degree`."""
    n = check_positive_int(clients, "clients")
    degree = choose_degree(
        n, dropout=dropout, corruption=corruption, failure=failure, active=active
    )
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
