"""The audit of a plan: intact plans stand, and each mechanism is refuted once it is broken."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from fedprikl import InvalidInputError, Reference
from fedprikl.audit import AuditedPlan, audit_plan
from fedprikl.checks import Floats
from fedprikl.cli.app import app
from fedprikl.documents import canonical
from fedprikl.estimation import score_sensitivity, weighted_score
from fedprikl.estimation.adaptive import adaptive_value
from fedprikl.privacy import (
    Calibrated,
    Counts,
    InsecureSeededNoise,
    InverseSensitivityMechanism,
    LaplaceMechanism,
    LookedMechanism,
    Numbers,
    SecureNoise,
    adaptive,
    calibrate,
    laws,
)
from fedprikl.privacy.adaptive import ring_weights
from fedprikl.protocol import (
    Look,
    Plan,
    Question,
    SignedPlan,
    answering,
)
from fedprikl.protocol.sums import NoisyHistogram
from tests.false_alarm import FALSE_ALARM
from tests.plans import AskColumns, make_plan

pytestmark = pytest.mark.slow
VALUES = list("abcd")
Break = Callable[[pytest.MonkeyPatch], None]


@cache
def reference() -> Reference:
    rng = np.random.default_rng(1)
    columns = {f"c{i}": rng.choice(VALUES, 2000, p=[0.4, 0.3, 0.2, 0.1]) for i in range(2)}
    return Reference.fit(pl.DataFrame(columns))


def planned(
    *asked: Question, columns: tuple[float, float, float] | None = None, **more: Any
) -> Plan:
    """Questions about the whole, and shares of tv, js and counts for both columns."""
    found = None
    if columns is not None:
        tv, js, counts = columns
        views = tuple(view.columns for view in reference().views[:2])
        sizes = tuple(view.size for view in reference().views[:2])
        found = AskColumns(views=views, sizes=sizes, tv=tv, js=js, counts=counts)
    settings: dict[str, Any] = {"reference": reference().fingerprint, "epsilon": 2.0}
    cells = int(np.count_nonzero(reference().probabilities))
    return make_plan(**settings | {"points": cells, "questions": asked, "columns": found} | more)


def whole(divergence: str, release: Any, share: float = 1.0) -> Question:
    return Question(divergence=divergence, release=release, share=share)


def looked(share: float = 1.0) -> Question:
    look = Look(share=0.2, switch=0.5)
    return Question(release="looked", share=share, look=look, maximum_step=0.05)


CLIENT: dict[str, Any] = {"unit": "client", "per_client": 5}
PLANS: dict[str, Callable[[], Plan]] = {
    "adaptive": lambda: planned(whole("kl", "adaptive")),
    "adaptive client": lambda: planned(whole("kl", "adaptive"), **CLIENT),
    "adaptive batches": lambda: planned(
        whole("kl", "adaptive"), points=5, batches=2, client_effect=2.0
    ),
    "looked": lambda: planned(looked()),
    "looked client": lambda: planned(looked(), **CLIENT),
    "looked batches": lambda: planned(looked(), points=5, batches=2, client_effect=2.0),
    "looked beside others": lambda: planned(
        looked(0.4), whole("tv", "value", 0.3), columns=(0.1, 0.0, 0.2)
    ),
    "value batches": lambda: planned(whole("kl", "value"), points=5, batches=2, **CLIENT),
    "value": lambda: planned(whole("tv", "value"), noise="laplace"),
    "gaussian value": lambda: planned(whole("js", "value"), noise="gaussian"),
    "value client": lambda: planned(whole("kl", "value"), **CLIENT),
    "counts": lambda: planned(whole("kl", "counts"), noise="laplace"),
    "counts client": lambda: planned(whole("kl", "counts"), noise="gaussian", **CLIENT),
    "columns": lambda: planned(columns=(0.3, 0.3, 0.4)),
    "columns client": lambda: planned(columns=(0.3, 0.0, 0.7), **CLIENT),
    "both": lambda: planned(
        whole("kl", "adaptive", 0.3), whole("tv", "value", 0.3), columns=(0.2, 0.0, 0.2)
    ),
    "shares": lambda: planned(whole("kl", "counts"), trust="none", noise="laplace"),
    "gaussian shares": lambda: planned(
        whole("kl", "counts", 0.5),
        columns=(0.0, 0.0, 0.5),
        trust="none",
        noise="gaussian",
        cohort=6,
    ),
    "shares client": lambda: planned(whole("kl", "counts"), trust="none", **CLIENT),
}


def audited(name: str, trials: int | None = 1000) -> AuditedPlan:
    return audit_plan(PLANS[name](), reference(), trials=trials, false_alarm=FALSE_ALARM)


def bounds(found: AuditedPlan) -> list[dict[str, float]]:
    """The bounds of each question, as multiples of what it may cost."""
    return [
        {test: bound / result.claimed_epsilon for test, bound in result.bounds.items()}
        for _, result in found.questions
    ]


def test_parts_that_cost_more_than_the_plan_says_are_refused() -> None:
    """Each keeps its own part, so that no attack on one of them would show it."""
    plan = PLANS["both"]().changed(parts=50.0)
    with pytest.raises(InvalidInputError, match="parts of a release"):
        audit_plan(plan, reference(), trials=100)


@pytest.mark.parametrize("name", PLANS)
def test_an_intact_plan_is_not_refuted(name: str) -> None:
    """The made-up data are hard: they cost nearly what the plan allows."""
    found = audited(name)
    assert not found.refuted
    for each in bounds(found):
        assert 0.7 < each["noise asked for"] <= 1


@pytest.mark.parametrize("name", ["gaussian value", "counts", "shares"])
def test_an_intact_plan_is_refuted_no_more_often_than_stated(name: str) -> None:
    """30 audits that may each be wrong with probability 0.2."""
    plan, wrong = PLANS[name](), 0
    for seed in range(30):
        noise = InsecureSeededNoise(seed)
        found = audit_plan(plan, reference(), trials=200, false_alarm=0.2, source=noise)
        wrong += found.refuted
    assert stats.binom.sf(wrong - 1, 30, 0.2) > FALSE_ALARM


def twice_epsilon(patch: pytest.MonkeyPatch) -> None:
    """Adaptive answers are drawn with the weights of twice their epsilon."""

    def weights(epsilon: float) -> tuple[int, ...]:
        return tuple(weight * weight for weight in ring_weights(epsilon))

    patch.setattr(adaptive, "ring_weights", weights)


def half_the_vector(patch: pytest.MonkeyPatch) -> None:
    full = Calibrated.for_sensitivity
    patch.setattr(Calibrated, "for_sensitivity", lambda self, at: full(self, at / 2))


def half_the_coordinates(patch: pytest.MonkeyPatch) -> None:
    """Counts of d columns are calibrated for d moved counts instead of 2 d."""

    def half(on: Any, **settings: Any) -> Any:
        if isinstance(on, Counts):
            on = replace(on, coordinates=on.coordinates // 2)
        return calibrate(on, **settings)

    patch.setattr(laws, "calibrate", half)


def without_k(patch: pytest.MonkeyPatch) -> None:
    """Clients are protected as if each had one record."""
    patch.setattr(Plan, "contribution_bound", property(lambda _: 1))


def without_k_in_the_release(patch: pytest.MonkeyPatch) -> None:
    def draw(*given: Any, **settings: Any) -> Any:
        return adaptive_value(*given, **settings | {"contribution": 1})

    def sensitivity(points: Any, records: Any, score: Any, moved: int) -> float:
        assert moved > 1
        return score_sensitivity(points, records, score, 1)

    patch.setattr(answering, "adaptive_value", draw)
    patch.setattr(answering, "score_sensitivity", sensitivity)


def without_dropouts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NoisyHistogram, "minimum", lambda _, clients: clients)


def half_of(kind: str) -> Break:
    """The source draws half the noise that it is asked for."""

    def broken(patch: pytest.MonkeyPatch) -> None:
        full = getattr(SecureNoise, kind)

        def draw(self: SecureNoise, values: npt.ArrayLike, **law: float) -> Floats:
            (name, size), *more = law.items()
            drawn: Floats = full(self, values, **{name: size / 2}, **dict(more))
            return drawn

        patch.setattr(SecureNoise, kind, draw)

    return broken


def no_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LaplaceMechanism, "add_to", lambda _, values, __: np.asarray(values))


def noise_that_is_not_released(patch: pytest.MonkeyPatch) -> None:
    """Noise is drawn, but another number leaves."""

    full = Calibrated.add_to

    def release(self: Calibrated, values: Any, deltas: Any, source: Any) -> Any:
        full(self, values, deltas, source)
        return np.asarray(values)

    patch.setattr(Calibrated, "add_to", release)


def looked_at_the_number(patch: pytest.MonkeyPatch) -> None:
    """The number itself chooses the noise, whatever the look is."""
    full = answering._noised

    def draw(trust: Any, noise: Any, exact: Any, source: Any) -> Any:
        if not isinstance(noise.law, LookedMechanism):
            return full(trust, noise, exact, source)
        number = weighted_score(exact[0], trust.score_of(noise.questions[0]))
        ((look,),) = full(trust, replace(noise, law=noise.law.look), exact, source)
        ((value,),) = full(trust, replace(noise, law=noise.law.rest(number)), exact, source)
        return [(look, value)]

    patch.setattr(answering, "_noised", draw)


def all_for_the_look(patch: pytest.MonkeyPatch) -> None:
    """The look gets the epsilon of both numbers."""
    whole = property(lambda self: InverseSensitivityMechanism(epsilon=self.epsilon))
    patch.setattr(LookedMechanism, "look", whole)


def all_for_the_value(patch: pytest.MonkeyPatch) -> None:
    """The value gets it, as if nobody had looked."""
    laplace = property(lambda self: Calibrated(Numbers(), self.epsilon, 0.0, "laplace"))
    patch.setattr(LookedMechanism, "large", laplace)


BROKEN: list[tuple[str, Break]] = [
    ("looked", all_for_the_look),
    ("looked", twice_epsilon),
    ("looked", half_of("laplace")),
    ("looked client", without_k),
    ("looked client", without_k_in_the_release),
    ("adaptive", twice_epsilon),
    ("columns", half_the_vector),
    ("columns client", half_the_vector),
    ("columns", half_the_coordinates),
    ("counts", half_the_coordinates),
    ("value client", without_k),
    ("counts client", without_k),
    ("columns client", without_k),
    ("adaptive client", without_k),
    ("shares client", without_k),
    ("value client", without_k_in_the_release),
    ("columns client", without_k_in_the_release),
    ("adaptive client", without_k_in_the_release),
    ("shares", without_dropouts),
    ("gaussian shares", without_dropouts),
    ("value", half_of("laplace")),
    ("columns", half_of("laplace")),
    ("gaussian value", half_of("gaussian")),
    ("counts", half_of("integer_laplace")),
    ("counts client", half_of("integer_gaussian")),
    ("gaussian shares", half_of("integer_gaussian")),
    ("shares", half_of("laplace_share")),
    ("value", no_noise),
    ("value", noise_that_is_not_released),
]


QUICK = ("shares",)  # drawn so quickly that more of them can be


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_a_broken_mechanism_is_refuted(
    name: str, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the noise that is asked for, or by the draws alone; by the draws wherever there are any.

    An adaptive answer of a client that is drawn from other ranges is seen before it is drawn.
    """
    broken(monkeypatch)
    found = audited(name, None if name in QUICK else 1000)
    assert found.refuted
    if found.questions[0][1].trials and name != "adaptive client":
        drawn = [{**each, "noise asked for": 0.0} for each in bounds(found)]
        assert max(max(each.values()) for each in drawn) > 1


@pytest.mark.parametrize("broken", [looked_at_the_number, all_for_the_value])
def test_a_look_that_is_no_look_is_refuted_before_anything_is_drawn(
    broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another noise than the look's, or a quarter more epsilon: few draws would not tell.

    A choice by the number itself goes unnoticed with probability 2^-20.
    """
    broken(monkeypatch)
    assert audited("looked").refuted


def test_the_command_attacks_the_plan_and_says_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, ledger = tmp_path / "plan.json", tmp_path / "ledger.db"
    plan.write_bytes(canonical(SignedPlan(PLANS["value"]()).to_dict()))
    reference().save(tmp_path / "ref.json")
    runner, call = CliRunner(), ["audit", str(plan), "--trials", "1000"]
    intact = runner.invoke(app, [*call, "--json"])
    assert intact.exit_code == 0
    found = json.loads(intact.stdout)
    assert found["refuted"] is False
    assert [each["question"] for each in found["questions"]] == ["tv: value"]
    assert found["plan"] == PLANS["value"]().fingerprint
    half_of("laplace")(monkeypatch)
    broken = runner.invoke(app, call)
    assert broken.exit_code == 1
    assert "tv: value: epsilon 2 (delta 1e-06) is REFUTED" in broken.stdout
    assert not ledger.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan.json", "--epsilon", "3"], "--epsilon is for an audit without a plan"),
        (["--reference", "ref.json"], "--reference is for the audit of a plan"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert words in result.stderr


def test_another_reference_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(canonical(SignedPlan(PLANS["value"]()).to_dict()))
    Reference.from_counts([1, 2]).save(tmp_path / "ref.json")
    result = CliRunner().invoke(app, ["audit", str(tmp_path / "plan.json")])
    assert result.exit_code == 1
    assert "made with another reference" in str(result.exception)
