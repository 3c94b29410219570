"""What a secure sum costs: CPU, bytes, and where the time goes.

    python benchmarks/secure_sum.py [--json] [--quick]

All in one process, in CPU seconds, on vectors of 250 entries:

floor_ratio            100 clients, complete graph, t = 67: CPU of all clients and the
                       aggregator, over that of the 2 n (n-1) X25519 exchanges they need
floor_ratio_dropouts   the same when 10 clients leave before sending their input
floor_ratio_roster     the same with a roster: every advert is verified by every neighbour
flower_speedup         CPU of Flower's SecAgg+ primitives over ours, same clients, shares and
                       threshold; the smaller of 21 shares and the complete graph
growth                 CPU per client at n = 3,000 over that at n = 200 (the median of runs
                       before and after), on sparse graphs with k and t of `plan_sum`

The bars are 3, 4, none, 20 and 1.5. `--quick` leaves out the long runs (Flower's complete
graph, large cohorts), and then `growth` is null. Flower is an extra: install it with
`python -m pip install 'fedprikl[bench]'`; without it, `flower_speedup` is null. `notes` says
why something is null.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl.checks import Ints
from fedprikl.secure_sum import (
    SumAggregator,
    SumClient,
    SumPlan,
    plan_sum,
    sum_aggregator,
    sum_client,
)
from fedprikl.secure_sum import masking as masks
from fedprikl.secure_sum import sum_aggregator as unmasking
from fedprikl.secure_sum.masking import ClientKeys

ENTRIES, TOP = 250, 1000
FLOOR = (100, 99, 67)  # clients, neighbours and threshold of the comparison with the floor
SIZES, QUICK_SIZES = (10, 50, 100, 200, 500, 1000, 3000), (10, 50, 100, 200)
STEPS = ("advert", "shares", "input", "echo", "unmask")
BARS = {"floor_ratio": 3.0, "floor_ratio_dropouts": 4.0, "flower_speedup": 20.0, "growth": 1.5}
NOTES = {
    "flower_speedup": "flower_speedup is not measured: Flower is not installed; run "
    "python -m pip install 'fedprikl[bench]'",
    "growth": "growth is not measured: --quick leaves out the cohort of 3,000",
}


@dataclass
class Cost:
    """CPU seconds of the two roles, and bytes per client and step."""

    clients: float = 0.0
    aggregator: float = 0.0
    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> float:
        """CPU seconds of everybody."""
        return self.clients + self.aggregator


def note(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def make_plan(n: int, k: int, t: int, roster: tuple[bytes, ...] = ()) -> SumPlan:
    """A plan with a given degree."""
    return SumPlan(
        nonce=os.urandom(32),
        clients=n,
        neighbours=k,
        threshold=t,
        minimum=t + 1,
        maxima=(TOP,) * ENTRIES,
        roster=roster,
    )


def make_inputs(n: int) -> Ints:
    """Random vectors."""
    return np.random.default_rng(1).integers(0, TOP + 1, (n, ENTRIES), dtype=np.int64)


def run(
    plan: SumPlan, gone: frozenset[int] = frozenset(), identities: tuple[bytes, ...] = ()
) -> Cost:
    """One whole round; clients in `gone` leave before sending their input."""
    cost, inputs = Cost(), make_inputs(plan.clients)
    clock = time.process_time
    start = clock()
    clients = [
        SumClient(plan, i, os.urandom(32), identity=identities[i] if identities else None)
        for i in range(plan.clients)
    ]
    cost.clients += clock() - start
    start = clock()
    summing = SumAggregator(plan)
    cost.aggregator += clock() - start
    acts: list[Callable[[int, bytes], bytes]] = [
        lambda i, _: clients[i].advertise(),
        lambda i, message: clients[i].share_keys(message),
        lambda i, message: clients[i].mask_input(message, inputs[i]),
        lambda i, message: clients[i].echo(message),
        lambda i, message: clients[i].reveal(message),
    ]
    ends = [summing.send_keys, summing.send_shares, summing.send_survivors, summing.send_echoes]
    messages = dict.fromkeys(range(plan.clients), b"")
    for place, step in enumerate(STEPS):
        if step == "input":
            messages = {i: message for i, message in messages.items() if i not in gone}
        start = clock()
        answers = {i: acts[place](i, message) for i, message in messages.items()}
        cost.clients += clock() - start
        cost.up[step] = max(map(len, answers.values()))
        start = clock()
        for i, data in answers.items():
            summing.receive(i, data)
        messages = ends[place]() if place < 4 else {}
        cost.aggregator += clock() - start
        cost.down[step] = max(map(len, messages.values()), default=0)
    start = clock()
    result = summing.unmask()
    cost.aggregator += clock() - start
    if not np.array_equal(result.total, inputs[list(result.included)].sum(axis=0)):
        raise SystemExit("The secure sum is not the plain sum.")
    return cost


def floor_seconds(n: int) -> float:
    """CPU seconds of the 2 n (n-1) key exchanges of a complete graph, and nothing else."""
    privates = [X25519PrivateKey.generate() for _ in range(n)]
    publics = [private.public_key() for private in privates]
    start = time.process_time()
    for _ in range(2):
        for i, private in enumerate(privates):
            for j, public in enumerate(publics):
                if i != j:
                    private.exchange(public)
    return time.process_time() - start


def floor_ratios(repeats: int = 3) -> dict[str, float]:
    """Cost over floor, measured in turns; medians."""
    n = FLOOR[0]
    identities = tuple(os.urandom(32) for _ in range(n))
    keys = [ClientKeys.from_seed(bytes(32), round_id=b"", index=0, identity=x) for x in identities]
    roster = tuple(key.sign_key.public_key().public_bytes_raw() for key in keys)
    ratios: dict[str, list[float]] = {}
    for _ in range(repeats):
        cases = {
            "floor_ratio": run(make_plan(*FLOOR)),
            "floor_ratio_dropouts": run(make_plan(*FLOOR), frozenset(range(0, n, 10))),
            "floor_ratio_roster": run(make_plan(*FLOOR, roster), identities=identities),
        }
        floor = floor_seconds(n)
        for name, cost in cases.items():
            ratios.setdefault(name, []).append(cost.total / floor)
    return {name: statistics.median(values) for name, values in ratios.items()}


@contextmanager
def timed(spent: Counter[str]) -> Iterator[None]:
    """Adds up the time inside the protocol's building blocks."""
    places: list[tuple[Any, str, str]] = [
        (sum_client, "agree", "key agreement (X25519)"),
        (unmasking, "agree", "key agreement (X25519)"),
        (masks, "derive", "key derivation (HKDF)"),
        (masks, "stream_of", "mask streams (ChaCha20)"),
        (masks.Channel, "seal", "sealing shares"),
        (masks.Channel, "unseal", "sealing shares"),
        (masks.Channel, "tag", "echo tags"),
        (masks.Channel, "confirms", "echo tags"),
        (sum_client, "share", "secret sharing"),
        (unmasking, "reconstruct", "secret sharing"),
        (sum_client, "sign", "signatures (Ed25519)"),
        (sum_aggregator, "verify", "signatures (Ed25519)"),
    ]
    originals = [getattr(place, name) for place, name, _ in places]
    for (place, name, what), original in zip(places, originals, strict=True):
        setattr(place, name, _stopwatch(original, what, spent))
    try:
        yield
    finally:
        for (place, name, _), original in zip(places, originals, strict=True):
            setattr(place, name, original)


def _stopwatch(function: Callable[..., Any], what: str, spent: Counter[str]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[what] += time.perf_counter() - start  # type: ignore[assignment]

    return wrapped


def profile(plan: SumPlan) -> dict[str, float]:
    """The share of each building block in a round."""
    spent: Counter[str] = Counter()
    start = time.perf_counter()
    with timed(spent):
        run(plan)
    total = time.perf_counter() - start
    shares = {what: seconds / total for what, seconds in spent.most_common()}
    return {**shares, "the rest (Python, numpy, encoding)": 1 - sum(shares.values())}


def table(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Cost per client against the size of the cohort, with k and t as `plan_sum` chooses."""
    rows = []
    for n in sizes:
        note(f"a cohort of {n} ...")
        plan = plan_sum(n, (TOP,) * ENTRIES)
        cost = run(plan)
        rows.append(
            {
                "clients": n,
                "neighbours": plan.neighbours,
                "threshold": plan.threshold,
                "client_ms": 1000 * cost.clients / n,
                "aggregator_ms": 1000 * cost.aggregator / n,
                "bytes_up": {step: cost.up[step] for step in STEPS},
                "bytes_down": {step: cost.down[step] for step in STEPS[:-1]},
            }
        )
    return rows


def flower(quick: bool) -> list[dict[str, float]]:
    """CPU seconds of Flower's primitives and of ours, for the same shares and threshold."""
    try:
        from flower_secagg import flower_seconds
    except ImportError:
        return []
    rows = []
    for shares, threshold in ((21, 14),) if quick else ((21, 14), (100, 67)):
        note(f"Flower with {shares} shares ...")
        plan = make_plan(100, shares - 1, threshold)
        before = run(plan).total
        theirs = flower_seconds(make_inputs(100), shares, threshold)
        ours = statistics.median([before, run(plan).total, run(plan).total])
        rows.append({"shares": shares, "threshold": threshold, "flower_s": theirs, "ours_s": ours})
    return rows


def growth(rows: list[dict[str, Any]], small: int = 200, large: int = 3000) -> float | None:
    """CPU per client at n = 3,000 over that at n = 200, which is measured again afterwards."""
    cost = {row["clients"]: row["client_ms"] + row["aggregator_ms"] for row in rows}
    if not {small, large} <= cost.keys():
        return None
    again = [row["client_ms"] + row["aggregator_ms"] for row in table([small, small])]
    return float(cost[large] / statistics.median([cost[small], *again]))


def show(result: dict[str, Any]) -> None:
    """The result as tables."""
    print("CPU and bytes per client; entries of at most 1,000 in vectors of 250")
    print(f"{'n':>6}{'k':>5}{'t':>5}{'client ms':>11}{'aggr. ms':>10}  bytes up/down per step")
    for row in result["rows"]:
        up, down = row["bytes_up"], row["bytes_down"]
        steps = "  ".join(f"{step} {up[step]}/{down.get(step, 0)}" for step in STEPS)
        print(
            f"{row['clients']:>6}{row['neighbours']:>5}{row['threshold']:>5}"
            f"{row['client_ms']:>11.2f}{row['aggregator_ms']:>10.2f}  {steps}"
        )
    for name, case in (("profile", "100, complete graph"), ("profile_sparse", "200, sparse graph")):
        print(f"\nWhere the time goes (clients: {case})")
        for what, share in result[name].items():
            print(f"{100 * share:>6.1f} %  {what}")
    for row in result["flower"]:
        print(
            f"\nFlower, {row['shares']} shares: {row['flower_s']:.1f} s; ours {row['ours_s']:.2f} s"
        )
    print()
    for name in ("floor_ratio", "floor_ratio_dropouts", "floor_ratio_roster", *list(BARS)[2:]):
        value = "not measured" if result[name] is None else f"{result[name]:.2f}"
        bar = f"(bar: {BARS[name]:g})" if name in BARS else ""
        print(f"{name:<22}{value:>8} {bar}")
    for text in result["notes"]:
        print(text)


def measure(quick: bool) -> dict[str, Any]:
    """Everything, as one object."""
    note("the complete graph, and the floor ...")
    run(make_plan(10, 9, 6))  # warm up
    result: dict[str, Any] = floor_ratios()
    rows = table(QUICK_SIZES if quick else SIZES)
    result["profile"] = profile(make_plan(*FLOOR))
    result["profile_sparse"] = profile(plan_sum(2 * FLOOR[0], (TOP,) * ENTRIES))
    result["rows"], result["growth"], result["flower"] = rows, growth(rows), flower(quick)
    speedups = [row["flower_s"] / row["ours_s"] for row in result["flower"]]
    result["flower_speedup"] = min(speedups, default=None)
    result["notes"] = [text for name, text in NOTES.items() if result[name] is None]
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, then prints tables or one JSON object."""
    parser = argparse.ArgumentParser(description="What a secure sum costs.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="without the long runs")
    options = parser.parse_args(arguments)
    result = measure(options.quick)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
