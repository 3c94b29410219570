"""What a comparison ends with. All of it is public."""

import importlib.util
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw

from fedprikl.errors import InvalidInputError, MissingExtraError
from fedprikl.estimation import Verdict
from fedprikl.front.whole_files import json_text, write_whole
from fedprikl.privacy import PrivacyStatement
from fedprikl.protocol import Plan, Release
from fedprikl.reporting import ReleaseFacts, absences, release_page
from fedprikl.reporting.release_summary import release_summary

__all__ = ["Comparison"]

FrameLibrary = Literal["pandas", "polars", "pyarrow"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Comparison:
    """Whether and how far a population has drifted from the reference, and what it cost.

    `fedprikl.compare` makes it. Everything in it follows from the signed release, the plan and
    public facts of the round. In a notebook it shows itself as a page; `print` shows it as text.

    >>> import numpy as np
    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([500, 300, 200])
    >>> planned = fk.plan(reference, clients=6, records=600, epsilon=1.0)
    >>> rng = np.random.default_rng(1)
    >>> clients = [rng.choice(3, 100, p=[0.1, 0.1, 0.8]) for _ in range(6)]
    >>> noise = fk.InsecureSeededNoise(1)  # for an example that repeats; never for real records
    >>> result = fk.compare(reference, clients, planned, ledger=None, source=noise)
    >>> result.drifted
    True
    >>> low, high = result.interval
    >>> low < result.value < high
    True
    >>> result.privacy.claimed_epsilon
    1.0
    >>> fk.verify(result.release).value == result.value
    True
    """

    release: Release
    plan: Plan
    refusals: Mapping[str, str]  # client -> why it took no part
    left_out: Mapping[str, str]  # client -> why its records cannot be used
    payload_bytes: int  # masked counts that each client sent
    epsilon_left: float | None  # of the population's budget; None without a ledger
    notes: tuple[str, ...] = ()  # what the user should know besides

    @property
    def value(self) -> float:
        """The released estimate of the divergence, noise included."""
        return self.release.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95% interval, where there is one."""
        return self.release.interval

    @property
    def target(self) -> str:
        """What was estimated, in the paper's symbols."""
        return ReleaseFacts.of(self.release).target

    @property
    def verdict(self) -> Verdict | None:
        """Drifted or not, at the plan's false-alarm rate; None if it could not be computed."""
        found = self.release.content["verdict"]
        names = ("statistic", "threshold", "false_alarm", "design_effect", "unit")
        return None if found is None else Verdict(**{name: found[name] for name in names})

    @property
    def drifted(self) -> bool | None:
        """Whether the verdict found drift; None where there is no verdict."""
        return None if self.verdict is None else self.verdict.drifted

    @property
    def privacy(self) -> PrivacyStatement:
        """What is protected, to which degree, and who is trusted."""
        found = self.release.content["privacy"]
        names = ("delta", "claimed_epsilon", "mechanism", "released", "trust", "sensitivity")
        epsilon = found["true_epsilon"]
        return PrivacyStatement(
            epsilon=math.inf if epsilon is None else epsilon,
            insecure=found["insecure"],
            **{name: found[name] for name in names},
        )

    @property
    def absent(self) -> tuple[str, ...]:
        """Why clients took no part, each reason once."""
        return absences(self.refusals.values(), self.plan.most_records)

    @property
    def costs(self) -> dict[str, str]:
        """What the round cost, for people."""
        left = self.epsilon_left
        return {
            "bytes of masked counts per client": f"{self.payload_bytes:,}",
            "epsilon left in the budget": "no ledger was kept" if left is None else f"{left:.3g}",
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the signed release, and what else is known of the round."""
        return self.release.to_dict() | {
            "drifted": self.drifted,
            "refusals": dict(self.refusals),
            "left_out": dict(self.left_out),
            "epsilon_left": self.epsilon_left,
        }

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per answer, in a data frame of pandas, polars or pyarrow.

        By default the first of them that was imported already, or that is installed.
        """
        low, high = self.interval or (math.nan, math.nan)
        verdict, facts = self.verdict, ReleaseFacts.of(self.release)
        row = {
            "population": facts.population,
            "target": facts.target,
            "value": self.value,
            "low": low,
            "high": high,
            "drifted": self.drifted,
            "threshold": math.nan if verdict is None else verdict.threshold,
            "false_alarm": self.plan.false_alarm,
            "epsilon": self.plan.epsilon,
            "delta": self.plan.delta,
            "clients": facts.clients,
            "included": facts.included,
            "released_at": facts.released_at,
        }
        columns = {name: [value] for name, value in row.items()}
        return nw.from_dict(columns, backend=_library(library)).to_native()

    def save(self, path: str | Path) -> None:
        """Writes the signed release, as `fedprikl estimate` does; `fedprikl verify` reads it."""
        write_whole(Path(path), json_text(self.release.to_dict()))

    def save_html(self, path: str | Path) -> None:
        """Writes the report: one page without scripts, fonts or pictures from elsewhere."""
        page = release_page(self.release, self.plan, self.costs, (*self.absent, *self.notes))
        write_whole(Path(path), page)

    def _repr_html_(self) -> str:
        return release_summary(self.release, self.plan, (*self.absent, *self.notes))

    def __str__(self) -> str:
        facts = ReleaseFacts.of(self.release)
        verdict = facts.verdict or "There is no verdict: it could not be computed."
        lines = [facts.sentence, verdict, facts.counted, *self.absent, *self.notes]
        return "\n".join([*lines, facts.statement])

    def __repr__(self) -> str:
        between = "" if self.interval is None else "[{:.4g}, {:.4g}], ".format(*self.interval)
        return (
            f"<Comparison of {self.plan.population!r}: drifted={self.drifted}, "
            f"{self.value:.4g} {between}epsilon {self.plan.epsilon:g}>"
        )


def _library(wanted: str | None) -> FrameLibrary:
    known = get_args(FrameLibrary)
    if wanted is not None and wanted not in known:
        raise InvalidInputError(f"Frames are of pandas, polars or pyarrow, got {wanted!r:.40}.")
    choices = known if wanted is None else (wanted,)
    for name in sorted(choices, key=lambda name: name not in sys.modules):
        if importlib.util.find_spec(name) is not None:
            return name  # type: ignore[no-any-return]
    raise MissingExtraError(
        f"A frame needs {' or '.join(choices)}, which is not installed. `to_dict` needs nothing."
    )
