"""What is public changes by a decision, never by accident."""

import difflib
import importlib.util
from pathlib import Path

import pytest

import fedprikl as fk
from tests.compatibility.public import EXTENSIONS, RECORDED, public

DOCS = Path(__file__).parents[2] / "docs"


def test_public_names_commands_and_options_are_those_recorded() -> None:
    told = RECORDED.read_text().splitlines()
    changed = list(difflib.unified_diff(told, public().splitlines(), "recorded", "now", n=0))
    assert not changed, (
        "What is public has changed. If it is meant (docs/stability.md says what may go, and how), "
        "run `make record` and commit tests/compatibility/public.txt:\n" + "\n".join(changed)
    )


def test_a_changed_signature_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = public()
    monkeypatch.setitem(vars(fk), "verify", lambda release: release)
    assert public() != before


def test_every_extension_point_of_the_page_is_recorded() -> None:
    page = (DOCS / "extending.md").read_text()
    for name in EXTENSIONS:
        module, _, inside = name.partition(":")
        assert importlib.util.find_spec(module), module
        assert inside in page, name
