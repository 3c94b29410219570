"""Look first, then choose: a rough number says which noise the number itself gets. Pure privacy."""

from dataclasses import dataclass

from fedprikl.checks import check_epsilon, check_finite, check_open_unit
from fedprikl.privacy.adaptive import InverseSensitivityMechanism
from fedprikl.privacy.charges import Charge, PureLoss, register_charge, share_out
from fedprikl.privacy.laws import Calibrated, Numbers


@register_charge("looked")
@dataclass(frozen=True, slots=True, kw_only=True)
class LookedMechanism(Charge):
    """Two numbers, look and value, about the same f(x).

        look  = f(x) with adaptive noise of e_1 = share epsilon
        value = f(x) with noise of e_2 = epsilon - e_1: Laplace if look > switch, else adaptive

    Adaptive noise is the smaller where few records matter, Laplace noise where one may matter much.
    The pair is epsilon-private, whatever is seen:

        P(look, value | x) = P(look | x) P(value | look, x)                   for every x, and
        P(look | x) <= e^e_1 P(look | x'), since adaptive noise is pure;      for neighbours x, x',
        P(value | look, x) <= e^e_2 P(value | look, x'), since the look alone, which is the same on
        both sides, says which of two mechanisms draws the value, and both are e_2-private.
        So the product changes by a factor of at most e^(e_1 + e_2) <= e^epsilon.

    Nothing but this bound is charged: `PureLoss`, the worst loss that has it.

    >>> mechanism = LookedMechanism(epsilon=1.0, share=0.1, switch=0.3)
    >>> print(mechanism.rest(0.2), mechanism.rest(0.4).charge, sep="; ")
    adaptive noise (inverse sensitivity mechanism), epsilon 0.9; Laplace noise of scale 1.111
    """

    epsilon: float  # of both numbers together
    share: float  # of epsilon, for the look
    switch: float  # the largest look that adaptive noise follows

    @property
    def look(self) -> InverseSensitivityMechanism:
        """The noise of the look."""
        return InverseSensitivityMechanism(epsilon=self._epsilons[0])

    @property
    def small(self) -> InverseSensitivityMechanism:
        """The noise of the value after a look up to the switch."""
        return InverseSensitivityMechanism(epsilon=self._epsilons[1])

    @property
    def large(self) -> Calibrated:
        """The noise of the value after a look above the switch."""
        return Calibrated(Numbers(), self._epsilons[1], 0.0, "laplace")

    def rest(self, look: float) -> Calibrated | InverseSensitivityMechanism:
        """The noise of the value, after what was released as the look."""
        return self.large if look > self.switch else self.small

    @property
    def _epsilons(self) -> tuple[float, ...]:
        """Of the look and of the value; their sum is at most epsilon, whatever the rounding."""
        return share_out(self.epsilon, (self.share, 1 - self.share))

    @property
    def loss(self) -> PureLoss:
        """What the accountant composes."""
        return PureLoss(self.epsilon)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_epsilon(self.epsilon)
        check_open_unit(self.share, "share", "Use 0.12 for a look with an eighth of the budget.")
        check_finite(self.switch, "switch")

    def __str__(self) -> str:
        look, rest = self._epsilons
        return (
            f"adaptive noise of epsilon {look:.4g} on a look, then noise of epsilon {rest:.4g}: "
            f"Laplace above {self.switch:.4g}, else adaptive"
        )
