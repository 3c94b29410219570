"""What a secure sum costs: CPU, bytes, and where the time goes.

    python benchmarks/secure_sum.py [--json] [--quick]

All in one process, in CPU seconds, on vectors of 250 entries:

floor_ratio            100 clients, complete graph, t = 67: CPU of all clients and the
                       aggregator, over that of the 2 n (n-1) X25519 exchanges they need
floor_ratio_dropouts   the same when 10 clients leave before sending their input
floor_ratio_roster     the same with a roster: every advert is verified by every neighbour
flower_speedup         CPU of Flower's SecAgg+ primitives over ours, same clients, shares and
                       threshold; the smaller of 21 shares and the complete graph
growth                 CPU per client at n = 3,000 over that at n = 200, on sparse graphs
                       with k and t as `plan_sum` chooses them

The bars are 3, 4, none, 20 and 1.5. `--quick` leaves out the long runs (Flower's complete
graph, large cohorts), and then `growth` is null. Flower is an extra: install it with
`python -m pip install 'fedprikl[bench]'`; without it, `flower_speedup` is null.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
    aggregator,
    channel,
    client,
    masks,
    plan_sum,
    unmasking,
)
from fedprikl.secure_sum.keys import ClientKeys

ENTRIES, TOP = 250, 1000
STEPS = ("advert", "shares", "input", "echo", "unmask")
BARS = {"floor_ratio": 3.0, "floor_ratio_dropouts": 4.0, "flower_speedup": 20.0, "growth": 1.5}


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
        lambda i, letter: clients[i].share_keys(letter),
        lambda i, letter: clients[i].mask_input(letter, inputs[i]),
        lambda i, letter: clients[i].echo(letter),
        lambda i, letter: clients[i].reveal(letter),
    ]
    ends = [summing.send_keys, summing.send_shares, summing.send_survivors, summing.send_echoes]
    letters = dict.fromkeys(range(plan.clients), b"")
    for place, step in enumerate(STEPS):
        if step == "input":
            letters = {i: letter for i, letter in letters.items() if i not in gone}
        start = clock()
        answers = {i: acts[place](i, letter) for i, letter in letters.items()}
        cost.clients += clock() - start
        cost.up[step] = max(map(len, answers.values()))
        start = clock()
        for i, data in answers.items():
            summing.receive(i, data)
        letters = ends[place]() if place < 4 else {}
        cost.aggregator += clock() - start
        cost.down[step] = max(map(len, letters.values()), default=0)
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
    identities = tuple(os.urandom(32) for _ in range(100))
    keys = [ClientKeys.from_seed(bytes(32), round_id=b"", index=0, identity=x) for x in identities]
    roster = tuple(key.sign_key.public_key().public_bytes_raw() for key in keys)
    ratios: dict[str, list[float]] = {}
    for _ in range(repeats):
        cases = {
            "floor_ratio": run(make_plan(100, 99, 67)),
            "floor_ratio_dropouts": run(make_plan(100, 99, 67), frozenset(range(0, 100, 10))),
            "floor_ratio_roster": run(make_plan(100, 99, 67, roster), identities=identities),
        }
        floor = floor_seconds(100)
        for name, cost in cases.items():
            ratios.setdefault(name, []).append(cost.total / floor)
    return {name: statistics.median(values) for name, values in ratios.items()}


@contextmanager
def timed(spent: Counter[str]) -> Iterator[None]:
    """Adds up the time inside the protocol's building blocks."""
    places: list[tuple[Any, str, str]] = [
        (channel, "agree", "key agreement (X25519)"),
        (client, "agree", "key agreement (X25519)"),
        (unmasking, "agree", "key agreement (X25519)"),
        (channel, "derive", "key derivation (HKDF)"),
        (masks, "derive", "key derivation (HKDF)"),
        (masks, "stream_of", "mask streams (ChaCha20)"),
        (channel.Channel, "seal", "sealing shares"),
        (channel.Channel, "unseal", "sealing shares"),
        (channel.Channel, "tag", "echo tags"),
        (channel.Channel, "confirms", "echo tags"),
        (client, "share", "secret sharing"),
        (unmasking, "reconstruct", "secret sharing"),
        (client, "sign", "signatures (Ed25519)"),
        (aggregator, "verify", "signatures (Ed25519)"),
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


def profile() -> dict[str, float]:
    """The share of each building block in a round of 100 clients on the complete graph."""
    spent: Counter[str] = Counter()
    start = time.perf_counter()
    with timed(spent):
        run(make_plan(100, 99, 67))
    total = time.perf_counter() - start
    shares = {what: seconds / total for what, seconds in spent.most_common()}
    return {**shares, "the rest (Python, numpy, encoding)": 1 - sum(shares.values())}


def table(sizes: list[int]) -> list[dict[str, Any]]:
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
        note("Flower is not installed, so it is not compared with: pip install 'fedprikl[bench]'")
        return []
    rows = []
    for shares, threshold in ((21, 14),) if quick else ((21, 14), (100, 67)):
        note(f"Flower with {shares} shares ...")
        theirs = flower_seconds(make_inputs(100), shares, threshold)
        ours = statistics.median(run(make_plan(100, shares - 1, threshold)).total for _ in range(3))
        rows.append({"shares": shares, "threshold": threshold, "flower_s": theirs, "ours_s": ours})
    return rows


def growth(rows: list[dict[str, Any]]) -> float | None:
    """CPU per client at n = 3,000 over that at n = 200."""
    cost = {row["clients"]: row["client_ms"] + row["aggregator_ms"] for row in rows}
    return cost[3000] / cost[200] if 3000 in cost else None


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
    print("\nWhere the time goes (100 clients, complete graph)")
    for what, share in result["profile"].items():
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


def main() -> None:
    """Measures, then prints tables or one JSON object."""
    parser = argparse.ArgumentParser(description="What a secure sum costs.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="without the long runs")
    options = parser.parse_args()
    note("100 clients on the complete graph, and the floor ...")
    run(make_plan(10, 9, 6))  # warm up
    result: dict[str, Any] = floor_ratios()
    result["profile"] = profile()
    sizes = [10, 50, 100, 200] if options.quick else [10, 50, 100, 200, 500, 1000, 3000]
    result["rows"] = table(sizes)
    result["growth"] = growth(result["rows"])
    result["flower"] = flower(options.quick)
    speedups = [row["flower_s"] / row["ours_s"] for row in result["flower"]]
    result["flower_speedup"] = min(speedups) if speedups else None
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
