"""Flower's grid in one process: the real ClientApp behind it, and every way a node can fail."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deploy.small_world import node_configs, set_up_aggregator, with_policy, write_sites
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from fedprikl.deployment.flower.client import SESSION, app
from fedprikl.deployment.flower.server import run_on_flower
from fedprikl.deployment.host import Host
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.monitoring.metrics import read_samples
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol import Release, Step

AT = datetime.now(UTC).isoformat()  # of all parties: sites look at the clock
STEPS = {step.value for step in Step}  # before them there may be a identity check


@dataclass
class FakeTime:
    """A clock that moves only when somebody sleeps."""

    seconds: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> float:
        return self.seconds


@dataclass
class FakeGrid(Grid):
    """Nodes 1, 2, ...; a message is handled when it is pulled, by a process of its own.

    `delay` says how many seconds a node takes for a step; infinite is a node that has vanished.
    `alter` may replace an answer on the way, or add more.
    """

    contexts: dict[int, Context]
    time: FakeTime = field(default_factory=FakeTime)
    delay: Callable[[int, Step], float] = lambda _node, _step: 0.0
    alter: Callable[[Message, Message], list[Message]] = lambda _asked, answer: [answer]
    carried: list[Message] = field(default_factory=list)  # all a relay ever sees
    _queue: dict[str, tuple[float, Message]] = field(default_factory=dict)

    def limit(self, *nodes: int, **limits: Any) -> None:
        """Changes the policies of nodes, like `limit(7, largest_epsilon=0.5)`."""
        for node in nodes:
            config = self.contexts[node].node_config
            config.update(with_policy(config, **limits))

    def set_run(self, run: object) -> None: ...

    @property
    def run(self) -> object:  # type: ignore[override]
        return None

    def create_message(self, *_: object, **__: object) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *_: object, **__: object) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            what = message.metadata.message_type.removeprefix("query.")
            takes = self.delay(message.metadata.dst_node_id, Step(what)) if what in STEPS else 0.0
            due = self.time.seconds + takes
            self._queue[message.object_id] = (due, message)
            self.carried.append(message)
            ids.append(message.object_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found: list[Message] = []
        for each in message_ids:
            due, message = self._queue.get(each, (float("inf"), None))
            if message is not None and due <= self.time.seconds:
                del self._queue[each]
                answer = self.deliver(message)
                answers = self.alter(message, answer)
                self.carried += answers
                found += answers
        return found

    def deliver(self, message: Message) -> Message:
        """As a SuperNode does: a fresh process, the context kept between messages."""
        return app(message, self.contexts[message.metadata.dst_node_id])


@dataclass
class FakeFederation:
    """An aggregator's home, sites with files, and a grid between them."""

    home: Path
    files: list[Path]

    @classmethod
    def make(
        cls, folder: Path, monkeypatch: pytest.MonkeyPatch, *, sites: int = 8, **plan: Any
    ) -> "FakeFederation":
        files = write_sites(folder, sites=sites, rows=60)
        home = folder / "aggregator"
        home.mkdir()
        set_up_aggregator(home, folder / "public.csv", **plan)
        monkeypatch.setenv("FEDPRIKL_HOME", str(folder / "site"))  # of the clients' memory
        return cls(home, files)

    def grid(self, **limits: Any) -> FakeGrid:
        """Fresh processes of the same sites; `most_counts=2` and the like for all of them."""
        configs = node_configs(self.home, self.files, **limits)
        return FakeGrid(
            {
                number: Context(
                    run_id=1,
                    node_id=number,
                    node_config=dict(config),
                    state=RecordDict(),
                    run_config={},
                )
                for number, config in enumerate(configs, start=1)
            }
        )

    def settings(self, **changes: object) -> RoundSettings:
        return RoundSettings.of(
            {"clients": len(self.files), "step-timeout": 30.0, "grace": 30.0} | changes,
            home=self.home,
        )

    def run(
        self, grid: FakeGrid, *, source: NoiseSource = SECURE_NOISE, **changes: Any
    ) -> tuple[Release, list[str]]:
        lines: list[str] = []
        host = Host(
            clock=grid.time.now,
            sleep=grid.time.sleep,
            now=lambda: AT,
            say=lines.append,
            source=source,
        )
        return run_on_flower(grid, self.settings(**changes), host), lines


def spent(federation: FakeFederation) -> float:
    """What the aggregator's ledger was charged."""
    with Ledger.open(Home(federation.home).ledger) as ledger:
        return ledger.account("sites").spent


def has_session(context: Context) -> bool:
    """Whether a site has a round that goes on."""
    return SESSION in context.state and "session" in context.state.config_records[SESSION]


def read_counters(path: Path) -> dict[str, float]:
    """The counters of an aggregator's file of metrics; none if there is no file yet."""
    found = read_samples(path.read_text()) if path.exists() else ()
    return {name: value for name, value in found if "_total" in name}
