"""The part of a plan that names three servers, and what such a plan may ask."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedprikl.documents import canonical, to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    SealingKey,
    Servers,
    SigningKey,
    SumRules,
)
from fedprikl.protocol.sums import ServersSum

SEALING = tuple(SealingKey.generate().public for _ in range(3))
SIGNING = tuple(SigningKey.generate().public for _ in range(3))
ADDRESSES = tuple(f"https://{name}.example" for name in ("one", "two", "three"))
NAMED = Servers(suite="x25519", sealing=SEALING, signing=SIGNING, addresses=ADDRESSES)


def plan(**changes: Any) -> Plan:
    given: dict[str, Any] = {
        "population": "p",
        "reference": 64 * "0",
        "trust": "servers",
        "servers": NAMED,
        "budget": Budget(epsilon=1.0),
        "views": (AskedView(points=3), AskedView(columns=("a",), points=2)),
        "questions": (
            Question(share=0.5, release="counts"),
            Question(divergence="tv", share=0.25, views=(("a",),), skew=0.0),
            Question(divergence="tv", share=0.25, views=(("a",),), release="counts", skew=0.0),
        ),
    }
    return Plan(**(given | changes))


def test_after_a_loss_the_parts_cost_no_more_than_the_plan_says() -> None:
    """Their laws compose otherwise than those that the parts were calibrated for."""
    questions = (
        Question(share=0.5, release="counts", noise="gaussian"),
        Question(
            divergence="tv", share=0.5, views=(("a",),), release="counts", noise="gaussian", skew=0
        ),
    )
    servers = replace(NAMED, lost="counts")
    budget = Budget(epsilon=1.0, delta=1e-5, parts=1.35)
    trust = ServersSum(plan(servers=servers, questions=questions, budget=budget))
    trust.check_parts()
    assert trust.spent_after_loss <= 1.0


def test_a_plan_with_servers_comes_back() -> None:
    for servers in (NAMED, Servers(), Servers(lost="counts")):
        made = plan(servers=servers)
        assert Plan.from_dict(made.to_dict()) == made


def test_servers_come_from_a_file_that_may_leave_out_defaults(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_bytes(canonical(to_plain(NAMED)))
    assert Servers.load(path) == NAMED
    path.write_text('{"lost": "counts"}')
    assert Servers.load(path) == Servers(lost="counts")
    path.write_text('{"losst": "counts"}')
    with pytest.raises(InvalidInputError, match="unknown fields: losst"):
        Servers.load(path)


def test_a_hybrid_key_is_longer() -> None:
    keys = tuple(1184 * "ab" + key for key in SEALING)
    assert Servers(sealing=keys).suite == "hybrid"
    with pytest.raises(InvalidInputError, match="public keys of the plan's suite"):
        Servers(sealing=SEALING)


@pytest.mark.parametrize(
    "part",
    [
        {"sealing": SEALING[:2]},
        {"sealing": (*SEALING[:2], SEALING[0])},
        {"sealing": (*SEALING[:2], 64 * "0")},
        {"signing": ("x", "y", "z")},
        {"addresses": ("http://one.example", *ADDRESSES[1:])},
        {"addresses": ("https://u@one.example", *ADDRESSES[1:])},
        {"addresses": ("https://", *ADDRESSES[1:])},
        {"addresses": ("https://[::1", *ADDRESSES[1:])},
    ],
)
def test_what_is_no_three_servers_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="three different"):
        replace(NAMED, **part)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"servers": None}, "if, and only if"),
        ({"trust": "none"}, "if, and only if"),
        ({"sums": SumRules(batches=2)}, "one batch"),
        ({"aggregator": SEALING[0]}, "no aggregator's key"),
        (
            {"views": (AskedView(points=3),), "questions": (Question(),)},
            "noisy counts, and values of tv",
        ),
    ],
)
def test_what_servers_cannot_answer_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        plan(**changes)
