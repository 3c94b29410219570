"""How a benchmark of single numbers shows them."""

import json
from collections.abc import Mapping
from typing import Any


def show(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints one JSON object, or a line for each number."""
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        print(f"{key:32} {value}")
