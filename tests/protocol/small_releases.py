"""Random small releases: from sums to the signed document as always, but without any client."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import divergence_named
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import NoisedRound, Outcome, Plan, Question, Release, SigningKey
from fedprikl.protocol.answering import expected_noise, noise_sums, points_of
from fedprikl.protocol.noised_round import state_of
from fedprikl.protocol.sums import NoisyHistogram, OpenedSum, asked_views, trust_of
from tests.plans import AskColumns, make_plan
from tests.protocol.worlds import AT

KEY = SigningKey.generate()
LETTERS = np.array(list("abcdefgh"))


def drawn_table(rows: int, chances: list[Floats], rng: np.random.Generator) -> pl.DataFrame:
    return pl.DataFrame(
        {f"c{i}": rng.choice(LETTERS[: len(p)], rows, p=p) for i, p in enumerate(chances)}
    )


def random_plan(reference: Reference, rng: np.random.Generator) -> Plan:
    """Any trust, any way of releasing each divergence, with columns or without."""
    trust = str(rng.choice(["aggregator", "none"]))
    names = ["kl", "tv", "js"][: int(rng.integers(1, 4))]
    options = ["counts"] if trust == "none" else ["value", "counts", "adaptive"]
    shares = rng.dirichlet(np.full(len(names), 3.0))
    of_columns: dict[str, Any] = {}
    if rng.random() < 0.6:
        shares *= 0.5
        views = reference.views
        split = (0.5, 0.0, 0.0) if trust == "none" else (0.3, 0.1, 0.1)
        of_columns["columns"] = AskColumns(
            views=tuple(view.columns for view in views),
            sizes=tuple(view.size for view in views),
            counts=split[0],
            tv=split[1],
            js=split[2],
        )
    questions = []
    for name, share in zip(names, shares.tolist(), strict=True):
        release: Any = rng.choice(options if name == "kl" else options[:2])
        skew = divergence_named(name).skew
        questions.append(Question(divergence=name, share=share, release=release, skew=skew))
    cells = len(reference.whole.points())
    few = "counts" not in {each.release for each in questions} and rng.random() < 0.3
    return make_plan(
        reference=reference.fingerprint,
        questions=questions,
        points=max(1, cells // 2) if few else cells,
        trust=trust,
        epsilon=float(10 ** rng.uniform(-1.5, 0.7)),
        delta=1e-6,
        cohort=40,
        **of_columns,
    )


@dataclass(frozen=True)
class SmallRelease:
    """A release, and what went into it."""

    release: Release
    plan: Plan
    reference: Reference


def small_release(seed: int) -> SmallRelease:
    """Of a random reference of two columns, few clients and few records, drifted or not."""
    rng = np.random.default_rng(seed)
    chances = [rng.dirichlet(np.full(int(rng.integers(2, 6)), 0.8)) for _ in range(2)]
    public = drawn_table(int(10 ** rng.uniform(1.3, 3)), chances, rng)
    reference = Reference.fit(public)
    if rng.random() < 0.5:
        chances = [rng.dirichlet(np.full(int(rng.integers(2, 8)), 0.8)) for _ in range(2)]
    clients = int(rng.integers(8, 41))
    private = drawn_table(clients * int(rng.integers(1, 12)), chances, rng)
    plan, source = random_plan(reference, rng), InsecureSeededNoise(seed)
    trust = trust_of(plan)
    whole = trust.draw_points(reference.probabilities, rng)
    points = points_of(plan, reference, whole)
    held = [reference.count(private)[whole.cells]]
    if plan.columns:
        names = (view.columns for view in reference.views)
        by_view = dict(zip(names, reference.count_views(private), strict=True))
        held += [by_view[view.columns][: view.size] for view in asked_views(plan, reference)]
    opened = OpenedSum(tuple(held), len(private))
    if isinstance(trust, NoisyHistogram):
        law = expected_noise(trust, [clients])

        def noisy(counts: Ints) -> Ints:
            full = np.append(counts, len(private) - counts.sum())
            return np.rint(full + law.draw(rng, (len(full),))).astype(np.int64)

        opened = OpenedSum(tuple(map(noisy, held)), len(private), law.sd**2)
    kept = NoisedRound(
        round_id="0" * 32,
        plan=plan.fingerprint,
        period=None,
        previous="",
        request="",
        points=whole,
        noised=noise_sums(trust, points, [opened], source=source),
        outcomes=(Outcome(batch=0, clients=clients, included=clients),),
        asked=(),
        counted=(),
        simulation=state_of(rng),
        software="tests",
        at=AT,
    )
    release = kept.release(plan, reference, key=KEY, head=None)
    return SmallRelease(release, plan, reference)
