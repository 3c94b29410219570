"""All answers of one round: an estimate per question, one privacy statement, one verdict."""

from dataclasses import dataclass, field

from fedprikl.errors import InvalidInputError
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.noisy_views import NoisyViews
from fedprikl.estimation.statistic import (
    Statistic,
    judge_together,
    simulate_together,
)
from fedprikl.estimation.verdict import Verdict
from fedprikl.privacy import PrivacyStatement
from fedprikl.reference import Spread

__all__ = ["Estimates", "Judgement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What follows from simulated populations without drift."""

    verdict: Verdict
    no_drift: tuple[float | None, ...]  # per estimate: its mean without drift, if known


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimates:
    """One estimate for each question of a plan, from the same counts."""

    each: tuple[Estimate, ...]
    privacy: PrivacyStatement  # of all together
    payload: int  # counts each client reported
    records: int  # of all batches
    noisy_counts: NoisyCounts | None = field(default=None, repr=False)  # where they are released
    columns: NoisyViews | None = field(default=None, repr=False)  # where columns are asked

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What the verdict rests on; estimates from the same noisy counts share one."""
        known = [found.statistic for found in self.each if found.statistic is not None]
        return tuple({id(statistic): statistic for statistic in known}.values())

    def judge(self, false_alarm: float, spread: float | Spread) -> Judgement:
        """Drifted or not, and what each estimate would be without drift. One simulation.

        About a second for 500 asked cells and three questions.
        """
        statistics = self.statistics
        if not statistics:
            raise InvalidInputError("How these estimates spread without drift is not known.")
        model = NoDrift.of(statistics[0].points, statistics[0].records, spread)
        nulls = simulate_together(statistics, model, false_alarm=false_alarm)
        means = {
            id(statistic): null.mean for statistic, null in zip(statistics, nulls, strict=True)
        }
        return Judgement(
            verdict=judge_together(statistics, model, nulls, false_alarm=false_alarm),
            no_drift=tuple(
                found.typical(model) if found.typical else means.get(id(found.statistic))
                for found in self.each
            ),
        )
