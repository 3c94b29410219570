"""The test vectors that the VDAF drafts publish. They are not part of this repository.

    draft-irtf-cfrg-vdaf-20          github.com/cfrg/draft-irtf-cfrg-vdaf, test_vec/vdaf,
                                     revision 5203892540a95e564dfa978345d16b40baf3c65d
    draft-ietf-ppm-l1-bound-sum-02   github.com/ietf-wg-ppm/draft-ietf-ppm-l1-bound-sum, test_vec/vdaf,
                                     revision dd9860656d50340987a30dbfaec1a91de216963e

Set FEDPRIKL_VDAF_VECTORS to the folders that hold them (separated as in PATH); without it, the
tests that read them are skipped.
"""  # noqa: E501

import json
import os
from pathlib import Path
from typing import Any

from contrib.dap import Prio3, Prio3Histogram, Prio3L1BoundSum, Prio3SumVec

FOLDERS = "FEDPRIKL_VDAF_VECTORS"
KINDS = {kind.name: kind for kind in (Prio3Histogram, Prio3L1BoundSum, Prio3SumVec)}


def vector_files() -> list[Path]:
    """The vectors of all kinds of Prio3 that we use; those of reports that must fail as well."""
    folders = [Path(each) for each in os.environ.get(FOLDERS, "").split(os.pathsep) if each]
    found = [path for folder in folders for path in sorted(folder.glob("Prio3*_*.json"))]
    return [path for path in found if path.name.split("_")[0] in KINDS]


def read_vector(path: Path) -> tuple[Prio3, dict[str, Any]]:
    """The kind with its parameters, and the vector."""
    vector = json.loads(path.read_bytes())
    kind = KINDS[path.name.split("_")[0]]
    names = ("length", "chunk_length", "max_value", "max_measurement")
    return kind(**{name: vector[name] for name in names if name in vector}), vector


def counts_of(kind: Prio3, measurement: Any) -> list[int]:
    """A measurement of a vector as counts of cells."""
    if isinstance(kind, Prio3Histogram):
        return [int(cell == measurement) for cell in range(kind.length)]
    return [int(count) for count in measurement]
