"""How many records each client contributes where whole clients are protected: k.

A client that holds fewer fills up with records of the reference (`fedprikl.records.Draw`), which
tell nothing about drift. So k is what most clients hold, as far as anybody knows.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.planning.explain import Reason
from fedprikl.reference import ClientCounts, Reference

TRIED = 3  # numbers of records a client, each half of the one before
MOST = 1024  # of one client: more than these hardly differ
SHORT = 0.1  # the share of clients that may hold fewer than k, where the reference shows sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSizes:
    """What is known of how many records clients hold. Public.

    The reference's clients tell how unequal sizes are, unless they were made equal on purpose.
    """

    average: float
    relative: tuple[float, ...] = ()  # sizes in the reference over their mean; (): unknown
    typical: int | None = None  # what most clients hold at least, if the user said so

    @classmethod
    def of(cls, reference: Reference, average: float, typical: int | None = None) -> "ClientSizes":
        """Sizes as unequal as those of the reference's clients, if it has ids."""
        views = (reference.whole, *reference.views)
        known = [view.correlation for view in views if view.correlation is not None]
        relative: tuple[float, ...] = ()
        if known and known[0].size_variation:
            sizes = ClientCounts.read(known[0].held).sizes
            relative = tuple((sizes / sizes.mean()).tolist())
        found = cls(average=average, relative=relative, typical=typical)
        if typical is not None:
            found.at_most_average(typical, "typical_records")
        return found

    @property
    def known(self) -> bool:
        """Whether anything says what most clients hold."""
        return self.typical is not None or bool(self.relative)

    def numbers(self, asked: int | None = None) -> tuple[int, ...]:
        """Numbers of records worth trying, the largest first; only the one that is asked for.

        At most what most clients hold. Where nobody knows that, half of the average.

        >>> ClientSizes(average=112).numbers(), ClientSizes(average=112, typical=20).numbers()
        ((56, 28, 14), (20, 10, 5))
        >>> ClientSizes(average=112, relative=(0.1, 1.9)).numbers()
        (11, 5, 2)
        """
        if asked is not None and self.typical is not None:
            raise InvalidInputError(
                "`per_client` says how many records each client contributes, `typical_records` "
                "how many at most. Give one of them."
            )
        if asked is not None:
            return (self.at_most_average(asked, "per_client"),)
        largest = self.average / 2
        if self.typical is not None:
            largest = self.typical
        elif self.relative:
            held = float(np.quantile(self.relative, SHORT, method="lower"))
            largest = min(largest, self.average * held)
        return tuple(
            sorted({max(1, min(MOST, int(largest)) >> i) for i in range(TRIED)}, reverse=True)
        )

    def at_most_average(self, number: int, name: str) -> int:
        """Refuses more records than a client holds on average, before a plan takes minutes.

        >>> ClientSizes(average=60.0).at_most_average(20, "per_client")
        20
        """
        if check_positive_int(number, name) > (most := max(1, math.ceil(self.average))):
            option = name.replace("_", "-")
            raise InvalidInputError(
                f"Every client would contribute {number:,} records, and holds {most:,} on average: "
                "records of the reference would fill up what is missing, and they tell nothing. "
                f"Use at most {most:,} (--{option}; in Python: {name}), or leave it out for the "
                "best number."
            )
        return number

    def reason(self, number: int) -> Reason:
        """Why each client contributes so many records, and how many clients have to fill up."""
        why = f"clients hold {self.average:.3g} on average"
        if self.typical is not None:
            why = f"most clients hold at least {self.typical:,}, as was said"
        if not self.relative:
            why += "; how many hold fewer, and fill up with records of the reference, is not known"
        else:
            short = float(np.mean(self.average * np.array(self.relative) < number))
            why += (
                f"; about {100 * short:.2g}% hold fewer, if sizes vary as in the reference: they "
                "fill up with its records, so a drift looks smaller by that share at most"
            )
        return Reason("per_client", f"{number:,}", why)
