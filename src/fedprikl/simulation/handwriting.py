"""Made-up handwriting: digits as 16-bit codes, written by people who each have a style."""

import numpy as np

from fedprikl.checks import Floats, check_positive_int
from fedprikl.simulation.digits import CLASSES, Digits

__all__ = ["synthetic_handwriting"]

# How often ink reaches each part of a 4 x 4 grid over the digit, in tenths; 9 is nearly always
# and 0 nearly never. The middle always holds ink; a digit shows in how far it reaches out.
SHAPES = (
    "0130 1991 2991 0320",
    "0140 0990 0990 0420",
    "0330 1991 3993 0430",
    "0550 1991 2991 0550",
    "0360 1992 2991 0450",
    "0351 1994 4991 0530",
    "0340 1990 1991 0650",
    "0550 1991 1990 0430",
    "0560 1992 1991 0650",
    "0670 1991 0990 0550",
)
NEVER = 0.003  # chance of ink where a shape has 0
STYLE_SIZE, STYLE_SHAPE = 0.8, 0.4  # spread between writers, in logits: overall, and part by part


def synthetic_handwriting(
    seed: int = 0, *, writers: int = 3579, images_per_digit: float = 11.25
) -> Digits:
    """As many writers and about as many digits as FEMNIST, from shapes drawn by hand.

    The logit of "this part holds ink" is the digit's shape plus the writer's style: how large they
    write, and where. Given both, the sixteen parts are independent.
    """
    rng = np.random.default_rng(seed)
    shapes = _logits()
    style = STYLE_SIZE * rng.standard_normal((check_positive_int(writers, "writers"), 1))
    style = style + STYLE_SHAPE * rng.standard_normal((writers, 16))
    held = np.maximum(rng.poisson(images_per_digit, (writers, CLASSES)), 1)
    writer = np.repeat(np.arange(writers), held.sum(axis=1))
    label = np.repeat(np.tile(np.arange(CLASSES), writers), held.ravel())
    logit = shapes[label] + style[writer]
    ink = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    code = ink.astype(np.int64) @ (1 << np.arange(15, -1, -1))
    return Digits(
        name="made-up handwriting, not FEMNIST", code=code, label=label, writer=writer, real=False
    )


def _logits() -> Floats:
    """ln(p / (1 - p)) of every digit and part, before any style."""
    tenths = np.array([[int(part) for part in shape if part != " "] for shape in SHAPES])
    chance = np.select([tenths == 0, tenths == 9], [NEVER, 1 - NEVER], tenths / 10)
    logits: Floats = np.log(chance / (1 - chance))
    return logits
