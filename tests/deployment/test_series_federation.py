"""A series over a grid in one process: each period is counted once and released once."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deploy.small_world import write_plan, write_roster
from flwr.app import Message
from flwr.common.config import get_fused_config_from_dir, parse_config_args
from typer.testing import CliRunner

from fedprikl.cli import monitor_command
from fedprikl.cli.app import app
from fedprikl.deployment.flower import APP_FOLDER, organiser
from fedprikl.deployment.flower.client import pack, unpack
from fedprikl.deployment.flower.organiser import FederatedSeries
from fedprikl.deployment.flower.server import run_on_flower
from fedprikl.deployment.host import Host
from fedprikl.deployment.hosted_round import alone
from fedprikl.deployment.settings import Home, RoundSettings
from fedprikl.errors import DeploymentError, InvalidInputError, ReleaseRefused
from fedprikl.front.series import read_status
from fedprikl.monitoring.history import History
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Invitation,
    NoisedRound,
    Release,
    Series,
    SignedPlan,
    SigningKey,
    Step,
)
from fedprikl.records import open_records
from fedprikl.reference import Reference
from tests.deployment.fake_grid import AT, FakeFederation, FakeGrid, read_counters, spent
from tests.deployment.test_counted_once import forgetful, steps, told
from tests.protocol.worlds import InsecureNoNoise, consistent, noisy_counts

pytestmark = pytest.mark.slow

TODAY = datetime.fromisoformat(AT).astimezone(UTC).date()
FIRST = TODAY - timedelta(days=4)  # periods 0 to 3 are over, 4 is today
ROWS = 20  # of each site and day


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def with_times(federation: FakeFederation, *, days: int = 3) -> None:
    """The rows of each site, `ROWS` of them on each day of the series."""
    for file in federation.files:
        header, *rows = file.read_text().splitlines()
        dated = [f"{row},{day(i // ROWS)}T{i % ROWS:02d}:00" for i, row in enumerate(rows)]
        file.write_text("\n".join([f"{header},at", *dated[: days * ROWS]]) + "\n")


def append(file: Path, rows: int, at: str) -> None:
    with file.open("a") as stream:
        stream.write(f"46.0,basic,{at}T10:00\n" * rows)


def plan(federation: FakeFederation, **changes: Any) -> SignedPlan:
    series = {"every": "day", "first": day(0), "periods": 6, "time_column": "at"}
    series |= {name: changes.pop(name) for name in list(changes) if name == "time_column"}
    return write_plan(federation.home, when=Series(**series), **changes)  # type: ignore[arg-type]


def run(
    federation: FakeFederation, period: int | None, grid: FakeGrid | None = None, **changes: Any
) -> Release:
    asked = {} if period is None else {"period": period}
    grid = grid or federation.grid()
    return federation.run(grid, source=InsecureNoNoise(), **asked, **changes)[0]


def counts_of(federation: FakeFederation, number: int, folder: Path) -> dict[int, int]:
    """What all sites hold on a day, by cell; each row as it stands."""
    reference = Reference.load(Home(federation.home).reference)
    total = np.zeros(len(reference.whole.mass), dtype=np.int64)
    for file in federation.files:
        header, *rows = file.read_text().splitlines()
        kept = [row for row in rows if f",{day(number)}T" in row]
        (folder / "day.csv").write_text("\n".join([header, *kept]) + "\n")
        total += open_records(folder / "day.csv").count(reference).counts
    return {cell: int(total[cell]) for cell in np.flatnonzero(reference.whole.mass).tolist()}


def released_counts(release: Release) -> dict[int, float]:
    found = noisy_counts(release)
    return dict(zip(found.cells, found.counts, strict=True))


def rounds(federation: FakeFederation) -> list[Any]:
    with Ledger.open(Home(federation.home).ledger) as ledger:
        return list(ledger.account("sites").rounds)


# Each period once


def test_each_period_counts_its_own_records(federation: FakeFederation, tmp_path: Path) -> None:
    with_times(federation)
    one = plan(federation).plan
    previous = ""
    for number in (0, 1):
        release = run(federation, number, previous=previous)
        assert release.is_about(one)
        assert release.period is not None
        assert (release.period.number, release.period.previous) == (number, previous)
        assert release.records == len(federation.files) * ROWS
        assert released_counts(release) == counts_of(federation, number, tmp_path)
        previous = release.fingerprint
    charged = [entry.times for entry in rounds(federation)]
    assert [times.start[:10] for times in charged] == [day(0), day(1)]
    assert spent(federation) == pytest.approx(1.0, abs=1e-3)  # of one record, over both


def test_a_period_that_was_released_is_told_again(federation: FakeFederation) -> None:
    """Whoever lost the answer asks again, also when the plan has expired by then."""
    with_times(federation)
    plan(federation)
    first = run(federation, 0, request="ab")
    before, counters = rounds(federation), read_counters(Home(federation.home).metrics)
    grid = federation.grid()
    again, lines = federation.run(grid, period=0, request="cd", previous="12" * 32)
    assert again == first
    assert grid.carried == []
    assert json.loads(lines[0].split("release: ")[1]) == first.to_dict()
    assert "period 0 was released before" in lines[1]
    assert rounds(federation) == before
    assert read_counters(Home(federation.home).metrics) == counters
    later = (datetime.fromisoformat(AT) + timedelta(days=99)).isoformat()  # the plan has expired
    host = Host(clock=grid.time.now, sleep=grid.time.sleep, now=lambda: later, say=lines.append)
    assert run_on_flower(grid, federation.settings(period=0), host) == first
    with pytest.raises(InvalidInputError, match="The plan has expired"):
        run_on_flower(grid, federation.settings(period=1), host)
    assert grid.carried == []


def test_only_the_aggregators_own_release_of_the_plan_is_told_again(
    federation: FakeFederation,
) -> None:
    with_times(federation)
    plan(federation)
    real, folder = run(federation, 0), Home(federation.home).releases
    (folder / "a.json").write_bytes(replace(real).sign(SigningKey.generate()).to_bytes())
    (folder / "b.json").write_text(f"{real.plan} no release")
    assert run(federation, 0) == real
    assert run(federation, 1) != real
    plan(federation, serial=1)  # another plan: what it asks was counted before
    grid = federation.grid()
    forgetful(federation)
    with pytest.raises(ReleaseRefused, match="records of this period have been counted already"):
        run(federation, 0, grid)
    assert steps(grid) == {"query.advertise"}


def test_a_period_that_was_counted_is_refused_by_every_site(federation: FakeFederation) -> None:
    with_times(federation)
    plan(federation)
    release = run(federation, 0)
    forgetful(federation)
    (Home(federation.home).releases / f"{release.round_id}.json").unlink()
    grid, before = federation.grid(most_counts=9), rounds(federation)
    with pytest.raises(ReleaseRefused, match="8 clients took no part"):
        run(federation, 0, grid)
    assert told(grid) == 8 * ["its records of this period have been counted already"]
    assert spent(federation) == pytest.approx(1.0, abs=1e-3)
    assert rounds(federation)[: len(before)] == before
    assert run(federation, 1).records == 8 * ROWS


def test_a_period_without_a_release_is_lost_and_the_next_is_not(
    federation: FakeFederation,
) -> None:
    with_times(federation)
    plan(federation)
    broken = federation.grid()
    broken.delay = lambda _, step: math.inf if step is Step.ECHO else 0.0
    with pytest.raises(ReleaseRefused):
        run(federation, 0, broken)
    grid = federation.grid()
    with pytest.raises(DeploymentError, match="Period 0 was counted before, and no release came"):
        run(federation, 0, grid)
    assert grid.carried == []
    assert run(federation, 1).records == 8 * ROWS


@pytest.mark.parametrize(("where", "step"), [(NoisedRound, "release"), (Ledger, "commit")])
def test_a_host_that_dies_after_the_noise_tells_the_release_later(
    where: type, step: str, federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_times(federation)
    plan(federation)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, step, die)
        with pytest.raises(KeyboardInterrupt):
            run(federation, 0)
    grid = federation.grid()
    release = run(federation, 0, grid)
    assert release.period is not None
    assert grid.carried == []
    assert len(rounds(federation)) == 1
    assert run(federation, 1, previous=release.fingerprint).records == 8 * ROWS


def test_two_runs_at_once_are_one(federation: FakeFederation) -> None:
    with_times(federation)
    signed, grid = plan(federation), federation.grid()
    with (
        alone(federation.home, signed.plan),
        pytest.raises(DeploymentError, match="Another run of a series"),
    ):
        run(federation, 0, grid)
    assert grid.carried == []
    assert run(federation, 0).records == 8 * ROWS


# Late records


def test_late_records_are_left_out(federation: FakeFederation) -> None:
    with_times(federation)
    plan(federation)
    assert run(federation, 0).records == 8 * ROWS
    append(federation.files[2], 7, day(0))
    assert run(federation, 1).records == 8 * ROWS
    assert run(federation, 2).records == 8 * ROWS


# Periods by name


def test_names_of_files_tell_the_period(federation: FakeFederation) -> None:
    """A site without a file of the period has no records; one with a name of no period refuses."""
    plan(federation, time_column="")
    for number, file in enumerate(federation.files):
        header, *rows = file.read_text().splitlines()
        file.unlink()
        for index in range(3):
            part = file / (f"{day(index)}.csv" if index else f"day={day(index)}/some.csv")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("\n".join([header, *rows[: ROWS + number], ""]))
    (federation.files[5] / f"{day(1)}.csv").unlink()
    all_rows = 8 * ROWS + sum(range(8))
    assert run(federation, 0).records == all_rows
    assert run(federation, 1).records == all_rows - ROWS - 5
    assert run(federation, 0).records == all_rows  # told again
    (federation.files[3] / "some.csv").write_text("age,plan\n")
    release = run(federation, 2)
    assert release.records == all_rows - ROWS - 3
    assert release.cohorts[0].included == 7


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_site_refuses_a_file_that_its_periods_share(
    federation: FakeFederation, link: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The others are counted; only the site's own log names the files."""
    plan(federation, time_column="")
    for number, file in enumerate(federation.files):
        folder = file.with_suffix("")
        folder.mkdir()
        file.rename(folder / f"{day(0)}.csv")
        federation.files[number] = folder
    link(folder / f"{day(1)}.csv", folder / f"{day(0)}.csv")
    assert run(federation, 0).cohorts[0].included == 7
    assert f"{day(1)}.csv are the same records" in caplog.text


# Nobody trusted


def test_sites_charge_their_own_ledgers_by_period(federation: FakeFederation) -> None:
    with_times(federation)
    roster = write_roster(federation.home, federation.files, budget=1.5)
    plan(federation, trust="none", noise="gaussian", roster=roster.fingerprint)
    for number in (0, 1):
        federation.run(federation.grid(), period=number)
    for file in federation.files:
        with Ledger.open(file.with_suffix(".db")) as ledger:
            account = ledger.account("sites")
            assert [entry.times.start[:10] for entry in account.rounds if entry.times] == [
                day(0),
                day(1),
            ]
            assert account.spent <= 1.01


# What is refused before anybody is asked


@pytest.mark.parametrize(
    ("period", "words"),
    [
        (4, "not over by the aggregator's clock"),
        (6, "has the periods 0 to 5"),
        (None, "fedprikl monitor run --federation"),
    ],
)
def test_a_period_that_cannot_be_is_said_to(
    federation: FakeFederation, period: int | None, words: str
) -> None:
    with_times(federation)
    plan(federation)
    grid = federation.grid()
    with pytest.raises((InvalidInputError, DeploymentError), match=words):
        run(federation, period, grid)
    assert grid.carried == []


@pytest.mark.parametrize("config", [{"period": 0}, {"previous": "ab" * 32}])
def test_a_plan_without_a_series_has_no_periods(
    federation: FakeFederation, config: dict[str, Any]
) -> None:
    grid = federation.grid()
    with pytest.raises(InvalidInputError, match="has no series, so it has no periods"):
        federation.run(grid, **config)
    assert grid.carried == []


def test_the_run_config_of_a_period_is_checked(tmp_path: Path) -> None:
    def of(**config: object) -> RoundSettings:
        return RoundSettings.of(config, home=tmp_path)

    assert (of().period, of(period=-1).period, of(period=7).period) == (None, None, 7)
    assert of(previous="ab" * 32).previous == "ab" * 32
    for wrong in ({"period": 1.5}, {"period": -2}, {"period": "1"}, {"period": True}):
        with pytest.raises(InvalidInputError, match="`period`"):
            of(**wrong)
    for text in ("ab", "AB" * 32, "ab" * 32 + "\n"):
        with pytest.raises(InvalidInputError, match="`previous`"):
            of(previous=text)


def test_flower_takes_the_settings_of_a_period() -> None:
    given = parse_config_args([f'period=3 previous="{"ab" * 32}"'])
    settings = RoundSettings.of(get_fused_config_from_dir(APP_FOLDER, given))
    assert (settings.period, settings.previous) == (3, "ab" * 32)
    assert RoundSettings.of(get_fused_config_from_dir(APP_FOLDER, {})).period is None


# A server that lies


def altered(grid: FakeGrid, lie: Callable[[int, Invitation], Invitation]) -> None:
    """Whoever is asked something else on the way: the relay, or the server itself."""
    deliver = grid.deliver

    def other(message: Message) -> Message:
        if message.metadata.message_type == "query.advertise":
            envelope = unpack(message)
            asked = lie(message.metadata.dst_node_id, Invitation.from_bytes(envelope.message))
            message.content = pack(replace(envelope, message=asked.to_bytes()))
        return deliver(message)

    grid.deliver = other  # type: ignore[method-assign]


@pytest.mark.parametrize("period", [4, 5, 6, None])
def test_no_site_counts_a_period_that_is_not_over(
    federation: FakeFederation, period: int | None
) -> None:
    with_times(federation)
    plan(federation)
    grid = federation.grid()
    altered(grid, lambda _, asked: consistent(replace(asked, period=period)))
    with pytest.raises(ReleaseRefused):
        run(federation, 0, grid)
    words = {
        "the period is not over yet by this client's clock",
        "a period is asked that the plan does not have, or none where it has",
    }
    assert set(told(grid)) <= words
    assert len(told(grid)) == 8
    assert run(federation, 0).records == 8 * ROWS  # nothing was counted


# The organiser


def asking(federation: FakeFederation, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flower's stream is that of the real ServerApp over the fake grid."""
    lines: list[str] = []

    def flwr_run(_: Path, __: str, config: dict[str, Any], ___: object) -> Iterator[str]:
        said = federation.run(federation.grid(), **config)[1]
        lines.extend(said)
        return iter(said)

    monkeypatch.setattr(organiser, "_flwr_run", flwr_run)
    return lines


def test_the_organiser_knows_which_sites_of_the_roster_were_not_counted(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Absent, lost and refused, by name; on the page and in the metrics. The relay sees no name."""
    with_times(federation)
    roster = write_roster(federation.home, federation.files)
    plan(federation, roster=roster.fingerprint)
    folder = tmp_path / "organiser"
    folder.mkdir()
    for name in ("plan.json", "ref.json", "roster.txt"):
        shutil.copy(federation.home / name, folder / name)
    lines: list[str] = []

    def flwr_run(_: Path, __: str, config: dict[str, Any], ___: object) -> Iterator[str]:
        grid = federation.grid()
        if config["period"] == 0:
            del grid.contexts[3]
            grid.delay = lambda node, step: math.inf if (node, step) == (5, Step.INPUT) else 0.0
        elif config["period"] == 1:
            grid.limit(7, most_points=1)
        said = federation.run(grid, **config)[1]
        if config["period"] == 2:  # its answer was lost, and is told again
            said = federation.run(federation.grid(), **config)[1]
        lines.extend(said)
        return iter(said)

    monkeypatch.setattr(organiser, "_flwr_run", flwr_run)
    monkeypatch.setattr(organiser, "check_connection", lambda _: None)
    monkeypatch.setattr(monitor_command, "now", lambda: f"{day(3)}T01:00:00+00:00")
    key = SigningKey.load(Home(federation.home).signing_key).public
    line = [
        "monitor",
        "run",
        str(folder / "plan.json"),
        "--federation",
        "relay",
        "--signer",
        key,
    ]
    line += ["--history", str(tmp_path / "history.db"), "--ledger", str(tmp_path / "none.db")]
    line += [
        "--least-clients",
        "7",
        "--metrics",
        str(tmp_path / "m"),
        "--site",
        str(tmp_path / "w"),
    ]
    result = CliRunner().invoke(app, line)
    assert result.exit_code in (0, 3), result.output + repr(result.exception)  # 3: an alarm
    said = " ".join(result.stderr.split())
    assert "absent: site002" in said
    assert "not counted: site002, site004" in said.replace("site004, site002", "site002, site004")
    assert "not counted: site006" in said
    assert not any("site00" in each for each in lines)
    sites = {each.name: each for each in read_status(tmp_path / "history.db").sites}
    assert {name: each.answered for name, each in sites.items()} == {
        f"site00{n}": 2 if n in (2, 4, 6) else 3 for n in range(8)
    }
    assert {each.asked for each in sites.values()} == {3}
    assert 'site_answered{population="sites",site="site004"} 2' in (tmp_path / "m").read_text()
    assert "site004" in (tmp_path / "w" / "index.html").read_text()


def test_a_series_that_fails_names_the_site_that_refuses(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_times(federation)
    roster = write_roster(federation.home, federation.files)
    signed = plan(federation, roster=roster.fingerprint)
    members = organiser.roster_names(federation.home / "roster.txt", signed.plan, clients=8)
    key = SigningKey.load(Home(federation.home).signing_key).public
    runner = FederatedSeries(
        signed=signed, superlink="relay", key=key, config={"clients": 8}, members=members
    )

    def refuse(*_: Any, **__: Any) -> None:
        raise DeploymentError(f"5 clients took no part, the first of them {next(iter(members))}.")

    monkeypatch.setattr(organiser, "check_connection", lambda _: None)
    monkeypatch.setattr(organiser, "follow_round", refuse)
    with History.open(tmp_path / "history.db") as history:
        history.start(signed, signer=key, at=f"{day(3)}T01:00:00+00:00")
        with pytest.raises(DeploymentError, match="the first of them site00"):
            runner.run(history, 0, previous="", at=f"{day(3)}T01:00:00+00:00")


def test_an_organiser_asks_for_a_period_as_often_as_needed(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_times(federation)
    signed = plan(federation)
    key = SigningKey.load(Home(federation.home).signing_key).public
    lines = asking(federation, monkeypatch)
    heard: list[str] = []

    def ask(period: int, previous: str, who: str = key) -> Release:
        series = FederatedSeries(signed=signed, superlink="relay", key=who, config={"clients": 8})
        return series.ask(period, previous, heard.append)

    first = ask(0, "")
    assert ask(0, "") == first  # its answer was lost
    second = ask(1, first.fingerprint)
    assert second.period is not None
    assert second.period.previous == first.fingerprint
    assert any("8 clients in 1 cohort" in line for line in heard)
    assert not any("release: {" in line for line in heard)
    with pytest.raises(InvalidInputError, match="follows another release than the newest"):
        ask(1, "")
    with pytest.raises(DeploymentError, match="accepts releases of another key"):
        ask(1, first.fingerprint, "ab" * 32)
    old = next(line for line in lines if "release: {" in line)
    monkeypatch.setattr(organiser, "_flwr_run", lambda *_: iter([old]))
    with pytest.raises(InvalidInputError, match=r"NOT genuine: .* lies in releases/"):
        ask(0, "", "ab" * 32)
    with pytest.raises(InvalidInputError, match="another period than 2"):
        ask(2, second.fingerprint)
