"""A plan of several questions: one vector of counts, one charge, all answers, one verdict."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.divergence import KL, Divergence, divergences
from fedprikl.estimation import weighted_score
from fedprikl.planning import plan_round
from fedprikl.privacy import (
    Calibrated,
    ComposedCharge,
    IntegerLaplaceMechanism,
    InverseSensitivityMechanism,
    LaplaceMechanism,
    SecureNoise,
    total_epsilon,
)
from fedprikl.protocol import Plan, Question, Release
from fedprikl.protocol.sums import (
    ScoredSum,
)
from fedprikl.reporting import release_page, release_summary
from fedprikl.reporting.facts import answer_words, drift_words
from tests.extending.page import module
from tests.protocol.worlds import InsecureNoNoise, World, budgeted, noisy_counts

pytestmark = pytest.mark.slow

WORLD = World.make(clients=24)
ALL = 12  # cells


@pytest.fixture(scope="module", autouse=True)
def triangular(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divergence]:
    made = module("A divergence", tmp_path_factory.mktemp("page"), name="triangular")
    yield made.TRIANGULAR
    del divergences._known["triangular"]


class Watched(SecureNoise):
    """Secure noise that notes what was asked of it."""

    def __init__(self) -> None:
        self.drawn: list[tuple[str, float]] = []

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        self.drawn.append(("laplace", scale))
        return super().laplace(values, scale=scale)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        self.drawn += [("integer", scale)] * len(np.atleast_1d(counts))
        return super().integer_laplace(counts, scale=scale)

    def below(self, end: int) -> int:
        self.drawn.append(("adaptive", 0.0))
        return super().below(end)


def questions(*releases: str, shares: tuple[float, ...] = (0.7, 0.3)) -> tuple[Question, ...]:
    return tuple(
        Question(divergence=name, share=share, release=release)  # type: ignore[arg-type]
        for name, share, release in zip(("kl", "triangular"), shares, releases, strict=True)
    )


def plan(*releases: str, **changes: Any) -> Plan:
    return WORLD.plan(questions=questions(*releases), points=ALL, **changes)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"share": 0.2}, "must sum to 1"),
        ({"divergence": "kl"}, "each divergence once"),
    ],
)
def test_questions_that_do_not_go_together_are_refused(asked: Any, words: str) -> None:
    first, second = questions("value", "value")
    with pytest.raises(InvalidInputError, match=words):
        WORLD.plan(points=ALL, questions=(first, replace(second, **asked)))


def test_adaptive_noise_is_for_kl_only() -> None:
    with pytest.raises(InvalidInputError, match="adaptive noise for kl only"):
        questions("value", "adaptive")


@pytest.mark.parametrize("releases", [("value", "counts"), ("adaptive", "counts")])
def test_without_trust_everything_is_read_off_counts(releases: tuple[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="release='counts'"):
        plan(*releases, trust="none")


def test_shares_may_be_rounded_but_not_wrong() -> None:
    thirds = questions("value", "value", shares=(1 / 3, 2 / 3 + 1e-12))
    assert WORLD.plan(points=ALL, questions=thirds).questions == thirds
    with pytest.raises(InvalidInputError, match="sum to 1"):
        WORLD.plan(points=ALL, questions=questions("value", "value", shares=(0.7, 0.3 + 1e-6)))


def test_a_plan_of_two_questions_comes_back() -> None:
    asked = plan("adaptive", "counts")
    assert Plan.from_dict(asked.to_dict()) == asked
    assert asked.question.divergence == "kl"


def test_noisy_counts_are_scored_without_a_maximum_step_and_without_correction() -> None:
    """They are public already: clipping would only move the answer. Exact counts need both."""
    value, counts = (replace(each, maximum_step=0.25) for each in questions("value", "counts"))
    asked = plan("value", "counts")
    trust = ScoredSum(replace(asked, questions=(value, counts)))
    assert trust.score_of(value).maximum_step == 0.25
    assert trust.score_of(value).correction == asked.verdict.client_effect > 0
    assert trust.score_of(counts).maximum_step == np.inf
    assert trust.score_of(counts).correction == 0


def test_every_answer_is_the_score_of_the_same_counts_without_noise() -> None:
    asked = plan("value", "value")
    result = WORLD.run(asked, source=InsecureNoNoise())
    counts, trust = WORLD.plain_counts(result, set()), ScoredSum(asked)
    for answer, question in zip(result.release.answers, asked.questions, strict=True):
        assert answer.divergence == question.divergence
        assert answer.value == weighted_score(counts, trust.score_of(question))
    assert result.release.is_about(asked)


def test_what_is_charged_is_drawn_and_stated(tmp_path: Path) -> None:
    asked, source = plan("value", "counts"), Watched()
    with budgeted(tmp_path / "ledger.db") as ledger:
        release = WORLD.run(asked, ledger=ledger, source=source).release
        [charged] = ledger.account("testers").rounds
    value, counts = charged.charge.parts  # type: ignore[attr-defined]
    assert charged.charge == ComposedCharge((value, counts)) == ScoredSum(asked).charge([24])
    assert isinstance(value, LaplaceMechanism)
    assert isinstance(counts, IntegerLaplaceMechanism)
    assert value.epsilon(0.0) == pytest.approx(0.7, rel=1e-8)
    assert counts.epsilon(0.0) == pytest.approx(0.3, rel=1e-8)
    [(kind, scale), *integers] = source.drawn
    assert kind == "laplace"
    assert integers == [("integer", counts.scale)] * (ALL + 1)  # the rest too
    own = f"Laplace noise of scale {scale:.4g}"
    assert release.answers[0].mechanism == f"{own} on a value, and {counts}"
    assert scale < value.scale  # that of a sensitivity of 1
    assert release.answers[1].mechanism == str(counts)
    assert release.privacy.mechanism == f"{own} and {counts}"
    assert release.privacy.released == f"one number and the noisy counts of {ALL} cells"
    assert release.privacy.holds
    assert release.privacy.epsilon <= 1.0
    assert release.privacy.epsilon == pytest.approx(1.0, rel=1e-6)
    assert release.privacy.delta == 0
    assert total_epsilon([charged.charge], delta=1e-6) <= 1.0


def test_gaussian_noise_has_its_share_of_delta_too(tmp_path: Path) -> None:
    asked = plan("value", "counts", noise="gaussian")
    value, counts = ScoredSum(asked).noises
    assert isinstance(value.law, Calibrated)
    assert isinstance(counts.law, Calibrated)
    assert (value.law.delta, counts.law.delta) == pytest.approx((7e-7, 3e-7))
    with budgeted(tmp_path / "ledger.db", epsilon=1.0, delta=1e-6) as ledger:
        release = WORLD.run(asked, ledger=ledger).release  # fits into the whole budget
    assert release.privacy.delta == pytest.approx(1e-6)
    assert release.privacy.delta <= 1e-6
    assert release.privacy.epsilon <= 1.0
    assert release.privacy.holds


def test_adaptive_noise_is_drawn_once_with_its_share(tmp_path: Path) -> None:
    asked, source = plan("adaptive", "value"), Watched()
    with budgeted(tmp_path / "ledger.db") as ledger:
        release = WORLD.run(asked, ledger=ledger, source=source).release
        [charged] = ledger.account("testers").rounds
    adaptive, value = charged.charge.parts  # type: ignore[attr-defined]
    assert isinstance(adaptive, InverseSensitivityMechanism)
    assert adaptive.epsilon == pytest.approx(0.7)
    assert sorted(kind for kind, _ in source.drawn) == ["adaptive", "laplace"]
    assert release.answers[0].mechanism == str(adaptive)
    assert release.privacy.released == "2 numbers"
    assert isinstance(value, LaplaceMechanism)


def test_counts_pool_the_shares_of_their_questions() -> None:
    (noise,) = ScoredSum(plan("counts", "counts")).noises
    assert noise.is_counts
    assert noise.law.epsilon == 1.0
    assert len(noise.questions) == 2


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_all_answers_are_read_off_the_same_noisy_counts(trust: Any, triangular: Divergence) -> None:
    asked = plan("counts", "counts", trust=trust, epsilon=50.0, delta=1e-3, cohort=24)
    release = WORLD.run(asked).release
    counts = noisy_counts(release)
    assert len(counts.cells) == ALL
    assert release.verdict is not None
    names = [statistic.name for statistic in release.verdict.statistics]
    assert names == ["counts", "largest_cell", "out_of_domain"]
    assert release.is_about(asked)
    assert Release.from_bytes(release.to_bytes()) == release
    seen = np.array(counts.counts) / counts.records[0]
    pi = WORLD.reference.probabilities[list(counts.cells)]
    for answer, f in zip(release.answers, (KL.f, triangular.f), strict=True):
        plugged_in = float(pi @ f(0.01 + 0.99 * seen / pi))
        assert answer.value == pytest.approx(plugged_in, abs=0.01)
        assert answer.no_drift is not None
        assert 0 < answer.no_drift < 0.05
        assert answer.interval is not None


def test_a_release_without_the_counts_of_its_plan_is_not_about_it() -> None:
    asked = plan("value", "counts")
    release = WORLD.run(asked).release
    assert not replace(release, noisy_counts=None).is_about(asked)
    first, second = release.answers
    assert not replace(release, answers=(second, first)).is_about(asked)
    assert not replace(release, answers=(first,)).is_about(asked)


def test_one_verdict_for_all_and_every_answer_in_the_report() -> None:
    world = World.make(clients=24)
    world.held[:, :ALL] = np.roll(world.held[:, :ALL], 5, axis=1)
    asked = plan("value", "value").changed(epsilon=20.0)
    release = world.run(asked).release
    assert release.verdict is not None
    assert [statistic.name for statistic in release.verdict.statistics] == ["kl", "triangular"]
    assert "triangular" in release.verdict.exceeding
    assert release.drifted is True
    assert "exceed any threshold at most 1% of the time" in drift_words(release)
    assert len(release.answers) == 2
    records = f"{int(world.held.sum()):,} records"
    for answer in release.answers:
        assert f"is what {records} give without any drift" in answer_words(answer, release)
    page = release_page(release, asked, {})
    assert page.count("<svg") == 2
    assert "questions 1: divergence" in page
    assert "questions 2: divergence" in page
    assert release_summary(release, asked).count("without any drift") == 2


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_plan_for_two_divergences_runs(trust: Any) -> None:
    planned = plan_round(
        WORLD.reference,
        clients=24,
        records=int(WORLD.held.sum()),
        epsilon=1.0,
        population="testers",
        trust=trust,
        ask=("kl", "triangular"),
    )
    assert sum(each.share for each in planned.plan.questions) == pytest.approx(1.0, abs=1e-12)
    release = WORLD.run(planned.plan).release
    assert [answer.divergence for answer in release.answers] == ["kl", "triangular"]
    assert release.is_about(planned.plan)
