"""The answer to one question of a plan."""

from dataclasses import dataclass

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of one divergence between the reference Pi and the records P of the clients.

    `value` estimates `target`, as D(Pi || (1 - s) P + s Pi) for a skew of s, and `interval` is
    its 95% interval; `guaranteed` covers for every population, not only for those that were tried.
    All account for the noise that `mechanism` names.  [alg:sys_tagg]
    `no_drift` is what the value would be on average if nothing had drifted: few records differ from
    Pi by chance.

    >>> answer = Answer(
    ...     divergence="kl",
    ...     value=0.5,
    ...     interval=(0.25, 0.75),
    ...     no_drift=0.125,
    ...     target="D(Pi || 0.01 Pi + 0.99 P)",
    ...     unit="nats",
    ...     mechanism="Laplace noise of scale 0.2693",
    ... )
    >>> answer.value, answer.no_drift
    (0.5, 0.125)
    """

    divergence: str  # its name
    value: float
    interval: tuple[float, float] | None  # 95%; None where it is not known
    guaranteed: tuple[float, float] | None = None  # 95% for every population, where it is known
    no_drift: float | None = None  # mean of the value without drift; None where it is not known
    target: str  # the divergence as a formula, smoothing included
    unit: str
    mechanism: str  # the noise, in words
