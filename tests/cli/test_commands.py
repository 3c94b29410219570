"""The table of commands: it agrees with the commands, and nothing is imported for it."""

import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedprikl.cli
from fedprikl.cli.app import COMMANDS, app, summary_of


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_is_the_docstrings_first(name: str) -> None:
    function = getattr(import_module(f"fedprikl.cli.{name}_command"), f"{name}_command")
    assert summary_of(name) == (inspect.getdoc(function) or "").splitlines()[0]


def test_every_command_is_listed() -> None:
    files = Path(fedprikl.cli.__file__).parent.glob("*_command.py")
    assert {file.stem.removesuffix("_command") for file in files} == set(COMMANDS)
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert all(f"{name} {summary_of(name)}" in shown for name in COMMANDS)


def test_help_imports_no_command() -> None:
    code = (
        "import sys; from fedprikl.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*(set(sys.modules) & {'numpy', 'rich.console', 'scipy'}), 'end')"
    )
    line = [sys.executable, "-c", code, "--help"]
    said = subprocess.run(line, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1].strip() == "end"


@pytest.mark.parametrize(("own", "expected"), [(None, "1"), ("3", "3")])
def test_linear_algebra_has_one_thread_or_as_many_as_the_user_says(
    own: str | None, expected: str
) -> None:
    """Said before NumPy reads it, for all commands, and kept by their children."""
    code = (
        "import os, sys, fedprikl.cli.app as app, fedprikl.cli as cli\n"
        "app.main = lambda: print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules)\n"
        "cli.main()"
    )
    name = "OPENBLAS_NUM_THREADS"
    others = {key: value for key, value in os.environ.items() if key != name}
    environment = others if own is None else {**others, name: own}
    line = [sys.executable, "-c", code]
    said = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [expected, "False"]


def test_a_misspelt_command() -> None:
    refused = CliRunner().invoke(app, ["kes"])
    assert refused.exit_code == 2
    assert "Did you mean keys?" in refused.output
