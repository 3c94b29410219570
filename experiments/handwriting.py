"""Handwritten digits as the paper codes them: one 16-bit code per image, and who wrote it."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.population import Population
from fedprikl.checks import Floats, Ints, check_counts, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference import BlockCode

CLASSES = 10
CODES = 1 << 16
SIDE = 28
STAND_IN_SEED = 0
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Digits:
    """One entry per image. A writer is a client; the images of one digit are a population.

    The domain has a cell for every code that occurs in any digit, and "other" at the end.
    """

    name: str  # where the images come from, for captions
    code: Ints
    label: Ints  # 0 .. 9
    writer: Ints  # any whole numbers; renumbered 0 .. writers-1
    real: bool = True  # False: made up
    codes: Ints = field(init=False)  # the code of each cell
    cell: Ints = field(init=False)
    writers: int = field(init=False)

    def __post_init__(self) -> None:
        code, label = check_counts(self.code, "codes"), check_counts(self.label, "labels")
        writer = check_counts(self.writer, "writers")
        if not len(code) == len(label) == len(writer):
            raise InvalidInputError("Every image needs one code, one label and one writer.")
        if not np.array_equal(np.unique(label), np.arange(CLASSES)):
            raise InvalidInputError("The images must show each of the digits 0 to 9, and no more.")
        if code.max() >= CODES:
            raise InvalidInputError(f"Codes have 16 bits: they must be below {CODES}.")
        codes, cell = np.unique(code, return_inverse=True)
        names, of_image = np.unique(writer, return_inverse=True)
        values = {"code": code, "label": label, "writer": of_image, "codes": codes, "cell": cell}
        for name, value in values.items():
            object.__setattr__(self, name, value.astype(np.int64))
        object.__setattr__(self, "writers", len(names))

    def __len__(self) -> int:
        return len(self.code)

    @property
    def cells(self) -> int:
        """Size of the domain, "other" included."""
        return len(self.codes) + 1

    @property
    def sha256(self) -> str:
        """Of all codes, labels and (renumbered) writers: equal for equal data, in any format."""
        digest = hashlib.sha256()
        for part in (self.code, self.label, self.writer):
            digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        return digest.hexdigest()

    def population(self, digit: int) -> Population:
        """All writers with their images of this digit."""
        mine = self.label == digit
        return Population(self.writer[mine], self.cell[mine], self.cells, self.writers)

    def counts(self, digit: int) -> Ints:
        """How many images of this digit fall into each cell."""
        return np.bincount(self.cell[self.label == digit], minlength=self.cells).astype(np.int64)

    def distribution(self, digit: int) -> Floats:
        """P_digit(x): the share of this digit's images in each cell."""
        counts = self.counts(digit)
        shares: Floats = counts / counts.sum()
        return shares


Arrays = dict[str, npt.NDArray[Any]]


def load_leaf(path: str | Path) -> Digits:
    """The digits of a LEAF FEMNIST download: one JSON file, or a folder of them (any depth).

    LEAF's pixels are 1 for white paper and its labels 0 to 9 are the digits; letters are left
    out. A writer found in several files (train and test) is one client. Cost: one file in memory
    at a time.
    """
    place = Path(path)
    files = sorted(place.rglob("*.json")) if place.is_dir() else [place]
    if not files:
        raise InvalidInputError(f"{place} holds no JSON file; name LEAF's data folder.")
    numbers: dict[str, int] = {}
    codes, labels, writers = [], [], []
    for file in files:
        for name, code, label in _leaf_users(file):
            codes.append(code)
            labels.append(label)
            writers.append(np.full(len(code), numbers.setdefault(name, len(numbers)), np.int64))
    return Digits(
        name="FEMNIST digits (LEAF)",
        code=np.concatenate(codes) if codes else np.zeros(0, np.int64),
        label=np.concatenate(labels) if labels else np.zeros(0, np.int64),
        writer=np.concatenate(writers) if writers else np.zeros(0, np.int64),
    )


def load_compact(path: str | Path) -> Digits:
    """The digits of an npz file with `images` (n, 28, 28) uint8, `label` and `writer`."""
    arrays = _load_npz(Path(path), ("images", "label", "writer"))
    images = arrays["images"]
    if images.dtype != np.uint8:
        raise InvalidInputError(f"`images` must be uint8, 255 for white paper, got {images.dtype}.")
    return Digits(
        name="FEMNIST digits (subset)",
        code=BlockCode().encode(images),
        label=arrays["label"],
        writer=arrays["writer"],
    )


def load_stand_in(digits: Digits, owners: str | Path, *, seed: int = STAND_IN_SEED) -> Digits:
    """As many digits by as many writers as `owners` (npz: `label`, `writer`) lists.

    The images of the full data set are not at hand, so each one's code is drawn from the codes
    that `digits` has of the same digit. Sizes are true, the codes' distribution is that of
    `digits`; that one writer's images are alike is lost.
    """
    arrays = _load_npz(Path(owners), ("label", "writer"))
    label = arrays["label"].astype(np.int64)
    code = np.zeros(len(label), np.int64)
    rng = np.random.default_rng(seed)
    for digit in range(CLASSES):
        mine = label == digit
        code[mine] = rng.choice(digits.code[digits.label == digit], int(mine.sum()))
    return Digits(
        name="full-size stand-in for FEMNIST digits",
        code=code,
        label=label,
        writer=arrays["writer"],
    )


def _leaf_users(file: Path) -> Iterator[tuple[str, Ints, Ints]]:
    """Each writer of a file with the codes and labels of their digits."""
    try:
        with file.open(encoding="utf-8") as stream:
            users = json.load(stream)["user_data"]
        items = list(users.items())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInputError(f"{file} cannot be read as JSON: {error}") from None
    except (KeyError, TypeError, AttributeError):
        raise InvalidInputError(
            f"{file} is not a LEAF file: it has no table `user_data`. Name LEAF's data folder."
        ) from None
    for name, held in items:
        try:
            label = np.asarray(held["y"], dtype=np.int64)
            digit = label < CLASSES
            pixels = np.asarray(held["x"], dtype=np.float64)[digit].reshape(-1, SIDE, SIDE)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            raise InvalidInputError(
                f"{file}: writer {name!r} needs as many labels `y` as images `x` of "
                f"{SIDE * SIDE} pixels. Download the file again."
            ) from None
        if pixels.size and (pixels.min() < 0 or pixels.max() > 1):
            raise InvalidInputError(f"{file}: pixels must lie between 0 (ink) and 1 (paper).")
        yield str(name), BlockCode(white=1.0).encode(pixels), label[digit]


def _load_npz(path: Path, names: tuple[str, ...]) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in names}
    except KeyError as error:
        raise InvalidInputError(
            f"{path} has no array {error}; it needs {', '.join(names)}."
        ) from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path} cannot be read as an npz file: {error}") from None
    check_positive_int(len(arrays["label"]), "the number of images")
    return arrays


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
