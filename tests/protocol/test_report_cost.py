"""The benchmark of a report's cost counts what really leaves, and keeps to the bar."""

import pytest

from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.report import SUITES, SuiteName
from tests.benchmark_modules import loaded


@pytest.mark.parametrize("suite", SUITES)
def test_payload_is_that_of_real_messages_and_small_enough(suite: SuiteName) -> None:
    with loaded("report_cost", parts=()) as bench:
        cost = bench.report_cost
        for identity in (None, SigningKey.generate()):
            messages = cost.reporter(suite, identity)()
            size = sum(map(len, messages))
            assert size == cost.payload_bytes(suite, signed=identity is not None)
        assert cost.payload_bytes(suite) <= cost.payload_bar(suite)


def test_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded("report_cost", parts=()) as bench:
        monkeypatch.setattr(bench.report_cost, "BATCHES", 3)
        monkeypatch.setattr(bench.report_cost, "REPORTS", 2)
        found = bench.report_cost.measured()
    assert {"client_ms", "payload_bytes"} <= set(found)
    assert found["client_ms"] > 0
