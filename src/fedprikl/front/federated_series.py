"""A series over a federation: the aggregator counts, this side keeps the history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.organiser import ask_for_period, check_connection
from fedprikl.deployment.progress import named, not_counted
from fedprikl.monitoring.history import History
from fedprikl.protocol import SignedPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedSeries:
    """Asks a federation for the periods of a series. An answer that was lost is asked for again."""

    signed: SignedPlan
    superlink: str  # the connection's name in Flower's config file
    name: str  # of the plan's file at the aggregator
    key: str  # the aggregator's public key
    config: Mapping[str, str | float] = field(default_factory=dict)
    app: Path = APP_FOLDER
    federation: Sequence[str] = ()
    note: Callable[[str], None] = lambda _: None
    members: Mapping[str, str] = field(default_factory=dict)  # of the roster, see `roster_names`

    def recover(self, history: History, *, at: str) -> None:
        """Nothing to settle here: the aggregator tells the release of a period again."""

    def run(self, history: History, number: int, *, previous: str, at: str) -> None:
        """Has one period counted and keeps its release, and who of the roster was counted."""
        check_connection(self.superlink)  # not before: where nothing is due, no relay is needed
        lines: list[str] = []

        def tell(line: str) -> None:
            lines.append(line)
            self.note(named(line, self.members))

        release = ask_for_period(
            self.superlink,
            self.signed.plan,
            name=self.name,
            period=number,
            previous=previous,
            key=self.key,
            config=dict(self.config),
            app=self.app,
            federation=self.federation,
            tell=tell,
        )
        missing = not_counted(lines)
        asked = {} if missing is None else self.members
        answered = [name for key, name in asked.items() if key not in (missing or ())]
        history.keep(release.to_bytes(), asked=asked.values(), answered=answered, at=at)
