"""The same data and plan in `run_round`: what a federation must agree with."""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedprikl.deployment.settings import Home
from fedprikl.protocol import Client, Release, Roster, Server, SignedPlan, SigningKey, run_round
from fedprikl.records import open_records
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves
from tests.protocol.worlds import EVERYTHING, InsecureNoNoise


def in_process_value(home: Path, files: Sequence[Path], gone: Mapping[Path, Leaves]) -> float:
    """The value before noise; all cells are asked, so that it depends on no draw."""
    return in_process_release(home, files, gone).value


def in_process_release(home: Path, files: Sequence[Path], gone: Mapping[Path, Leaves]) -> Release:
    """The release without noise, of anybody's."""
    reference = Reference.load(Home(home).reference)
    known = Home(home).roster.exists()
    clients = {
        file.name: Client(
            open_records(file).count(reference).counts,
            reference,
            policy=EVERYTHING,
            randomness=os.urandom,
            source=InsecureNoNoise(),
            identity=SigningKey.load(file.with_suffix(".pem")) if known else None,
            roster=Roster.load(Home(home).roster) if known else None,
        )
        for file in files
    }
    return run_round(
        Server(SignedPlan.load(home / "plan.json"), reference),
        clients,
        key=SigningKey.generate(),
        ledger=None,
        software="fedprikl test",
        at=datetime.now(UTC).isoformat(),
        rng=np.random.default_rng(7),
        leaves={file.name: when for file, when in gone.items()},
        source=InsecureNoNoise(),
    ).release
