"""Shared by all tests: a seeded generator, and hypothesis without a clock."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import coverage
import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests.browser import NO_BROWSER

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# New examples are looked for where somebody is there to look at what they find.
settings.register_profile("repeatable", settings.get_profile("steady"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "steady")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240917)


# Whole federations, commands and long simulations, the longest first. They begin before all others,
# so that no core waits for one of them at the end. `make check` leaves them out.
#
# Tracing lines may double the time of a test. Quick tests and some of the slow ones reach nearly
# every line, so coverage is counted without the others: it is a lower bound.
UNTRACED = (
    "test_loopback.py",
    "test_simulation_engine.py",
    "test_planner.py",
    "test_golden.py",
    "test_interval.py",
    "test_column_verdict.py",
    "test_moved_cells.py",
    "test_columns.py",
    "test_inverse_sensitivity.py",
    "test_estimate_refusals.py",
    "test_image_steps.py",
    "test_in_browser.py",
    "test_page_in_browser.py",
    "test_monitor_crashes.py",
    "test_one_period.py",
    "test_series_benchmark.py",
    "test_sequential.py",
    "test_monitor_races.py",
    "test_readme.py",
    "test_sum.py",
    "test_noisy_interval.py",
    "test_cli.py",
    "test_tutorial.py",
    "test_code_blocks.py",
    "test_site.py",
    "test_schemas.py",
    "test_records.py",
    "test_alike_clients.py",
    "test_paper.py",
    "test_power_benchmark.py",
    "test_roster_federation.py",
    "test_verdict.py",
    "test_privacy.py",
    "test_when_things_go_wrong.py",
    "test_one_record.py",
    "test_composition.py",
    "test_estimate_leaks.py",
    "test_plain_words.py",
    "test_verify_command.py",
    "test_noise_and_audit.py",
    "test_rounds.py",
    "test_sensitivity.py",
    "test_views.py",
    "test_columns_benchmark.py",
    "test_columns_sensitivity.py",
    "test_gap_ranges.py",
    "test_variance.py",
    "test_counted_once.py",
    "test_graph.py",
    "test_points.py",
    "test_without_a_browser.py",
    "test_serve_command.py",
    "test_tiny_delta.py",
    "test_vectors.py",
    "test_false_alarm_benchmark.py",
    "test_laplace_round.py",
    "test_lying_client.py",
    "test_benchmark.py",
    "test_lying_aggregator.py",
    "test_dealing.py",
    "test_relay.py",
    "test_replayed_release.py",
    "test_moved_records.py",
    "test_moved_counts.py",
    "test_client_noise.py",
    "test_adaptive_clients.py",
    "test_spans.py",
    "test_integer_laplace.py",
)
TRACED = (
    "test_series_federation.py",
    "test_monitor_command.py",
    "test_demo_command.py",
    "test_drawing.py",
    "test_whole_clients.py",
    "test_fake_federation.py",
    "test_compare.py",
    "test_round_commands.py",
    "test_guaranteed.py",
    "test_result.py",
    "test_correlation.py",
    "test_vector_noise.py",
    "test_demo_table.py",
    "test_estimators.py",
    "test_release.py",
    "test_coverage.py",
    "test_noisy_divergence.py",
    "test_several_questions.py",
    "test_active_relay.py",
    "test_liars.py",
    "test_audit_cases.py",
    "test_old_documents.py",
    "test_real_runs.py",
    "test_unseen.py",
    "test_plan_command.py",
    "test_history.py",
    "test_series_memory.py",
    "test_verdict_on_handwriting.py",
    "test_ledger_crashes.py",
    "test_joint_verdict.py",
    "test_polya.py",
    "test_client_plan.py",
    "test_warm_executor.py",
    "test_clean_environment.py",
    "test_clients_benchmark.py",
    "test_client_case.py",
    "test_transport.py",
    "test_federate_command.py",
    "test_divergence.py",
    "test_deployment_page.py",
    "test_mechanism.py",
    "test_tuning.py",
    "test_odd_values.py",
    "test_abandoned_run.py",
    "test_series_plan.py",
)
SLOW = (*UNTRACED, *TRACED)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Slow tests that are left out need not be read."""
    left_out = config.option.markexpr == "not slow" and collection_path.name in SLOW
    return True if left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples are in docstrings of src. To look for them here would take seconds."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: number for number, name in enumerate(SLOW)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        if item.path.name in order:
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where pages were not looked at: a skipped test is easily overlooked."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    blind = [reason for reason in skipped if NO_BROWSER in reason]
    if blind:
        terminalreporter.section("browser tests")
        terminalreporter.line(
            f"{len(blind)} tests of pages were SKIPPED, as there is no browser. Install Chromium, "
            "or run the tests as root on Debian, which installs it.",
            red=True,
        )


@contextmanager
def untraced() -> Iterator[None]:
    """Without coverage.

    Without every coverage, as a worker of xdist has two: if one stops, the one below it resumes. So
    a mark `no_cover` of pytest-cov would still pay for tracing there.
    """
    stopped: list[coverage.Coverage] = []
    while running := coverage.Coverage.current():
        running.stop()
        stopped.append(running)
    try:
        yield
    finally:
        for each in reversed(stopped):
            each.start()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Tests are read untraced, which halves the time, if src was imported before."""
    imported = any(Path(each).name == "src" for each in collector.config.args)
    with untraced() if imported else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Untraced tests and their fixtures run while coverage is stopped."""
    with untraced() if item.path.name in UNTRACED else nullcontext():
        return (yield)
