"""False alarms where clients of very unequal size are protected as a whole.

Sizes are lognormal, about 100 records on average; nothing drifted. The plan is the planner's own,
with the number k of records that it chooses, or with half of the average. `filled`: what clients
hold too few of is drawn from the reference, as `fedprikl.records.Draw` does. `repeated`: how often
the same verdict alarms if such clients repeat their records, which it does not allow for.

`dirichlet`: a client's records are correlated, P_i ~ Dirichlet(20 Pi), and the reference has the
ids of 1,000 clients with sizes of the same kind. Else a client's records are unrelated, and the
reference has a million without ids.
"""

from typing import Any

import numpy as np
from power_default import Default
from power_worlds import domain, generator
from scipy import stats

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.protocol.plan import Trust
from fedprikl.records.counting import draw_reference

CLIENTS, AVERAGE, CELLS, EPSILON = 2000, 100, 30, 1.0
PUBLIC, PUBLIC_CLIENTS, CONCENTRATION = 10**6, 1000, 20.0
Row = dict[str, Any]


def lognormal_sizes(spread: float, clients: int, rng: np.random.Generator) -> Ints:
    """Records of each client, at least one: lognormal with the mean `AVERAGE`."""
    sizes = AVERAGE * rng.lognormal(-(spread**2) / 2, spread, clients)
    return np.ceil(sizes).astype(np.int64)


def client_counts(pi: Floats, sizes: Ints, dirichlet: bool, rng: np.random.Generator) -> Ints:
    """Records per client and cell, without drift. Some of them, drawn at random, are the same."""
    law = rng.dirichlet(CONCENTRATION * pi, len(sizes)) if dirichlet else pi
    return np.asarray(rng.multinomial(sizes, law))


def filled(own: Ints, k: int, reference: fk.Reference, rng: np.random.Generator) -> Ints:
    """The counts of all clients: what each has of k records, and the reference's for the rest."""
    missing = k * len(own) - int(own.sum())
    return np.append(own.sum(axis=0), 0) + draw_reference(reference, missing, rng.bytes)[0]


def repeated(own: Ints, k: int, rng: np.random.Generator) -> Ints:
    """The same if each is there floor(k / r) times, and k mod r of them once more."""
    times, more = np.divmod(k, own.sum(axis=1))
    found = (times[:, None] * own).sum(axis=0)
    for row, number in zip(own[more > 0], more[more > 0], strict=True):
        found += rng.multivariate_hypergeometric(row, number)
    return np.append(found, 0)


def measure_sizes(
    spread: float,
    trust: Trust,
    dirichlet: bool,
    per_client: int | None,
    seed: int,
    references: int,
    populations: int,
) -> list[Row]:
    """How often drift is found in populations without any; as many of each of some references.

    `per_client` is k; None: what the planner chooses.
    """
    pi = domain("lognormal", CELLS, seed)
    alarms, short, drawn = np.zeros(2, np.int64), [], []
    for number in range(references):
        rng = generator(seed, "sizes", spread, trust, dirichlet, per_client, number)
        counts = rng.multinomial(PUBLIC, pi)
        if dirichlet:
            counts = client_counts(pi, lognormal_sizes(spread, PUBLIC_CLIENTS, rng), True, rng)
        plan = Default(
            fk.Reference.from_counts(counts),
            clients=CLIENTS,
            records=CLIENTS * AVERAGE,
            epsilon=EPSILON,
            trust=trust,
            unit="client",
            per_client=per_client,
        )
        k = plan.plan.contribution_bound
        counted = np.zeros((2, populations, CELLS + 1), np.int64)
        for population in range(populations):
            sizes = lognormal_sizes(spread, CLIENTS, rng)
            own = client_counts(pi, np.minimum(sizes, k), dirichlet, rng)
            counted[0, population] = filled(own, k, plan.reference, rng)
            counted[1, population] = repeated(own, k, rng)
            short.append(np.mean(sizes < k))
        drawn.append(k)
        alarms += [np.count_nonzero(plan.flags(each, rng)) for each in counted]
    rounds = references * populations
    return [
        {
            "sizes": f"lognormal({spread:g})",
            "records": "dirichlet, with ids" if dirichlet else "unrelated",
            "trust": trust,
            "chosen": per_client is None,
            "k": sorted(set(drawn)),
            "short": float(np.mean(short)),
            "populations": rounds,
            "references": references,
            "false_alarms": int(alarms[0]),
            "rate": float(alarms[0] / rounds),
            "upper": float(stats.beta.ppf(0.99, alarms[0] + 1, rounds - alarms[0])),
            "repeated": int(alarms[1]),
        }
    ]
