"""The audit of three servers, of which one is corrupt: it knows its shares and its own noise.

Two neighbouring data sets are made up and shared, and the servers compute on the shares what they
release. What the corrupt one does not know is left as noise: all that the servers draw together,
and of Gaussian noise the shares of the two others. That noise is drawn thousands of times, by the
code of the servers themselves.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedprikl.audit.attacks import (
    DRAWS,
    Additive,
    Asked,
    Attack,
    Claim,
    account_of,
    additive_attack,
)
from fedprikl.checks import Floats, Ints
from fedprikl.privacy import NoiseSource, ServersNoise, SharedCounts, laplace_variance
from fedprikl.privacy.shares import SharedGaussianMechanism
from fedprikl.protocol.answering import places_of
from fedprikl.protocol.server_answer import ServersAnswer, answer, laplace_noise
from fedprikl.protocol.sums import FINE, QuestionNoise, ServersSum, servers_law
from fedprikl.reference import QueryPoints
from fedprikl.secure_sum.line_runtime import LineRuntime, compute_together, in_memory
from fedprikl.secure_sum.line_shares import SERVERS, expand, restore, split

OTHERS = len(SERVERS) - 1  # servers whose noise the corrupt one does not know
TOGETHER = 6_000  # numbers whose noise the servers draw together; some seconds
Pair = tuple[Ints, Ints]  # counts of a view in either data set


def servers_attacks(
    trust: ServersSum,
    points: Sequence[QueryPoints],
    source: NoiseSource,
    *,
    records: int,
    pair: Callable[[QuestionNoise, int], Pair],
    name: Callable[[QuestionNoise], str],
) -> Iterator[tuple[Claim, Attack | None]]:
    """One for each noise, which may cost its share of the plan's epsilon and delta.

    `pair` has the counts of a view in either data set of so many records.
    """
    budget, asked = trust.plan.budget, ServersAnswer(trust, points)
    for place, noise in enumerate(trust.noises):
        share = math.fsum(each.share for each in noise.questions)
        whole_epsilon = budget.epsilon * budget.parts
        claim = Claim(name(noise), share * whole_epsilon, share * budget.delta)
        views = {i: pair(noise, i) for i in places_of(trust.plan, noise)}
        sides = [
            _numbers(asked, place, {i: both[side] for i, both in views.items()}, records, source)
            for side in (0, 1)
        ]
        unit = 1.0 if noise.is_counts else (1 - noise.questions[0].skew) / (FINE * records)
        left, right = (_hidden(servers_law(noise), values, unit, source) for values in sides)
        made = additive_attack([left], [right])
        yield claim, made and _with_account(made, servers_law(noise), unit)


def _numbers(
    asked: ServersAnswer, place: int, counts: Mapping[int, Ints], records: int, source: NoiseSource
) -> Floats:
    """What the servers compute of a data set for one noise, without any noise."""
    blocks = []
    for i, view in enumerate(asked.points):
        held = counts.get(i, np.zeros(len(view), np.int64))
        blocks.append(np.append(held, records - held.sum()))
    total, seed = np.concatenate([*blocks, [records]]).astype(np.int64), os.urandom(32)
    shares = dict(zip(SERVERS, (expand(seed, len(total)), *split(total, seed)), strict=True))
    nothing = np.zeros(len(asked.draw_noise(source)), np.int64)
    clients = math.ceil(records / asked.trust.plan.contribution_bound)
    found = compute_together(
        {
            n: answer(
                LineRuntime(n, in_memory),
                asked,
                share,
                included=clients,
                source=source,
                noise=nothing,
            )
            for n, share in shares.items()
        }
    )[1]
    values, released = iter(found.values), iter(found.counts)
    for number, noise in enumerate(asked.noises):
        views = len(places_of(asked.trust.plan, noise))
        own = [next(released) for _ in range(views)] if noise.is_counts else [next(values)]
        if number == place:
            break
    return np.concatenate(own)


def _hidden(law: ServersNoise, values: Floats, unit: float, source: NoiseSource) -> Asked:
    """The noise that the corrupt server does not know."""
    joint = law.joint
    if joint is not None:

        def together(exact: Floats) -> Floats:
            servers = {
                n: laplace_noise(LineRuntime(n, in_memory), joint, len(exact)) for n in SERVERS
            }
            return np.asarray(exact + unit * restore(compute_together(servers)))

        variance = unit**2 * laplace_variance(joint.scale)
        return Asked(values, together, unit * joint.scale, variance, whole=unit == 1)
    shared = law.noise.shared

    def of_others(exact: Floats) -> Floats:
        drawn = sum(shared.draw_share(len(exact), source) for _ in range(OTHERS))
        return np.asarray(exact + unit * drawn)

    variance = unit**2 * OTHERS * shared.share_variance
    return Asked(values, of_others, unit * shared.sigma, variance, gaussian=True, whole=unit == 1)


def _with_account(made: Additive, law: ServersNoise, unit: float) -> Additive:
    """The attack with the account of shares, where noise is in shares."""
    if law.joint is not None:
        return replace(made, budget=TOGETHER)

    def account(attack: Additive, factor: float, delta: float) -> float:
        shifts = np.abs(attack.right - attack.left) / unit
        if factor == math.inf:
            return account_of(attack, factor, delta)
        on = SharedCounts(OTHERS, len(shifts), round(float(shifts.max())))
        return SharedGaussianMechanism(on=on, sigma=factor * law.noise.shared.sigma).epsilon(delta)

    return replace(made, account=account, budget=DRAWS // 4)
