"""Arguments that are not what they should be: refused in words, before anything is charged."""

from pathlib import Path
from typing import Any

import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError

REFERENCE = fk.Reference.from_counts([50, 50])
CLIENTS = [[0, 1] * 10, [1] * 20, [0] * 20]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"source": None}, "`source` draws the noise"),
        ({"rng": 7}, "np.random.default_rng"),
        ({"key": 7}, "`key` is a SigningKey or the path"),
        ({"largest_epsilon": None}, "Give a number above 0"),
        ({"largest_delta": "x"}, "Give a number above 0"),
    ],
)
def test_nothing_is_charged_for_a_wrong_argument(
    tmp_path: Path, wrong: dict[str, Any], words: str
) -> None:
    planned = fk.plan(REFERENCE, clients=3, records=60, epsilon=1)
    ledger = tmp_path / "ledger.db"
    with pytest.raises(InvalidInputError, match=words):
        fk.compare(REFERENCE, CLIENTS, planned, ledger=ledger, **wrong)
    assert not ledger.exists()


def test_a_signing_key_is_not_its_public_half() -> None:
    planned = fk.plan(REFERENCE, clients=3, records=60, epsilon=1)
    key = fk.SigningKey.generate()
    result = fk.compare(REFERENCE, CLIENTS, planned, ledger=None, key=key)
    with pytest.raises(InvalidInputError, match="of a SigningKey, give"):
        fk.verify(result.release, key=key)  # type: ignore[arg-type]
