"""`fedprikl plan --from` and `--write`; how options are named and grouped."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl import Reference
from fedprikl.cli import plan_command
from fedprikl.cli.app import COMMANDS, app, as_typed
from fedprikl.errors import InvalidInputError
from fedprikl.front.checking import check_limits
from fedprikl.protocol import Policy
from tests.cli.test_round_commands import call, fails
from tests.monitoring.small_series import plan_of


class PlannedEnough(Exception):  # noqa: N818  no error: the test has seen what it wants
    """Stands for a plan."""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the planner is asked, in a folder with a reference; it plans nothing."""
    seen: dict[str, Any] = {}

    def plan(_: Reference, **known: Any) -> None:
        seen.update(known)
        raise PlannedEnough

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_command, "plan_round", plan)
    Reference.from_counts([3, 2, 1]).save(tmp_path / "ref.json")
    return seen


def plan(*line: str) -> None:
    assert isinstance(CliRunner().invoke(app, ["plan", *line]).exception, PlannedEnough)


def test_what_was_written_asks_the_same(asked: dict[str, Any]) -> None:
    line = ["ref.json", "--clients", "12", "--records", "720", "--epsilon", "0.5", "--ask", "kl"]
    line += ["--ask", "tv", "--population", 'a "b" \\', "--every", "week", "--until", "2099-01-31"]
    line += ["--delta", "1e-7"]
    plan(*line)
    first = dict(asked)
    asked.clear()
    call("plan", *line, "--write", "plan.toml")
    assert not asked  # nothing was planned
    plan("--from", "plan.toml")
    assert {**asked, "series": 0} == {**first, "series": 0}
    assert asked["series"].every == "week"
    text = Path("plan.toml").read_text()
    given = set(tomllib.loads(text))
    assert given == {word.strip("-") for word in line if word.startswith("--")} | {"reference"}
    assert "# Used where the noise is not pure.\ndelta = 1e-07" in text
    assert '# trust = "aggregator"' in text  # a default, as a comment


def test_the_command_line_comes_first(asked: dict[str, Any]) -> None:
    Path("plan.toml").write_text('reference = "ref.json"\nclients = 12\nrecords = 720\nepsilon = 1')
    plan("--from", "plan.toml", "--epsilon", "0.25", "--ask", "tv")
    assert (asked["epsilon"], asked["clients"], asked["ask"]) == (0.25, 12, ("tv",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsilo = 1", "no setting 'epsilo' in plan.toml. Did you mean epsilon?"),
        ("false_alarm = 0.1", "Did you mean false-alarm?"),
        ("force = true", "There is no setting 'force'"),
        ("clients = [3, 4]", "plan.toml: clients takes one value."),
        ("epsilon = ", "plan.toml is no TOML file"),
        (None, "Cannot read plan.toml: No such file"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(
    asked: dict[str, Any],
    text: str | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if text is not None:
        Path("plan.toml").write_text(text)
    line = ["ref.json", "--clients", "3", "--records", "9", "--from", "plan.toml"]
    assert words in fails(monkeypatch, capsys, "plan", *line)
    assert not asked


def test_a_value_is_read_as_if_it_were_typed(asked: dict[str, Any]) -> None:
    """A fraction is not cut to a whole number."""
    Path("plan.toml").write_text("clients = 12.5")
    result = CliRunner().invoke(app, ["plan", "ref.json", "--records", "9", "--from", "plan.toml"])
    assert result.exit_code == 2
    assert "12.5" in result.output
    assert not asked


def test_errors_name_options_not_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Reference.from_counts([3, 2, 1]).save("ref.json")
    line = ["plan", "ref.json", "--clients", "12", "--records", "200"]
    said = fails(monkeypatch, capsys, *line, "--false-alarm", "3")
    assert "--false-alarm must lie strictly" in said
    said = fails(monkeypatch, capsys, *line, "--per-client", "3")
    assert "--per-client, --typical-records and --empty belong to --unit client:" in said


def test_only_parameters_are_renamed() -> None:
    known: dict[str | None, str] = {"false_alarm": "--false-alarm", "clients": "--clients"}
    for text in ("column 'false_alarm'", "./false_alarm.csv", "x_false_alarm", "clients hold 3"):
        assert as_typed(text, known) == text
    assert as_typed("`clients` is 3. Lower false_alarm.", known) == (
        "--clients is 3. Lower --false-alarm."
    )


def test_one_name_for_one_thing() -> None:
    """A key is a path, a public key that signs is a signer, and a ledger is --ledger."""
    import typer

    group: Any = typer.main.get_command(app)
    top = {name: group.get_command(None, name) for name in COMMANDS}
    every = [each for one in top.values() for each in (one, *getattr(one, "commands", {}).values())]
    kinds: dict[str, set[str]] = {}
    for each in every:
        for param in each.params:
            for name in param.opts:
                kinds.setdefault(name, set()).add(param.type.name)
    assert kinds["--key"] == {"path"}
    assert kinds["--ledger"] == {"path"}
    assert "--file" not in kinds
    holders = [each.name for each in every if "--aggregator" in str([p.opts for p in each.params])]
    assert holders == ["plan"]
    for name in ("plan", "monitor"):
        commands = getattr(top[name], "commands", {name: top[name]}).values()
        for each in commands:
            loose = [p.name for p in each.params if p.param_type_name == "option"]
            panels = {p.name: getattr(p, "rich_help_panel", None) for p in each.params}
            assert all(panels[option] for option in loose if option != "help")
            assert all(p.help for p in each.params)


def test_a_plan_above_the_limit_is_refused_when_it_is_made() -> None:
    plan = plan_of()
    check_limits(plan, Policy(largest_epsilon=plan.budget.epsilon))
    with pytest.raises(InvalidInputError, match="Raise largest_epsilon"):
        check_limits(plan, Policy(largest_epsilon=plan.budget.epsilon / 2))
