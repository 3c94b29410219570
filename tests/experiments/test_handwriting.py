"""Loaders of handwritten digits: LEAF's JSON, the compact file, the stand-in, the made-up one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.handwriting import (
    Digits,
    load_compact,
    load_leaf,
    load_stand_in,
    synthetic_handwriting,
)

from fedprikl import InvalidInputError

WHITE = [1.0] * 784


def page(*ink: int) -> list[float]:
    """A white image with these pixels black."""
    return [0.0 if place in ink else 1.0 for place in range(784)]


def leaf(users: dict[str, list[tuple[list[float], int]]]) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(held) for held in users.values()],
        "user_data": {
            name: {"x": [x for x, _ in held], "y": [y for _, y in held]}
            for name, held in users.items()
        },
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def ten_digits(first: int = 0) -> list[tuple[list[float], int]]:
    return [(page(first + digit), digit) for digit in range(10)]


def test_leaf_folders_are_joined_by_writer_and_letters_left_out(tmp_path: Path) -> None:
    letter = (page(5), 10)
    write(tmp_path / "train/a.json", leaf({"f0_1": [*ten_digits(), letter], "f0_2": [letter]}))
    write(tmp_path / "test/b.json", leaf({"f0_1": [(page(783), 3)], "f0_3": [(WHITE, 7)]}))
    digits = load_leaf(tmp_path)
    assert len(digits) == 12
    assert digits.writers == 2  # one wrote letters only
    assert digits.real
    threes = digits.population(3)
    assert np.bincount(threes.client).max() == 2  # train and test of one writer
    assert set(digits.code.tolist()) == {0, 1, 1 << 14, 1 << 15}


def test_leaf_and_compact_give_the_same_codes(tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.choice([0, 128, 255], (40, 28, 28), p=[0.01, 0.01, 0.98]).astype(np.uint8)
    label, writer = np.arange(40) % 10, np.arange(40) // 8
    np.savez(tmp_path / "c.npz", images=images, label=label, writer=writer)
    users: dict[str, list[tuple[list[float], int]]] = {}
    for image, y, w in zip(images, label, writer, strict=True):
        users.setdefault(f"w{w}", []).append(((image.ravel() / 255).tolist(), int(y)))
    compact = load_compact(tmp_path / "c.npz")
    assert load_leaf(write(tmp_path / "d.json", leaf(users))).sha256 == compact.sha256
    assert len(np.unique(compact.code)) > 5


def test_the_stand_in_has_the_owners_sizes_and_the_subsets_codes(tmp_path: Path) -> None:
    subset = Digits(
        name="s", code=np.arange(20) * 3, label=np.arange(20) % 10, writer=np.zeros(20, np.int64)
    )
    label, writer = np.repeat(np.arange(10), 50), np.tile(np.arange(25), 20)
    np.savez(tmp_path / "owners.npz", label=label, writer=writer)
    full = load_stand_in(subset, tmp_path / "owners.npz")
    assert (len(full), full.writers) == (500, 25)
    for digit in range(10):
        mine = set(full.code[full.label == digit].tolist())
        assert mine == set(subset.code[subset.label == digit].tolist())
    assert full.sha256 == load_stand_in(subset, tmp_path / "owners.npz").sha256
    assert full.sha256 != load_stand_in(subset, tmp_path / "owners.npz", seed=1).sha256


def test_made_up_handwriting_is_like_handwriting() -> None:
    digits = synthetic_handwriting(writers=300)
    assert not digits.real
    assert "made-up" in digits.name
    assert digits.writers == 300
    assert 25_000 < len(digits) < 45_000
    assert digits.code.max() < 2**16
    ink = (digits.code[:, None] >> np.arange(16)) & 1
    share = np.array([ink[digits.writer == w].mean() for w in range(300)])
    by_chance = ink.mean(axis=1).std() / np.sqrt(np.bincount(digits.writer).mean())
    assert share.std() > 3 * by_chance  # one writer's images are alike
    assert digits.sha256 == synthetic_handwriting(writers=300).sha256
    assert digits.distribution(3).sum() == pytest.approx(1)


BAD_LEAF: list[tuple[str, str]] = [
    ("not json", "cannot be read as JSON"),
    ("[1, 2]", "no table `user_data`"),
    ('{"users": []}', "no table `user_data`"),
    ('{"user_data": 3}', "no table `user_data`"),
    ('{"user_data": {}}', "each of the digits"),
    ('{"user_data": {"a": {"x": [[1, 1]], "y": [0]}}}', "784 pixels"),
    ('{"user_data": {"a": {"x": [], "y": [0]}}}', "as many labels"),
    ('{"user_data": {"a": {"y": [0]}}}', "as many labels"),
    (json.dumps(leaf({"a": [([2.0] * 784, 0)]})), "between 0"),
    (json.dumps(leaf({"a": [(WHITE, 0)]})), "each of the digits"),
]


@pytest.mark.parametrize(("text", "words"), BAD_LEAF)
def test_bad_leaf_files_say_what_to_do(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError, match=words):
        load_leaf(path)


def test_a_folder_without_json_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no JSON file"):
        load_leaf(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_leaf(tmp_path / "absent.json")


def test_bad_npz_files_say_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_compact(path)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_compact(tmp_path / "absent.npz")
    np.savez(path, images=np.zeros((1, 28, 28), np.uint8), label=np.zeros(1))
    with pytest.raises(InvalidInputError, match="writer"):
        load_compact(path)
    np.savez(path, images=np.zeros((1, 28, 28)), label=np.zeros(1), writer=np.zeros(1))
    with pytest.raises(InvalidInputError, match="uint8"):
        load_compact(path)
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_compact(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": np.arange(9)}, "one code, one label"),
        ({"label": np.zeros(10, np.int64)}, "each of the digits"),
        ({"code": np.full(10, 2**16)}, "16 bits"),
        ({"writer": np.full(10, -1)}, "negative"),
    ],
)
def test_impossible_digits_are_refused(changes: dict[str, Any], words: str) -> None:
    good = {"code": np.arange(10), "label": np.arange(10), "writer": np.zeros(10, np.int64)}
    with pytest.raises(InvalidInputError, match=words):
        Digits(name="x", **(good | changes))
