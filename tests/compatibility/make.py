"""Files as the current software writes them, for later ones to read: `make record`.

    python -m tests.compatibility.make [folder]

Once a version is released, its folder is never made again: the tests read it for ever. What is new
in a later version gets a folder of its own.
"""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fedprikl as fk
from fedprikl.deployment.policy import policy_text
from fedprikl.deployment.site_memory import SiteMemory
from fedprikl.documents import readable
from fedprikl.privacy import InsecureSeededNoise, Ledger
from fedprikl.protocol import Invitation, SignedPlan, SigningKey, Step
from fedprikl.store import Head
from tests.monitoring.small_series import REFERENCE, World, over, plan_of
from tests.plans import make_plan
from tests.secure_sum.helpers import make_plan as make_sums

FOLDER = Path(__file__).with_name("1.0")
AT = "2030-01-31T12:00:00+00:00"
# Whoever made these files, the same keys: they protect nothing.
KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"compatibility").digest()))
LOGGED = Head(1, 64 * "0")  # of the log of a site
RECORDS = Path("/site/records.csv")  # which is not opened: a memory knows records by their place
KINDS: dict[str, dict[str, Any]] = {
    "aggregator": {"trust": "aggregator"},
    "none": {"trust": "none"},
    "client": {"unit": "client"},
    "servers": {"trust": "servers"},
}
SITE_PLAN = SignedPlan.sign(
    make_plan(
        population="sites",
        valid_from="2030-01-01T00:00:00+00:00",
        valid_until="2030-03-01T00:00:00+00:00",
    ),
    KEY,
)


def made_up(rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """A table with every kind of column."""
    return pl.DataFrame(
        {
            "city": rng.choice(["Aarhus", "Bergen", "Turku"], rows, p=[0.5, 0.3, 0.2]),
            "age": rng.normal(40, 12, rows).round(1),
            "day": [f"2029-{month:02}-11" for month in rng.integers(1, 13, rows)],
            "user": rng.integers(0, 40, rows),
        }
    )


def rounds() -> dict[str, Any]:
    """A reference of a table; three plans, a release of each, one ledger; noised numbers."""
    rng = np.random.default_rng(30)
    reference = fk.Reference.fit(made_up(2000, rng), client="user")
    reference.save("reference.json")
    numbers = {}
    kept: list[bytes] = []
    with Ledger.open("ledger.db") as ledger:
        original = ledger.keep_noised

        def keep(reservation: Any, document: bytes, *, at: str) -> None:
            kept.append(document)
            original(reservation, document, at=at)

        ledger.keep_noised = keep  # type: ignore[method-assign]
        for name, more in KINDS.items():
            planned = fk.plan(
                reference, clients=20, records=600, epsilon=1, delta=1e-6, population=name, **more
            )
            signed = SignedPlan.sign(planned.plan, KEY)
            Path(f"plan-{name}.json").write_text(readable(signed.to_dict()))
            result = fk.compare(
                reference,
                [made_up(30, rng).drop("user") for _ in range(20)],
                signed,
                ledger=ledger,
                key=KEY,
                rng=np.random.default_rng(1),
                source=InsecureSeededNoise(5),
            )
            Path(f"release-{name}.json").write_text(readable(result.release.to_dict()))
            numbers[name] = {
                "fingerprint": result.release.fingerprint,
                "values": [each.value for each in result.release.answers],
                "drifted": result.release.drifted,
            }
        Path("noised-round.json").write_bytes(kept[0])
        ledger.set_budget("open", epsilon=2, delta=1e-6, at=AT)
        charge = ledger.account("aggregator").rounds[0].charge
        ledger.reserve("open", charge, round_id="begun", at=AT)  # a process that died
        spent = {each.population: each.spent for each in ledger.accounts()}
        head = {"count": ledger.head.count, "hash": ledger.head.hash}
    return {"releases": numbers, "spent": spent, "head": head, "reference": reference.fingerprint}


def series() -> dict[str, Any]:
    """Two weeks of a series."""
    world = World.create(Path("series").absolute(), plan_of(false_alarm=1e-4))
    REFERENCE.save(world.folder / "reference.json")
    for week in range(2):
        world.grow(week)
    status = world.monitor(over(1), key=KEY)
    with Ledger.open(world.ledger) as ledger:
        spent = ledger.account("clients").spent
    return {"states": [point.state for point in status.points], "spent": spent}


def invited(round_id: str) -> Invitation:
    """A site, to a round of its plan."""
    return Invitation(round_id, SITE_PLAN, 0, 0, 0, (), make_sums(clients=3), None)


def site() -> dict[str, Any]:
    """A policy, and the memory of a site that was counted once and has begun another round."""
    text = policy_text({"hospitals": KEY.public}, require_roster=True)
    Path("policy.toml").write_text(text)
    memory = SiteMemory(Path("site.db"), RECORDS)
    for name in ("counted", "begun"):
        memory.begin(invited(name), most_counts=1, at=AT)
    memory.go_on("counted", Step.SHARE)
    memory.count(invited("counted"), most_counts=1, at=AT, log=lambda: LOGGED)
    return {}


MAKERS: dict[str, Callable[[], dict[str, Any]]] = {
    "rounds": rounds,
    "series": series,
    "site": site,
}


def main(folder: Path) -> None:
    """Makes all files anew, in the place of those that are there."""
    with tempfile.TemporaryDirectory() as made:
        with chdir(made):
            expected = {name: make() for name, make in MAKERS.items()}
            Path("expected.json").write_text(readable(expected))
            for path in Path().rglob("*.lock"):
                path.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
