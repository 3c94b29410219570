"""What the README and the docs show is what happens."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from experiments.paper import variance

import fedprikl
from fedprikl import (
    audit,
    demo,
    divergence,
    estimation,
    paper,
    planning,
    privacy,
    protocol,
    records,
    reference,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def readme_table_script() -> Any:
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "docs/readme_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_python_example_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in block.splitlines() if line]) <= 10
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "differ from the reference by D(Pi || 0.01 Pi + 0.99 P) = " in printed
    assert "Drift found: " in printed
    assert "'clients' had no budget; it is now epsilon 1" in printed
    assert "epsilon 1, delta 0: proved for every data set." in printed


@pytest.mark.validation
def test_the_demo_table_is_up_to_date() -> None:
    """Names and payloads to the letter, numbers to 5%, as libraries may change a last digit.

    And what the table shows: ours beats the paper's estimator without any noise.
    """
    script = readme_table_script()
    rows = script.demo_rows()
    by_name = {row.name: row for row in rows}
    assert by_name["exact, 250 points"].typical_error < by_name["no privacy"].typical_error / 5
    assert by_name["exact, 10 points"].typical_error < by_name["no privacy"].typical_error
    assert by_name["aggregator, paper"].estimate.privacy.epsilon > 24
    assert by_name["exact, 250 points"].estimate.privacy.holds
    assert not by_name["exact, 250 points"].estimate.privacy.insecure
    shown, fresh = script.table_in(README), script.demo_table(rows)
    number = r"\d+\.\d+|\d,\d{3}"
    assert re.sub(number, "#", shown) == re.sub(number, "#", fresh)
    for old, new in zip(re.findall(number, shown), re.findall(number, fresh), strict=True):
        assert float(old.replace(",", "")) == pytest.approx(float(new.replace(",", "")), rel=0.05)


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_pythons_are_found_behind_a_shim_that_fails(tmp_path: Path) -> None:
    """`make matrix` asks for them. What pyenv puts on PATH fails unless the version is chosen."""
    shim, real = tmp_path / "bin" / "python3.13", tmp_path / "versions/3.13.7/bin/python3.13"
    for place, code in ((shim, 127), (real, 0)):
        place.parent.mkdir(parents=True)
        place.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
        place.chmod(0o755)
    path = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    said = subprocess.run(
        ["make", "-s", "pythons"],  # noqa: S607
        cwd=ROOT,
        env=os.environ | {"PATH": path, "PYENV_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"3.13 {real}" in said.splitlines()


def test_commands_are_run_as_other_processors_compute() -> None:
    names = ("NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE")
    here = {name: each for name, each in os.environ.items() if name not in names}

    def elsewhere(code: str) -> subprocess.CompletedProcess[str]:
        line = ["tests/elsewhere.sh", sys.executable, "-c", code]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, env=here)

    said = elsewhere(f"import os; print(*map(os.environ.get, {names}))")
    lines = said.stdout.splitlines()
    assert (said.returncode, len(lines)) == (0, 5)
    assert all(line.startswith("passed") for line in lines)
    assert len({line.split(": ")[1] for line in lines}) == 5
    failed = elsewhere("import os, sys; sys.exit('OPENBLAS_CORETYPE' in os.environ)")
    assert failed.returncode == 1
    assert failed.stdout.count("FAILED") == 3


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_names_in_the_notation_exist() -> None:
    rooms: list[ModuleType] = [
        fedprikl,
        audit,
        demo,
        divergence,
        estimation,
        paper,
        planning,
        privacy,
        protocol,
        records,
        reference,
        variance,
    ]
    names = {name for room in rooms for name in dir(room)}
    parameters = {
        "points",
        "batches",
        "ratio",
        "control",
        "epsilon",
        "delta",
        "sensitivity",
        "skew",
        "design_effect",
        "outside",
    }
    table = (ROOT / "docs/notation.md").read_text(encoding="utf-8")
    for line in table.splitlines():
        cells = line.split("|")
        if len(cells) < 6 or "code name" in line or "---" in line:
            continue
        for name in re.findall(r"`([\w.]+)`", cells[2]):
            owner, _, attribute = name.partition(".")
            assert owner in names | parameters, name
            if attribute:
                found = next(getattr(room, owner) for room in rooms if owner in dir(room))
                assert hasattr(found, attribute) or attribute in found.__dataclass_fields__


def test_the_locks_agree_and_name_no_address() -> None:
    run, dev = (
        (ROOT / name).read_text() for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert "://" not in run + dev
    pins = [re.findall(r"^[\w.-]+(?:\[.*\])?==\S+.*$", lock, re.MULTILINE) for lock in (run, dev)]
    pins = [[re.sub(r"\[.*\]", "", pin) for pin in each] for each in pins]
    assert set(pins[0]) < set(pins[1])
    names = {pin.partition("==")[0] for pin in pins[0]}
    assert {"hatchling", "opendp", "pyarrow", "uvicorn"} <= names
    assert not names & {"flwr", "mypy", "pandas", "polars", "pytest", "ray", "sphinx"}


def test_the_public_names_are_sorted_and_exist() -> None:
    assert fedprikl.__all__ == sorted(fedprikl.__all__)
    assert len(fedprikl.__all__) <= 26
    for name in fedprikl.__all__:
        assert hasattr(fedprikl, name)
