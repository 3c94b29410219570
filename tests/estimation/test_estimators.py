"""The four estimators on batch counts: values, statements, warnings, bad input."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.divergence import Floor, Score, Skew, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning, UnboundedSensitivityError
from fedprikl.estimation import BatchCounts, score_sensitivity, trusted_aggregator, weighted_score
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import SecureNoise
from fedprikl.reference import QueryPoints, all_points, distinct_points, iid_points
from tests.false_alarm import looks_centred

pytestmark = pytest.mark.slow

KINDS: tuple[str, ...] = ("laplace", "gaussian")
PI = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
HELD = np.array([100, 150, 90, 50, 10])  # the last ten are "other"
P = HELD / HELD.sum()


def census() -> BatchCounts:
    """Every cell asked, one batch that is the whole population."""
    points = all_points(PI)
    return BatchCounts(points, HELD[points.cells], np.array([HELD.sum()]))


def sampled(rng: np.random.Generator, points: int = 6, batches: int = 3) -> BatchCounts:
    asked = iid_points(PI, points, batches=batches, rng=rng)
    return BatchCounts(asked, HELD[asked.cells], np.full(batches, HELD.sum()))


def test_a_census_without_noise_is_the_divergence() -> None:
    assert no_privacy(census()).value == pytest.approx(skewed_divergence(PI, P, skew=0.01))
    plain = no_privacy(census(), score=Score(Skew(0.0)))
    assert plain.value == pytest.approx(skewed_divergence(PI, P, skew=0.0))
    assert plain.target == "D(Pi || P)"
    assert plain.privacy.epsilon == math.inf
    assert plain.privacy.holds


def test_lambda_is_biased_where_the_population_leaves_the_support() -> None:
    """Erratum 9: E[r] = P(support), so lambda adds lambda (P(support) - 1)."""
    outside = 10 / 400
    with_lambda = no_privacy(census(), score=Score(Skew(0.0), control=2.0)).value
    assert with_lambda - skewed_divergence(PI, P, skew=0.0) == pytest.approx(-2.0 * outside)


def test_small_noise_changes_little() -> None:
    exact = no_privacy(census()).value
    for kind in ("laplace", "gaussian"):
        estimate = trusted_aggregator(census(), epsilon=1e6, noise=kind)
        assert estimate.value == pytest.approx(exact, abs=0.01)


def test_the_exact_release_is_centred_on_the_score_with_the_stated_spread() -> None:
    counts, source = census(), InsecureSeededNoise(1)
    exact = weighted_score(counts, Score())
    estimates = [trusted_aggregator(counts, epsilon=0.5, source=source) for _ in range(4000)]
    values = np.array([estimate.value for estimate in estimates])
    spread = estimates[0].noise_sd
    assert spread is not None
    assert looks_centred(values, exact)
    assert not looks_centred(values, exact + 0.2 * spread)
    assert values.std() == pytest.approx(spread, rel=0.15)


def test_the_exact_statement_says_what_was_calibrated() -> None:
    counts = census()
    sensitivity = score_sensitivity(counts.points, counts.records, Score())
    laplace = trusted_aggregator(counts, epsilon=0.7).privacy
    assert laplace.claimed_epsilon == 0.7
    assert laplace.delta == 0.0
    assert 0.699 < laplace.epsilon <= 0.7
    assert laplace.sensitivity == sensitivity
    assert laplace.holds
    gaussian = trusted_aggregator(counts, epsilon=0.7, noise="gaussian").privacy
    assert gaussian.delta == 1e-6
    assert "Gaussian" in gaussian.mechanism


def test_the_paper_calibration_is_for_the_papers_design(rng: np.random.Generator) -> None:
    """Pooled counts or a correction would be scored in one way and accounted in another."""
    counts = sampled(rng)
    with pytest.raises(InvalidInputError, match="its own design"):
        printed_aggregator(counts, epsilon=1.0, score=Score(correction=1.0))


def test_the_default_score_corrects_the_bias_of_batches(rng: np.random.Generator) -> None:
    counts = sampled(rng, batches=3)
    ours = trusted_aggregator(counts, epsilon=1e7).value
    assert ours == pytest.approx(weighted_score(counts, Score(correction=1.0)), abs=1e-3)
    assert ours != pytest.approx(weighted_score(counts, Score()), abs=1e-3)


def test_the_paper_calibration_warns_in_words_with_the_true_epsilon(
    rng: np.random.Generator,
) -> None:
    counts = sampled(rng)
    with pytest.warns(PaperCalibrationWarning, match="claims epsilon 1, but the noise") as caught:
        estimate = printed_aggregator(counts, epsilon=1.0)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert f"{estimate.privacy.epsilon:.3g}" in str(caught[0].message)
    assert "18 noisy terms" in estimate.privacy.released


def test_the_exact_calibration_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trusted_aggregator(census(), epsilon=1.0)
        baseline(census(), epsilon=1.0)


@pytest.mark.filterwarnings("ignore::fedprikl.errors.PaperCalibrationWarning")
def test_the_paper_noise_is_the_printed_one(rng: np.random.Generator) -> None:
    """sd of the mean: c kappa / (epsilon T sqrt(m T)), with kappa = ln 2 for lambda = 0."""
    counts, source = sampled(rng), InsecureSeededNoise(2)
    estimates = [printed_aggregator(counts, epsilon=1.0, source=source) for _ in range(2000)]
    c = math.sqrt(2 * math.log(1.25e6))
    printed = c * math.log(2) / (3 * math.sqrt(18))
    assert estimates[0].noise_sd == pytest.approx(printed)
    values = np.array([estimate.value for estimate in estimates])
    assert values.std() == pytest.approx(printed, rel=0.15)
    assert looks_centred(values, weighted_score(counts, Score()))
    kappa = 2 / (HELD.sum() * 0.1) + math.log(2)
    control = printed_aggregator(counts, epsilon=1.0, score=Score(control=2.0), source=source)
    assert control.noise_sd == pytest.approx(printed * kappa / math.log(2))


@pytest.mark.filterwarnings("ignore::fedprikl.errors.PaperCalibrationWarning")
def test_the_paper_noise_of_a_mean_protects_more_than_that_of_the_terms(
    rng: np.random.Generator,
) -> None:
    counts = sampled(rng)
    terms = printed_aggregator(counts, epsilon=1.0)
    mean = printed_aggregator(counts, epsilon=1.0, released="mean")
    assert mean.privacy.epsilon < terms.privacy.epsilon
    assert mean.privacy.released == "the mean of noisy terms"


@pytest.mark.filterwarnings("ignore::fedprikl.errors.PaperCalibrationWarning")
def test_the_paper_claim_is_false_at_its_own_settings() -> None:
    """m = 10, T = 20, epsilon 1, on a reference of 10 equal cells, 400 records a batch."""
    pi = np.full(10, 0.1)
    points = QueryPoints.build(
        pi,
        cells=np.tile(np.arange(10), 20),
        batch=np.repeat(np.arange(20), 10),
        weights=np.full(200, 1 / 200),
        batches=20,
    )
    counts = BatchCounts(points, np.full(200, 40), np.full(20, 400))
    privacy = printed_aggregator(counts, epsilon=1.0).privacy
    assert not privacy.holds
    assert privacy.epsilon > 20
    assert "FALSE" in privacy.verdict


def test_the_baseline_with_little_noise_is_the_floored_divergence() -> None:
    score = Score(Floor(1e-4), control=-1.0)
    estimate = baseline(census(), epsilon=100.0, delta=0.1)
    assert estimate.value == pytest.approx(weighted_score(census(), score), abs=0.05)
    assert estimate.target == "D(Pi || max(P, 0.0001))"
    assert estimate.privacy.released == "4 noisy counts"


def test_the_baseline_accepts_any_score_after_the_noise() -> None:
    skewed = baseline(census(), epsilon=50.0, delta=0.1, score=Score(Skew(0.01)))
    assert skewed.value == pytest.approx(no_privacy(census()).value, abs=0.1)


def test_the_baseline_statements(rng: np.random.Generator) -> None:
    counts = sampled(rng, points=10, batches=2)
    exact = baseline(counts, epsilon=1.0).privacy
    assert exact.holds
    assert 0.999 < exact.epsilon <= 1.0
    with pytest.warns(PaperCalibrationWarning, match="claims epsilon 1"):
        printed = baseline(counts, epsilon=1.0, calibration="paper").privacy
    assert not printed.holds  # two cells change, and repeated draws get their own noise
    assert printed.released == "20 noisy frequencies"


def test_the_baseline_of_one_point_moves_one_count() -> None:
    points = QueryPoints.build(PI, cells=[0], batch=[0], weights=[1.0])
    one = BatchCounts(points, np.array([100]), np.array([400]))
    assert baseline(one, epsilon=1.0).privacy.sensitivity == 1.0
    assert baseline(census(), epsilon=1.0).privacy.sensitivity == 2.0  # L1, for Laplace noise
    gaussian = baseline(census(), epsilon=1.0, noise="gaussian").privacy
    assert gaussian.sensitivity == pytest.approx(math.sqrt(2))


def test_the_baseline_takes_the_smaller_noise_and_says_its_delta() -> None:
    laplace, gaussian = (baseline(census(), epsilon=1.0, noise=kind) for kind in KINDS)
    assert laplace.privacy.delta == 0
    assert gaussian.privacy.delta == 1e-6
    assert "Laplace" in laplace.privacy.mechanism
    assert "Gaussian" in gaussian.privacy.mechanism
    assert laplace.privacy.holds
    assert gaussian.privacy.holds
    assert baseline(census(), epsilon=1.0).privacy == laplace.privacy
    assert baseline(census(), epsilon=1.0, delta=0.1).privacy.delta == 0.1  # Gaussian there


def test_insecure_noise_marks_the_result() -> None:
    for estimator in (trusted_aggregator, baseline):
        estimate = estimator(census(), epsilon=1.0, source=InsecureSeededNoise(1))
        assert estimate.privacy.insecure
        assert not estimate.privacy.holds
        assert "INSECURE" in str(estimate.privacy)
        assert estimate.privacy.to_dict()["insecure"] is True
    assert not trusted_aggregator(census(), epsilon=1.0, source=SecureNoise()).privacy.insecure


def test_the_statement_in_words() -> None:
    estimate = trusted_aggregator(census(), epsilon=1.0)
    text = str(estimate.privacy)
    for words in ("one record", "Replacing any one record", "e^1 = 2.72", "honest but curious"):
        assert words in text
    assert "Not protected" in text
    assert "the aggregator" in text
    gaussian = str(trusted_aggregator(census(), epsilon=1.0, noise="gaussian").privacy)
    assert "plus at most 1e-06" in gaussian
    assert "No privacy is claimed" in str(no_privacy(census()))
    assert str(estimate).startswith("D(Pi || 0.01 Pi + 0.99 P) is about ")


def test_an_estimate_says_what_it_is_of() -> None:
    estimate = no_privacy(census())
    assert estimate.privacy.to_dict()["true_epsilon"] is None
    assert estimate.payload == 4
    assert estimate.target == "D(Pi || 0.01 Pi + 0.99 P)"


def test_the_counts_do_not_print() -> None:
    assert repr(census()) == "BatchCounts(4 points in 1 batches)"


def test_all_estimators_agree_on_dealt_points(rng: np.random.Generator) -> None:
    points = distinct_points(PI, 2, batches=2, rng=rng)
    counts = BatchCounts(points, HELD[points.cells], np.full(2, HELD.sum()))
    assert trusted_aggregator(counts, epsilon=1e7, score=Score()).value == pytest.approx(
        no_privacy(counts).value, abs=1e-3
    )


def with_counts(counts: Any, records: Any = (400,)) -> BatchCounts:
    return BatchCounts(all_points(PI), np.array(counts), np.array(records))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: with_counts([1, 2, 3]), "4 points in 1 batches were asked"),
        (lambda: with_counts([1, 2, 3, 4], [1, 2]), "2 record totals"),
        (lambda: with_counts([0, 0, 0, 0], [0]), "holds no records"),
        (lambda: with_counts([1, 2, 3, 400]), "exceed its number of records"),
        (lambda: with_counts([1, 2, 3, -4]), "negative"),
        (lambda: with_counts([1, 2, 3, 0.5]), "whole numbers"),
        (lambda: with_counts([1, 2, 3, np.nan]), "nan"),
        (lambda: with_counts([1, 2, 3, np.inf]), "infinity"),
        (lambda: trusted_aggregator(census(), epsilon=0.0), "above 0"),
        (lambda: trusted_aggregator(census(), epsilon=-1.0), "above 0"),
        (lambda: trusted_aggregator(census(), epsilon=np.nan), "finite"),
        (lambda: trusted_aggregator(census(), epsilon=1.0, delta=0.0), "strictly between"),
        (lambda: trusted_aggregator(census(), epsilon=1.0, delta=1.0), "strictly between"),
        (lambda: trusted_aggregator(census(), epsilon=1.0, noise="x"), "There is no noise 'x'"),
        (lambda: printed_aggregator(census(), epsilon=0.0), "above 0"),
        (lambda: printed_aggregator(census(), epsilon=1.0, delta=0.0), "strictly between"),
        (lambda: baseline(census(), epsilon=1.0, calibration="x"), "'exact' or 'paper'"),  # type: ignore[arg-type]
        (lambda: baseline(census(), epsilon=0.0), "above 0"),
        (lambda: baseline(census(), epsilon=1.0, noise="x"), "There is no noise 'x'"),
        (lambda: baseline(census(), epsilon=1.0, score=Score(Skew(0.0))), "smooth it"),
        (lambda: no_privacy(census(), score=Skew(0.05)), r"write Score\(Skew"),  # type: ignore[arg-type]
        (lambda: printed_aggregator(census(), epsilon=1.0, released="x"), "'terms' or 'mean'"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_a_number_given_as_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="epsilon must be a number"):
        trusted_aggregator(census(), epsilon="1")  # type: ignore[arg-type]


def test_errors_do_not_show_counts() -> None:
    with pytest.raises(InvalidInputError) as caught:
        with_counts([1, 2, 3, -4321])
    assert "4321" not in str(caught.value)


def test_large_counts_are_noised_too() -> None:
    points = QueryPoints.build(PI, cells=[0], batch=[0], weights=[1.0])
    many = BatchCounts(points, np.array([3 * 10**9]), np.array([10**10]))
    assert baseline(many, epsilon=1.0).value == pytest.approx(-1 * (0.3 / 0.4 - 1) - math.log(0.75))


def test_the_warning_does_not_complain_where_the_claim_holds() -> None:
    points = QueryPoints.build(PI, cells=[0], batch=[0], weights=[1.0])
    one = BatchCounts(points, np.array([100]), np.array([400]))
    with pytest.warns(PaperCalibrationWarning, match="with these points the noise"):
        assert baseline(one, epsilon=1.0, calibration="paper").privacy.holds


def test_an_unsmoothed_score_cannot_be_released() -> None:
    with pytest.raises(UnboundedSensitivityError, match="Choose a smoothing"):
        trusted_aggregator(census(), epsilon=1.0, score=Score(Skew(0.0)))
