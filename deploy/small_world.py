"""A small population in files: a public table, and one table per site that has drifted from it."""

import json
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from fedprikl.deployment.settings import Home
from fedprikl.documents import digest
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Roster,
    SealingKey,
    SignedPlan,
    SigningKey,
)
from fedprikl.records import fit_reference
from fedprikl.reference import Reference

__all__ = [
    "node_configs",
    "set_up_aggregator",
    "with_policy",
    "write_plan",
    "write_policy",
    "write_roster",
    "write_rows",
    "write_sites",
]


def write_rows(path: Path, rng: np.random.Generator, rows: int, mean: float) -> None:
    """Ages around a mean, and a plan."""
    ages, plans = rng.normal(mean, 12, rows), rng.choice(["basic", "plus"], rows)
    lines = [f"{age:.1f},{plan}" for age, plan in zip(ages, plans, strict=True)]
    path.write_text("age,plan\n" + "\n".join(lines) + "\n", encoding="utf-8")


def write_sites(folder: Path, *, sites: int, rows: int, seed: int = 5) -> list[Path]:
    """public.csv and clients/site000.csv, ..."""
    rng = np.random.default_rng(seed)
    write_rows(folder / "public.csv", rng, 5000, 40.0)
    (folder / "clients").mkdir()
    paths = [folder / "clients" / f"site{i:03d}.csv" for i in range(sites)]
    for path in paths:
        write_rows(path, rng, rows, 46.0)
    return paths


def set_up_aggregator(folder: Path, public: Path, *, budget: float = 10.0, **plan: Any) -> None:
    """An aggregator's home: keys, reference, signed plan, a ledger with a budget."""
    home = Home(folder)
    SealingKey.generate().save(home.sealing_key)
    SigningKey.load_or_create(home.signing_key)
    reference = fit_reference(public)
    reference.save(home.reference)
    SigningKey.load_or_create(folder / "organiser.pem")
    write_plan(folder, **plan)
    with Ledger.open(home.ledger) as ledger:
        now = datetime.now(UTC).isoformat()
        ledger.set_budget("sites", epsilon=budget, delta=1e-6, at=now)


def write_plan(folder: Path, name: str = "plan.json", **changes: Any) -> SignedPlan:
    """A plan for the aggregator of a folder, signed by its organiser.

    `points` are those of its question: by default all, so that nothing is left to chance.
    """
    home = Home(folder)
    reference = Reference.load(home.reference)
    points = changes.pop("points", int(np.count_nonzero(reference.whole.mass)))
    counts = changes.get("trust") == "none" or "when" in changes
    question = Question(release="counts" if counts else "value", noise=changes.pop("noise", "auto"))
    now = datetime.now(UTC)
    plan = Plan(
        population="sites",
        reference=reference.fingerprint,
        trust=changes.pop("trust", "aggregator"),
        budget=Budget(epsilon=1.0),
        views=(AskedView(points=points),),
        questions=(question,),
    )
    settings: dict[str, Any] = {
        "dropout": 0.25,
        "aggregator": SealingKey.load(home.sealing_key).public,
        "valid_from": (now - timedelta(days=1)).isoformat(),
        "valid_until": (now + timedelta(days=30)).isoformat(),
    }
    signed = SignedPlan.sign(
        plan.changed(**(settings | changes)), SigningKey.load(folder / "organiser.pem")
    )
    (folder / name).write_text(json.dumps(signed.to_dict()), encoding="utf-8")
    return signed


def write_roster(folder: Path, files: list[Path], *, budget: float = 10.0) -> Roster:
    """An identity and a ledger beside each site's file; the roster in the aggregator's folder."""
    lines = ["# the sites of a small world"]
    for file in files:
        key = SigningKey.load_or_create(file.with_suffix(".pem"))
        lines.append(f"{key.public} {file.stem}")
        with Ledger.open(file.with_suffix(".db")) as ledger:
            now = datetime.now(UTC).isoformat()
            ledger.set_budget("sites", epsilon=budget, delta=1e-6, at=now)
    Home(folder).roster.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Roster.load(Home(folder).roster)


def node_configs(folder: Path, files: list[Path], **limits: Any) -> list[dict[str, str]]:
    """What each site tells its SuperNode. Limits are those of its policy, like `most_counts=2`."""
    home, organiser = Home(folder), SigningKey.load(folder / "organiser.pem").public
    known = home.roster.exists()
    policy = write_policy(folder, organiser, **limits)
    return [
        {
            "data": str(file),
            "reference": str(home.reference),
            "policy": str(policy),
            **(_membership(home, file) if known else {}),
        }
        for file in files
    ]


def write_policy(folder: Path, organiser: str, **limits: Any) -> Path:
    """A policy.toml under a name of its own: whoever has an older one keeps it."""
    own = {"approve": "always"} | limits
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}" for name, value in own.items()]
    text = "\n".join([*lines, "[organisers]", f'"small world" = "{organiser}"', ""])
    path = folder / f"policy-{digest([text])[:16]}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def with_policy(config: Mapping[str, Any], **limits: Any) -> dict[str, Any]:
    """The node config with other limits in its policy."""
    path = Path(str(config["policy"]))
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    (organiser,) = found.pop("organisers").values()
    own = {name.replace("-", "_"): value for name, value in found.items()} | limits
    return {**config, "policy": str(write_policy(path.parent, organiser, **own))}


def _membership(home: Home, file: Path) -> dict[str, str]:
    return {
        "identity": str(file.with_suffix(".pem")),
        "ledger": str(file.with_suffix(".db")),
        "roster": str(home.roster),
    }
