"""What a repository of the field has: pinned workflows, hashed locks, licences that fit."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.packages import EXTRAS, PAGE, Package, closure, locked, sbom

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w./-]+@[0-9a-f]{40}")
# Backwards, so that this file is not found.
REGISTRIES = tuple(
    name[::-1] for name in ("gro.ipyp", "gro.detsohnohtyp", "gro.adnocana", "gro.sjmpn")
)


def steps(workflow: Any) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_pinned_and_may_do_little(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        assert set(job["permissions"].items()) <= {("contents", "read"), ("id-token", "write")}
    for step in steps(workflow):
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"])
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False
        assert "secrets." not in json.dumps(step)
        assert "${{" not in step.get("run", "")


def test_workflows_run_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = [
        word
        for path in WORKFLOWS
        for step in steps(yaml.safe_load(path.read_text()))
        for word in step.get("run", "").partition("make ")[2].split()
        if "=" not in word and "make" in step["run"].split()[0]
    ]
    assert {"test", "validate", "docs", "dist", "workflows"} <= set(run) <= targets


def test_the_tests_run_where_the_classifiers_say() -> None:
    tests = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["test"]
    told = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert tests["strategy"]["matrix"]["python"] == told


def test_no_file_names_a_registry() -> None:
    line = ["git", "grep", "-l", "-i", "-F", *(w for name in REGISTRIES for w in ("-e", name))]
    found = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if found.returncode > 1:
        pytest.skip("not a clone: git knows no files here")
    assert found.stdout == ""


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock", "tools.lock"])
def test_every_line_of_a_lock_has_hashes(name: str) -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
    assert entries
    for entry in entries:
        assert re.match(r"[\w.\[\],-]+==\S+", entry), entry[:60]
        assert "--hash=sha256:" in entry


# Licences


def test_every_licence_is_allowed_and_on_the_page() -> None:
    page = PAGE.read_text()
    for name, package in (closure("fedprikl", EXTRAS) | closure("fedprikl", ("dev",))).items():
        assert package.is_allowed, f"{name}: {package.licence}"
        assert name == "fedprikl" or f"| {name} |" in page, f"{name}: run `make record`"


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-or-later", False),
        ("Proprietary", False),
        ("", False),
        ("MIT AND (Apache-2.0 OR BSD-2-Clause)", True),
    ],
)
def test_a_licence_that_does_not_fit_is_refused(licence: str, allowed: bool) -> None:
    class Fake:
        metadata = {"Name": "fake", "License-Expression": licence} if licence else FakeMetadata()

    assert Package(Fake()).is_allowed is allowed  # type: ignore[arg-type]


class FakeMetadata(dict[str, str]):
    """Of a package that says nothing."""

    def __init__(self) -> None:
        super().__init__(Name="fake")

    def get_all(self, _: str) -> list[str]:
        return []


def test_the_list_of_parts_is_whole_and_the_same_on_every_call() -> None:
    told = sbom("00" * 32)
    assert told == sbom("00" * 32)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    refs = {part["bom-ref"] for part in told["components"]}
    assert len(refs) == len(told["components"]) > 20
    assert all(ref in refs for each in told["dependencies"] for ref in each["dependsOn"])
    parts = {part["name"]: part["version"] for part in told["components"]}
    assert {"numpy", "cryptography", "opendp"} <= parts.keys()
    for name, version in parts.items():
        assert f"=={version}" in locked({name}), name


def test_the_lock_of_a_part_has_its_hashes_and_no_more() -> None:
    lines = locked({"numpy", "typer"})
    assert set(re.findall(r"^([\w-]+)==", lines, re.MULTILINE)) == {"numpy", "typer"}
    assert "--hash=sha256:" in lines
