"""Records the golden values: `python -m tests.golden.record [file]`.

For a change that is meant to change numbers. A refactoring changes the calls in cases.py, never
values.json.
"""

import json
import sys
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.compare import VALUES, round_trip


def main(path: Path) -> None:
    values = {name: round_trip(case()) for name, case in sorted(CASES.items())}
    path.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else VALUES)
