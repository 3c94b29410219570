"""Loaders for FEMNIST digits: LEAF's JSON, a compact npz file, and a full-size stand-in."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference import BlockCode
from fedprikl.simulation.digits import CLASSES, Digits

__all__ = ["load_compact", "load_leaf", "load_stand_in"]

SIDE = 28
STAND_IN_SEED = 0
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
