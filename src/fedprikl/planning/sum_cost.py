"""What the secure sums of a plan cost."""

from dataclasses import dataclass

from fedprikl.secure_sum import SumPlan

__all__ = ["SumCost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumCost:
    """What the secure sums cost. Bytes are exact up to some fixed headers."""

    cohorts: int
    clients: int  # of the largest cohort
    neighbours: int  # key agreements of each client
    masked_bytes: int  # the counts themselves
    sent_bytes: int  # by one client in all
    received_bytes: int

    @classmethod
    def of(cls, sums: SumPlan, cohorts: int) -> "SumCost":
        """Per neighbour: 92 bytes of sealed shares, 20 of a tag, 40 of revealed shares sent, and
        164 of keys, 92 and 20 received (docs/secure-sum.md).
        """
        packed = sums.ring().packed_bytes
        return cls(
            cohorts=cohorts,
            clients=sums.clients,
            neighbours=sums.neighbours,
            masked_bytes=packed,
            sent_bytes=152 * sums.neighbours + packed,
            received_bytes=276 * sums.neighbours,
        )

    def to_dict(self) -> dict[str, int]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}
