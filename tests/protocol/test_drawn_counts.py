"""Where whole clients are protected, a client takes part with exactly k records or not at all."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprikl import Reference
from fedprikl.checks import Ints
from fedprikl.errors import PolicyRefusal
from fedprikl.protocol import (
    Client,
    ClientSession,
    Invitation,
    OneRecord,
    Plan,
    Question,
    Server,
    SignedPlan,
    draw_of,
)
from fedprikl.records import Draw, draw_counts, open_records
from tests.plans import AskColumns, make_plan
from tests.protocol.worlds import AT, InsecureNoNoise, World

K = 7
ROWS = pl.DataFrame({"a": ["x", "x", "y", "z"] * 5, "b": ["u", "v"] * 10})
TABLE = Reference.fit(ROWS)
SIZES = tuple(view.size for view in TABLE.views)


def plan_of(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "population": "testers",
        "reference": TABLE.fingerprint,
        "epsilon": 1.0,
        "points": 3,
        "questions": (Question(share=0.5, release="counts"),),
        "columns": AskColumns(views=(("a",), ("b",)), sizes=SIZES, counts=0.5),
        "cohort": 3,
        "unit": "client",
        "per_client": K,
    }
    return make_plan(**(settings | changes))


def join(plan: Plan, counts: Ints, views: Sequence[Ints] = ()) -> ClientSession:
    this = Server(SignedPlan(plan), TABLE).open_round(
        ["a", "b", "c"], rng=np.random.default_rng(1), randomness=os.urandom
    )
    who = Client(counts, TABLE, views=views, randomness=os.urandom, source=InsecureNoNoise())
    return who.join(Invitation.to_member(this, this.cohorts[0], 0).to_bytes(), at=AT)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
@pytest.mark.parametrize("rows", [0, 1, 3, K, 20])
def test_k_records_are_sent_whatever_a_client_holds(rows: int, trust: Any) -> None:
    plan = plan_of(trust=trust)
    draw = draw_of(plan)
    assert draw == Draw(K)
    found = open_records(ROWS[:rows]).count(TABLE, draw)
    vector = join(plan, found.counts, found.views)._vector
    if trust == "aggregator":
        asked, views, records = np.split(vector, [3, len(vector) - 1])
        assert records.tolist() == [K]
        assert asked.sum() <= K
        assert [part.sum() for part in np.split(views, [SIZES[0]])] == [K, K]  # all are known
    else:
        assert vector[-2] == K


def test_other_numbers_of_records_are_refused() -> None:
    found = open_records(ROWS).count(TABLE, Draw(K))
    join(plan_of(), found.counts, found.views)
    for other in (0, 1, K - 1, K + 1, 20):
        wrong = open_records(ROWS).count(TABLE, Draw(other)) if other else None
        counts = np.zeros_like(found.counts) if wrong is None else wrong.counts
        with pytest.raises(PolicyRefusal, match="exactly as many records"):
            join(plan_of(), counts, found.views)
        if wrong is not None:  # the whole is right, a view is not
            with pytest.raises(PolicyRefusal, match="exactly as many records"):
                join(plan_of(), found.counts, (found.views[0], wrong.views[1]))


def test_a_refusal_says_how_many_records_neither_way() -> None:
    texts = set()
    for records in (1, 3, 19, 500):
        with pytest.raises(PolicyRefusal) as caught:
            join(plan_of(), np.append(np.zeros(len(TABLE.whole.mass) - 1, dtype=np.int64), records))
        texts.add(caught.value.reason)
    assert len(texts) == 1


def test_a_client_without_records_stays_away_only_where_the_plan_says_so() -> None:
    none = open_records(ROWS[:0]).count(TABLE, Draw(K, empty="away"))
    with pytest.raises(PolicyRefusal, match="holds no records"):
        join(plan_of(empty="away"), none.counts, none.views)
    with pytest.raises(PolicyRefusal, match="exactly as many records"):
        join(plan_of(), none.counts, none.views)


def test_all_records_are_counted_where_single_records_are_protected() -> None:
    plan = replace(plan_of(), unit=OneRecord())
    assert draw_of(plan) is None
    found = open_records(ROWS).count(TABLE, draw_of(plan))
    vector = join(plan, found.counts, found.views)._vector
    assert vector[-1] == len(ROWS)


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_round_has_k_records_of_each_client(trust: Any) -> None:
    world = World.make(clients=9)
    plan = world.plan(cohort=9, unit="client", per_client=K, trust=trust)
    world.held = np.array([draw_counts(counts, world.reference, Draw(K)) for counts in world.held])
    assert world.run(plan).release.records == 9 * K
