"""What one of three servers sees of a whole answer: the same of any two populations."""

import os
from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import kstest

from fedprikl.checks import Ints
from fedprikl.privacy import SECURE_NOISE
from fedprikl.protocol.server_answer import ServersAnswer, answer
from fedprikl.protocol.sums import ServersSum
from fedprikl.secure_sum.line_runtime import LineRuntime, compute_together
from fedprikl.secure_sum.line_shares import PRIME, SEED_BYTES, SERVERS, Field
from tests.protocol.test_server_answer import plan, points
from tests.secure_sum.three import Channel, shares_of

FALSE_ALARM = 1e-9
RECORDS = 300
# All records in the first cell of each view, or none of them in any cell.
POPULATIONS = (
    np.array([300, 0, 0, 0, 300, 0, 0, 300, 0, 0, 0, 0, 300]),
    np.array([0, 0, 0, 300, 0, 0, 300, 0, 0, 0, 0, 300, 300]),
)


def view_of(server: int, total: Ints) -> list[Mapping[int, bytes]]:
    """All that a server receives, from its share of the sums to the release."""
    channel, held = Channel(), shares_of(total, os.urandom(32))
    asked = ServersAnswer(ServersSum(plan()), points())
    compute_together(
        {
            n: answer(
                LineRuntime(n, channel.of(n)), asked, held[n], included=3, source=SECURE_NOISE
            )
            for n in SERVERS
        }
    )
    return channel.received[server]


def numbers(view: list[Mapping[int, bytes]]) -> list[Field]:
    """Of every message that is long enough to be tested; seeds expand to uniform numbers anyway."""
    messages = (message for step in view for message in step.values())
    return [np.frombuffer(each, "<u8") for each in messages if len(each) > SEED_BYTES]


def looks_uniform(each: Field, false_alarm: float) -> bool:
    return bool(kstest(each / PRIME, "uniform").pvalue > false_alarm)


@pytest.mark.parametrize("server", SERVERS)
def test_no_server_can_tell_two_populations_apart(server: int) -> None:
    """Equally many messages of equal lengths, and uniform numbers in each.

    False alarms: 1e-9 over all messages of both populations.
    """
    views = [view_of(server, total) for total in POPULATIONS]
    lengths = [[{n: len(m) for n, m in step.items()} for step in view] for view in views]
    assert lengths[0] == lengths[1]
    seen = [each for view in views for each in numbers(view)]
    assert len(seen) > 30
    assert all(looks_uniform(each, FALSE_ALARM / len(seen)) for each in seen)


def test_that_check_would_catch_lines_without_a_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaky scheme: what is dealt is the number itself."""
    monkeypatch.setattr(
        "fedprikl.secure_sum.line_runtime.split_field", lambda entries, _: (entries, entries)
    )
    channel = Channel()

    async def deal(runtime: LineRuntime) -> None:
        await runtime.deal(np.arange(200, dtype=np.uint64), SERVERS)

    compute_together({n: deal(LineRuntime(n, channel.of(n))) for n in SERVERS})
    seen = numbers(channel.received[3])
    assert len(seen) == 2
    assert not any(looks_uniform(each, FALSE_ALARM) for each in seen)
