"""The notebook is kept without outputs. `test_site.py` sees it run, as the site shows it."""

import json

from tests.docs.pages import DOCS

DOCUMENT = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))


def test_outputs_are_stripped() -> None:
    assert (DOCUMENT["nbformat"], DOCUMENT["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in DOCUMENT["cells"]}) == len(DOCUMENT["cells"])
    for cell in DOCUMENT["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        else:
            assert set(cell) == {"cell_type", "id", "metadata", "source"}
        assert cell["metadata"] == {}
