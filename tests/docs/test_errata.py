"""docs/paper-errata.md: every item names tests that exist, and the ones that need data."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, Reference
from fedprikl.checks import Floats, Ints
from fedprikl.demo import drifted_population, true_divergence
from fedprikl.divergence import Additive, Score, Skew, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import BatchCounts
from fedprikl.paper import no_privacy, printed_aggregator
from fedprikl.reference import BlockCode, all_points, iid_points

ROOT = Path(__file__).parent.parent.parent
DATA = Path(os.environ.get("FEDPRIKL_DATA", ROOT.parent / "shared" / "data"))
femnist = pytest.mark.skipif(
    not (DATA / "femnist_digits.npz").exists(),
    reason="needs femnist_digits.npz; name its folder in FEDPRIKL_DATA",
)


def digit_codes() -> tuple[Ints, Ints, Ints]:
    with np.load(DATA / "femnist_digits.npz") as file:
        codes = BlockCode().encode(file["images"])
        return codes, file["label"].astype(np.int64), file["writer"].astype(np.int64)


def test_every_item_names_tests_that_exist() -> None:
    text = (ROOT / "docs/paper-errata.md").read_text(encoding="utf-8")
    items = re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(items) == 9
    for item in items:
        named = re.findall(r"- `(tests/[\w/]+\.py)::(test_\w+)`", item)
        assert named, item[:60]
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_most_cells_of_a_small_batch_break_the_premise(rng: np.random.Generator) -> None:
    world = drifted_population(rng)
    points = all_points(world.reference.probabilities)
    counts = world.counts[world.batches(20, rng)[0]].sum(axis=0)  # of 5% of the clients
    assert np.mean(counts[points.cells] <= 1) > 0.5


@femnist
def test_most_codes_of_a_small_femnist_batch_break_the_premise(rng: np.random.Generator) -> None:
    codes, _, writers = digit_codes()
    chosen = rng.permutation(np.unique(writers))[: len(np.unique(writers)) // 20]
    _, cell = np.unique(codes, return_inverse=True)
    counts = np.bincount(cell[np.isin(writers, chosen)], minlength=cell.max() + 1)
    assert np.mean(counts <= 1) > 0.5


def additive_divergence(pi: Floats, counts: Ints, pseudo: float) -> float:
    """D(Pi || P with `pseudo` added to every cell), through the package's own score."""
    points = all_points(pi)
    batch = BatchCounts(points, counts[points.cells], np.array([counts.sum()]))
    return no_privacy(batch, score=Score(Additive(pseudo, len(pi)))).value


def test_adding_one_to_every_cell_destroys_the_divergence(rng: np.random.Generator) -> None:
    """2^16 cells, 100 in use, 4,000 records: the divergence of the smoothed pair collapses."""
    pi, p = np.zeros(2**16), np.zeros(2**16)
    pi[:100], p[:100] = rng.dirichlet(np.ones(100)), rng.dirichlet(np.ones(100))
    first, second = rng.multinomial(4000, pi), rng.multinomial(4000, p)
    smoothed = [(counts + 1) / (4000 + 2**16) for counts in (first, second)]
    truth = skewed_divergence(pi, p, skew=0.01)
    assert skewed_divergence(*smoothed, skew=0.0) < truth / 5


@femnist
def test_adding_one_on_femnist() -> None:
    """The closest and furthest pairs of digits, as codes of the paper's 16 bits."""
    codes, labels, _ = digit_codes()
    counts = [np.bincount(codes[labels == digit], minlength=2**16) for digit in range(10)]
    assert len(np.unique(codes)) == 421
    smoothed = [(c + 1) / (c.sum() + 2**16) for c in counts]
    assert skewed_divergence(smoothed[3], smoothed[8], skew=0.0) == pytest.approx(0.014, abs=0.0005)
    assert skewed_divergence(smoothed[9], smoothed[0], skew=0.0) == pytest.approx(0.141, abs=0.0005)
    shares = [c / c.sum() for c in counts]
    assert skewed_divergence(shares[3], shares[8], skew=0.01) == pytest.approx(0.277, abs=0.0005)
    assert skewed_divergence(shares[9], shares[0], skew=0.01) == pytest.approx(1.880, abs=0.0005)
    assert additive_divergence(shares[3], counts[8], 1.0) > 1  # against an unsmoothed Pi


@femnist
def test_a_reference_of_femnist_images_has_the_codes_of_its_digit() -> None:
    with np.load(DATA / "femnist_digits.npz") as file:
        threes = file["images"][file["label"] == 3]
        eights = file["images"][file["label"] == 8]
    reference = Reference.fit_images(threes)
    held = reference.count(eights)
    assert held.sum() == len(eights)
    assert 0 < held[reference.domain.other] < len(eights) / 10


@pytest.mark.parametrize("records", [200, 1000])
def test_the_bias_of_a_small_batch_follows_its_formula(records: int) -> None:
    """E[-ln(h/N)] + ln P against (1-P)/(2 N P), exactly over the binomial, cells far from empty."""
    pi, p = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
    bias = 0.0
    for cell in range(3):
        counts = np.arange(1, records + 1)
        chance = stats.binom.pmf(counts, records, p[cell])
        values = Score(Skew(0.0))(counts, pi[cell : cell + 1], np.array([records]))
        bias += pi[cell] * (float(chance @ values) / chance.sum() + np.log(p[cell] / pi[cell]))
    formula = float(np.sum(pi * (1 - p) / (2 * records * p)))
    assert bias == pytest.approx(formula, rel=0.1)


@pytest.mark.filterwarnings(f"ignore::{PaperCalibrationWarning.__module__}.PaperCalibrationWarning")
def test_the_bias_exceeds_the_noise_at_the_paper_settings(rng: np.random.Generator) -> None:
    world = drifted_population(rng)
    pi, truth = world.reference.probabilities, true_divergence(world)
    errors = []
    for _ in range(30):
        points = iid_points(pi, 10, batches=20, rng=rng)
        counts = world.sums(points, rng)
        errors.append(no_privacy(counts).value - truth)
    noise = printed_aggregator(counts, epsilon=1.0, source=InsecureSeededNoise(0)).noise_sd
    assert noise is not None
    assert np.mean(errors) > 5 * max(noise, float(np.std(errors)) / np.sqrt(30))
