"""`fedprikl plan`: serial number, validity and signer; no plan is overwritten; odd plans."""

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedprikl.cli.console import notes
from fedprikl.cli.plan_command import _column_words, _print_reasons, _print_smallest, _size
from fedprikl.cli.release_output import plan_words
from fedprikl.errors import FedPriKLError
from fedprikl.front.checking import check_valid, now
from fedprikl.planning.cases import WORDS
from fedprikl.planning.explain import Reason
from fedprikl.planning.planned_round import ColumnForecast
from fedprikl.planning.simulated_round import Forecast
from fedprikl.protocol import SignedPlan, SigningKey
from tests.cli.test_round_commands import call, fails
from tests.cli.test_verify_command import mutants
from tests.monitoring.small_series import plan_of

pytestmark = pytest.mark.slow

PLAN = ("plan", "ref.json", "--clients", "6", "--records", "360")


def test_a_plan_has_a_serial_number_an_end_and_a_signer(planned: Path) -> None:
    before = int(time.time())
    said = call(*PLAN, "-o", "second.json", "--key", "organiser.pem").stdout
    first, second = (SignedPlan.load(name).plan for name in ("plan.json", "second.json"))
    assert before <= second.validity.serial <= time.time()
    assert first.validity.serial <= second.validity.serial
    assert second.validity.length == timedelta(days=90)
    assert second.validity.includes(now())
    signer = SigningKey.load(planned / "organiser.pem").public
    valid = second.validity
    words = f"serial {valid.serial}, valid from {valid.valid_from} until {valid.valid_until}"
    assert f"plan: second.json: {words}, signed by {signer}" in said
    assert "signed by nobody" in call(*PLAN, "-o", "third.json").stdout


def test_a_plan_says_its_epsilon(planned: Path) -> None:  # noqa: ARG001  the working directory
    said = call(*PLAN, "--force", "--epsilon", "0.7").stdout
    assert "The release may spend epsilon 0.7 (--epsilon)." in said


def test_a_plan_says_what_it_tolerates(planned: Path) -> None:  # noqa: ARG001  the working directory
    columns = SignedPlan.load("plan.json").plan.columns
    name = columns[0].columns[0]
    said = " ".join(call(*PLAN, "--force", "--tolerate", "0.1").stdout.split())
    assert "a total variation of up to 0.1. A smaller difference is" in said
    one = call(*PLAN, "--force", "--tolerate", "0.1", "--tolerate", f"{name}=0.2").stdout
    assert f"of up to 0.1, but 0.2 in {name}." in " ".join(one.split())
    assert "Tolerated" not in call(*PLAN, "--force").stdout


def test_no_size_is_below_zero() -> None:
    assert [_size(size) for size in (-0.0, -1e-17, 0.0, 0.0308)] == ["0", "0", "0", "0.0308"]


def test_reasons_fit_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every release option beside every kind of drift, and no word of it cut off."""
    cases = [Forecast(kind, 0.0308, 0.000123) for kind in WORDS for _ in range(2)]
    names = ("laplace noise", "gaussian noise", "adaptive noise", "noisy counts")
    options = [SimpleNamespace(name=name, forecasts=cases) for name in names]
    planned: Any = SimpleNamespace(
        plan=plan_of(),
        reasons=[Reason("share of columns' counts", "adaptive noise", "why " * 30)],
        forecasts=cases,
        options=options,
        taken=options[2],
        doublings={},
    )
    monkeypatch.setenv("COLUMNS", "80")
    _print_reasons(planned)
    said = capsys.readouterr().out
    assert "…" not in said
    assert said.count("0.00012") == len(names) * len(cases)
    words = said.split()
    assert all(word in words for name in names for word in name.split())
    assert "(taken)" in words


def test_a_drift_that_is_never_found_is_said_so() -> None:
    forecast = ColumnForecast(3, 21, "[site]", None, 0.0062, None)
    said = _column_words(forecast, plan_of())
    assert "a smooth drift is never found (95% power" in said
    found = replace(forecast, smallest_drift=0.031)
    assert "a smooth drift is found from 0.031 nats (95%" in _column_words(found, plan_of())


def test_serial_and_validity_can_be_chosen(planned: Path) -> None:
    assert planned
    document = json.loads(
        call(*PLAN, "--force", "--serial", "7", "--valid-days", "1.5", "--json").stdout
    )
    plan = SignedPlan.load("plan.json").plan
    assert document["plan"] == plan.to_dict()
    assert (plan.validity.serial, plan.validity.length) == (7, timedelta(days=1.5))
    call(*PLAN, "--force", "--valid-until", "2999-12-31")
    assert SignedPlan.load("plan.json").plan.validity.valid_until == "2999-12-31T00:00:00+00:00"


@pytest.mark.parametrize(
    "option", [("--valid-until", "2020-01-01"), ("--valid-days", "0"), ("--valid-days", "1e12")]
)
def test_a_plan_that_ends_never_or_has_ended_is_not_made(
    planned: Path,
    option: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = fails(monkeypatch, capsys, *PLAN, "-o", "new.json", *option)
    assert "expired already" in said or "beyond the calendar" in said
    assert not (planned / "new.json").exists()


def test_a_plan_is_not_overwritten_unasked(
    planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (planned / "plan.json").read_bytes()
    monkeypatch.setattr(
        "fedprikl.cli.plan_command.plan_round", None
    )  # refused before anything is planned
    assert "--force" in fails(monkeypatch, capsys, *PLAN)
    assert (planned / "plan.json").read_bytes() == before


def test_every_plan_is_refused_in_words_or_shown(planned: Path) -> None:
    plan = json.loads((planned / "plan.json").read_text())["plan"]
    accepted = refused = 0
    for _, changed in mutants(plan):
        document: dict[str, Any] = {"plan": changed, "signer": "\x1b[2J", "signature": "00"}
        (planned / "odd.json").write_text(json.dumps(document))
        try:
            signed = SignedPlan.load(planned / "odd.json")
            accepted += 1
            assert not signed.is_signed_by("ab" * 32)
            assert plan_words(signed)
            check_valid(signed.plan, datetime.now(UTC).isoformat())
        except FedPriKLError:
            refused += 1
    assert accepted > 30
    assert refused > 300


def test_a_series_of_the_past_stays_valid_for_a_month_and_shows_its_last_day(planned: Path) -> None:
    assert planned
    past = ("--every", "month", "--first", "2025-01-01", "--until", "2025-03-31")
    shown = call(*PLAN, "--force", *past, "--time-column", "day").stdout
    assert "from 2025-01-01 to 2025-03-31" in " ".join(shown.split())
    validity = SignedPlan.load("plan.json").plan.validity
    assert validity.length == timedelta(days=30)


def test_where_the_whole_finds_never_the_way_out_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = SimpleNamespace(
        verdict=SimpleNamespace(design_effect=None, false_alarm=0.01),
        false_alarm_of_each=0.01,
        is_series=False,
        columns=("age",),
    )
    planned: Any = SimpleNamespace(plan=plan, smallest_drifts={"smooth": None})
    _print_smallest(planned, "nats")
    assert "--ask columns" in " ".join(capsys.readouterr().out.split())
    plan.columns = ()
    _print_smallest(planned, "nats")
    assert "--ask columns" not in capsys.readouterr().out


def test_who_plans_sees_that_it_goes_on(planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned
    seen: list[str] = []

    def status(text: str) -> AbstractContextManager[None]:
        seen.append(text)
        return nullcontext()

    monkeypatch.setattr(notes, "status", status)
    call(*PLAN, "--force")
    assert [text.split(":")[0] for text in seen] == [
        "simulating plans",
        "simulating what the plan can find",
    ]
