"""The privacy statement: what a release protects, in words and numbers that are true."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any

from fedprikl.documents import read_fields
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.charges import Unit, check_unit

ONE = "one number"
# What became of rows without an id, where the clients are the ids of one table. It must not depend
# on whether there were any.
NO_CLIENT = {
    "": "",
    "drop": "Rows without an id were dropped.",
    "one-each": "Each row without an id was a client of its own.",
    "refuse": "A row without an id would have stopped the release.",
}
SEVERAL = 1.5  # records a client, from which on the unit matters


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """The (epsilon, delta) a release truly has, beside the one it claims.

    The guarantee is differential privacy under substitution. Two data sets are neighbours if one
    record of one client is replaced by any other record (unit "record"), or if all that one client
    holds is replaced (unit "client": then every client contributes `per_client` drawn records). For
    every two of them and every set S of outcomes,

        P(M(D) in S) <= e^epsilon P(M(D') in S) + delta                              [def:DP]

    >>> statement = PrivacyStatement(
    ...     epsilon=24.4,
    ...     delta=1e-6,
    ...     claimed_epsilon=1.0,
    ...     mechanism="the noise printed in the paper",
    ...     released="one number",
    ...     trust="the aggregator.",
    ... )
    >>> statement.holds
    False
    >>> statement.verdict
    'The claimed epsilon of 1 is FALSE: this noise gives 24.4 (delta 1e-06).'
    """

    epsilon: float  # true; infinite without noise
    delta: float
    claimed_epsilon: float | None  # None: no privacy is claimed
    mechanism: str
    released: str
    trust: str
    sensitivity: float | None = None
    insecure: bool = False  # made with a seeded, insecure noise source
    unit: Unit = "record"  # who is protected
    per_client: int | None = None  # records that each client contributed, if clients are protected
    away: bool = False  # whether clients without records stay away, so that this is seen
    held: float | None = None  # records that a client contributed on average, if records are
    counted: int | None = None  # of a series: how many of its releases count one record
    series_epsilon: float | None = None  # that they give together
    series_delta: float | None = None
    no_client: str = ""  # a key of `NO_CLIENT`: clients are the ids of one table

    def __post_init__(self) -> None:
        known = {each is None for each in (self.counted, self.series_epsilon, self.series_delta)}
        if len(known) > 1:
            raise InvalidInputError("A statement on a series says what its releases give together.")
        if (check_unit(self.unit) == "client") is not (self.per_client is not None):
            raise InvalidInputError("A statement on clients says how many records each gave.")
        if self.no_client not in NO_CLIENT:
            raise InvalidInputError("A statement says what became of rows without an id.")
        if self.away and self.unit == "record":
            raise InvalidInputError("Only where clients are protected may one stay away.")

    @property
    def holds(self) -> bool:
        """Whether what is claimed is true."""
        if self.claimed_epsilon is None:
            return True
        return not self.insecure and self.epsilon <= self.claimed_epsilon

    @property
    def verdict(self) -> str:
        """One line."""
        if self.claimed_epsilon is None:
            return "No privacy is claimed and none is given."
        if self.insecure:
            return "INSECURE: seeded noise for simulations only; this result is not private."
        if not self.holds:
            return (
                f"The claimed epsilon of {self.claimed_epsilon:g} is FALSE: "
                f"this noise gives {self.epsilon:.3g} (delta {self.delta:g})."
            )
        return f"epsilon {self.claimed_epsilon:g}, delta {self.delta:g}: proved for every data set."

    def __str__(self) -> str:
        lines = [self.verdict, f"Released: {self.released}, with {self.mechanism}."]
        if math.isfinite(self.epsilon):
            lines += [self._protected, self._unprotected]
        if self.counted is not None:
            lines.append(self._over_the_series)
        if self.no_client:
            lines.append(f"Clients: the ids of one table. {NO_CLIENT[self.no_client]}")
        lines.append(f"Trusted: {self.trust} All parties follow the protocol (honest but curious).")
        return "\n".join(lines)

    @property
    def _protected(self) -> str:
        """Whom it protects, and how well."""
        replaced = "Protected: one record. Replacing any one record of any client by any other"
        if self.unit == "client":
            some = " (but not by none)" if self.away else ""
            replaced = (
                "Protected: one client, with all the records it holds, however many. Replacing "
                f"all of them by any others{some}"
            )
        slack = f", plus at most {self.delta:g}." if self.delta else "."
        return (
            f"{replaced} makes no outcome more likely than by a factor of "
            f"e^{self.epsilon:.3g} = {_power(self.epsilon)}{slack}"
        )

    @property
    def _unprotected(self) -> str:
        """Whom it does not protect as well."""
        if self.unit == "client":
            drawn = f"Each client contributed exactly {self.per_client:,} records, drawn at random"
            if self.away:
                return (
                    f"{drawn} from its own and, if they are too few, from the reference. Not "
                    "protected: who takes part, and whether a client has any records. Those that "
                    "have none stay away, so the number of records tells how many have."
                )
            return (
                f"{drawn} from its own and, if they are too few, from the reference, so the number "
                "of records tells nothing about any client. Not protected: who takes part."
            )
        more = " and more than k times delta" if self.delta else ""
        warning = ""
        if self.held is not None and self.held >= SEVERAL:
            held = round(self.held)
            warning = (
                f" Clients held {held:,} records on average: a client with {held:,} records is "
                f"protected to epsilon {held * self.epsilon:.3g} only. To protect whole clients, "
                "plan with --unit client."
            )
        return (
            "Not protected to that degree: all records of one client together (k records: k "
            f"times epsilon{more}), the number of records, and who takes part.{warning}"
        )

    @property
    def _over_the_series(self) -> str:
        """What all releases of the series together protect."""
        if self.unit == "client":
            return (
                f"Over the whole series: each client is counted in up to {self.counted} releases, "
                f"which together give epsilon {self.series_epsilon:g}, delta "
                f"{self.series_delta:g} to all it ever holds."
            )
        together = (
            "each record is counted in one release, so the same holds for all releases together."
            if self.counted == 1
            else f"each record is counted in up to {self.counted} releases, which together give "
            f"epsilon {self.series_epsilon:g}, delta {self.series_delta:g}."
        )
        return (
            f"Over the whole series: {together} The period that a record falls into, if any, "
            "counts as public, like the number of records."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon becomes None."""
        stated = {each.name: getattr(self, each.name) for each in fields(self)}
        epsilon = stated.pop("epsilon")
        return stated | {
            "true_epsilon": epsilon if math.isfinite(epsilon) else None,
            "holds": self.holds,
            "statement": str(self),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "PrivacyStatement":
        """The statement whose numbers a document holds; what follows from them is passed over."""
        epsilon = document["true_epsilon"]
        found = read_fields(cls, document | {"epsilon": 0.0 if epsilon is None else epsilon})
        return replace(found, epsilon=math.inf) if epsilon is None else found


def compose_statements(
    parts: Sequence[PrivacyStatement], *, claimed_epsilon: float
) -> PrivacyStatement:
    """The statement on a release with the noise of all parts: epsilons and deltas are added.

    >>> tv, kl = (
    ...     PrivacyStatement(
    ...         epsilon=share,
    ...         delta=0.0,
    ...         claimed_epsilon=share,
    ...         mechanism=f"Laplace noise of scale {0.01 / share:g}",
    ...         released="one number",
    ...         trust="the aggregator.",
    ...     )
    ...     for share in (0.25, 0.75)
    ... )
    >>> both = compose_statements([tv, kl], claimed_epsilon=1.0)
    >>> both.epsilon, both.released, both.holds
    (1.0, '2 numbers', True)
    """
    if len(parts) == 1:
        return replace(parts[0], claimed_epsilon=claimed_epsilon)
    numbers = sum(part.released == ONE for part in parts)
    released = [part.released for part in parts if part.released != ONE]
    if numbers:
        released.insert(0, ONE if numbers == 1 else f"{numbers} numbers")
    return replace(
        parts[0],
        epsilon=math.fsum(part.epsilon for part in parts),
        delta=math.fsum(part.delta for part in parts),
        claimed_epsilon=claimed_epsilon,
        mechanism=" and ".join(part.mechanism for part in parts),
        released=" and ".join(released),
        sensitivity=None,
        insecure=any(part.insecure for part in parts),
    )


def _power(epsilon: float) -> str:
    """Readers compare these words: decimals round alike on every processor, `math.exp` need not."""
    return f"{float(Decimal(epsilon).exp()):.3g}" if epsilon < 700 else "more than 1e304"
