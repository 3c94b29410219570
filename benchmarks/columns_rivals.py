"""Verdicts on columns without privacy, on the raw data of the same populations.

`chi-square, Bonferroni` is the best that a textbook offers: a two-sample test of each column, at a
false-alarm rate of 1% over all. Evidently's tests have its own defaults, column by column.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from columns_default import Default
from columns_measures import Effort, plans_for
from columns_worlds import KINDS, World, drifts
from false_alarms import records_of
from power_worlds import clients_of, generator
from scipy import stats

from fedprikl.checks import Ints

COLUMNS, RECORDS, EPSILON, FALSE_ALARM = 20, 40_295, 1.0, 0.01
NATS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)
METHODS = ("default", "chisquare", "psi", "kl_div")
PER_REFERENCE = 5
MISSING = "evidently is not installed: python -m pip install 'fedprikl[drift]'"
Verdict = Callable[[Ints, Ints], bool]  # counts of the reference, counts of a population


def rivals(notes: list[str]) -> dict[str, Verdict]:
    """By name; evidently's only where it is installed."""
    found: dict[str, Verdict] = {"chi-square, Bonferroni": chi_square}
    try:
        import evidently_drift
    except ImportError:
        notes.append(MISSING)
        return found
    import pandas as pd

    def verdict(method: str) -> Verdict:
        return lambda known, seen: evidently_drift.score(
            pd.Series(records_of(known)), pd.Series(records_of(seen)), method
        )[1]

    def agree() -> bool:
        known, seen = np.array([3000, 2000, 1000]), np.array([2900, 2050, 1050])
        return all(
            evidently_drift.agrees(records_of(known), records_of(seen), method)
            for method in METHODS
        )

    if not agree():
        notes.append("evidently's report differs from its tests")
    return found | {f"evidently {method}": verdict(method) for method in METHODS}


def chi_square(known: Ints, seen: Ints) -> bool:
    """Of two samples, at the rate of one of all columns."""
    return bool(stats.chi2_contingency(np.stack([known, seen])).pvalue < FALSE_ALARM / COLUMNS)


def measure_rivals(effort: Effort, world: str, notes: list[str]) -> list[dict[str, Any]]:
    """For each method and size of drift: recall, false alarms, and agreement with ours."""
    plan = plans_for(effort, world, COLUMNS, RECORDS, EPSILON)["aggregator"]
    methods, rows = rivals(notes), []
    for nats in NATS:
        ours: list[bool] = []
        theirs: dict[str, list[bool]] = {name: [] for name in methods}
        drifted: list[bool] = []
        for number in range(max(1, effort.raw // PER_REFERENCE)):
            rng = generator(effort.seed, "rivals", world, nats, number)
            truth = World.draw(world, COLUMNS, rng)
            views = truth.views(rng)
            kinds = [("none", *KINDS)[(number + j) % 4] for j in range(COLUMNS)]
            ratios = drifts(truth.pi, kinds, nats, effort.seed + number)
            held = truth.populations(min(PER_REFERENCE, effort.raw), RECORDS, ratios, rng)
            default = Default(plan, views, clients_of(RECORDS), RECORDS)
            ours += default.flags(held, default.noisy(held, rng), rng).ravel().tolist()
            drifted += [kind != "none" for kind in kinds] * len(held)
            known = [view.mass[:-1].astype(np.int64) for view in views]
            for name, verdict in methods.items():
                theirs[name] += [
                    verdict(*pair) for one in held for pair in zip(known, one, strict=True)
                ]
        rows += _rows(world, nats, np.array(drifted), np.array(ours), theirs)
    return rows


def _rows(
    world: str, nats: float, drifted: Any, ours: Any, theirs: dict[str, list[bool]]
) -> list[dict[str, Any]]:
    rows = []
    for name, found in theirs.items():
        flags = np.array(found)
        rows.append(
            {
                "world": world,
                "epsilon": EPSILON,
                "drift": nats,
                "method": name,
                "agreement": float(np.mean(flags == ours)),
                "recall": float(flags[drifted].mean()),
                "false_alarms": float(flags[~drifted].mean()),
                "misses": int(np.sum(~flags & drifted)),
                "our_recall": float(ours[drifted].mean()),
                "our_false_alarms": float(ours[~drifted].mean()),
                "our_misses": int(np.sum(~ours & drifted)),
                "found_by_them_alone": int(np.sum(flags & ~ours & drifted)),
                "found_by_us_alone": int(np.sum(~flags & ours & drifted)),
                "drifted_columns": int(drifted.sum()),
                "calm_columns": int((~drifted).sum()),
            }
        )
    return rows
