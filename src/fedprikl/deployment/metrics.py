"""Metrics in Prometheus text format, for the node exporter's textfile collector.

Counters go on from the file of the round before; the file is replaced at once, never half written.
All of it is public: how rounds went and what is left of the budget, nothing about records. Times
are in whole seconds, since to the millisecond they would tell how much was counted.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["RoundMetrics", "read_counters", "write_metrics"]

HELP = {
    "fedprikl_rounds_total": ("counter", "Rounds by how they ended."),
    "fedprikl_clients_lost_total": ("counter", "Clients that did not answer, by step."),
    "fedprikl_clients_refused_total": ("counter", "Clients that refused to take part."),
    "fedprikl_step_seconds": ("gauge", "Wall time of each step of the last round."),
    "fedprikl_epsilon_left": ("gauge", "What is left of a population's budget."),
}
_SAMPLE = re.compile(r"^(\w+\{[^}]*\}|\w+) ([0-9.eE+-]+)$")


@dataclass(slots=True)
class RoundMetrics:
    """What one round adds."""

    released: bool = False
    repeated: bool = False  # an earlier release was told again: there was no round
    refused: int = 0
    lost: dict[str, int] = field(default_factory=dict)  # step -> clients
    seconds: dict[str, float] = field(default_factory=dict)  # step -> wall time
    left: dict[str, float] = field(default_factory=dict)  # population -> epsilon


def write_metrics(path: Path, current: RoundMetrics) -> None:
    """Adds a round to the file."""
    counters = read_counters(path)
    outcome = "released" if current.released else "failed"
    for name in ("released", "failed"):
        _add(counters, "fedprikl_rounds_total", "outcome", name, float(name == outcome))
    for step, lost in current.lost.items():
        _add(counters, "fedprikl_clients_lost_total", "step", step, lost)
    refused = "fedprikl_clients_refused_total"
    counters[refused] = counters.get(refused, 0.0) + current.refused
    samples = dict(counters)
    samples |= {
        _sample("fedprikl_step_seconds", "step", s): round(t) for s, t in current.seconds.items()
    }
    samples |= {
        _sample("fedprikl_epsilon_left", "population", p): e for p, e in current.left.items()
    }
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(_text(samples), encoding="utf-8")
    os.replace(fresh, path)


def read_counters(path: Path) -> dict[str, float]:
    """The counters of a file; none if there is no file yet."""
    if not path.exists():
        return {}
    found = map(_SAMPLE.match, path.read_text(encoding="utf-8").splitlines())
    return {
        match[1]: float(match[2])
        for match in found
        if match and HELP.get(match[1].split("{")[0], ("",))[0] == "counter"
    }


def _add(samples: dict[str, float], name: str, label: str, value: str, amount: float) -> None:
    key = _sample(name, label, value)
    samples[key] = samples.get(key, 0.0) + amount


def _sample(name: str, label: str, value: str) -> str:
    clean = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}{{{label}="{clean}"}}'


def _text(samples: Mapping[str, float]) -> str:
    lines = []
    for name, (kind, words) in HELP.items():
        own = [f"{key} {value:g}" for key, value in samples.items() if key.split("{")[0] == name]
        if own:
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *own]
    return "\n".join(lines) + "\n"
