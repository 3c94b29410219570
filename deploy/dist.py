"""Builds what is released, twice, and tries it out: `make dist`.

1. wheel and sdist from two clones in two folders: the same bytes
2. they hold the files of the repository that they should, and nothing else
3. their metadata is valid, and says what pyproject.toml says
4. the wheel works in an empty environment: `fedprikl demo`, and the commands of the README
5. dist/ then has both, a list of all parts (CycloneDX), and SHA256SUMS
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

from packaging.metadata import Metadata
from trove_classifiers import classifiers

from deploy.packages import ROOT, closure, locked, sbom

DIST = ROOT / "dist"
MOST_SECONDS = 20.0  # of the demo, once everything is installed and compiled
NOT_IN_SDIST = ("experiments/paper/results/", ".github/", ".ci/")


def run(*line: str | Path, folder: Path, **environment: str) -> str:
    """What a command prints; an error shows all of it."""
    done = subprocess.run(
        [str(word) for word in line],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, line))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(place: Path, umask: int) -> dict[str, bytes]:
    """The files that a fresh clone builds, by name."""
    run("git", "clone", "--quiet", "--no-local", ROOT, place, folder=ROOT)
    made = place.parent / f"{place.name}-made"
    stamp = run("git", "log", "-1", "--format=%ct", folder=place).strip()
    old = os.umask(umask)
    try:
        line = (sys.executable, "-m", "hatchling", "build", "-d", made)
        run(*line, folder=place, SOURCE_DATE_EPOCH=stamp, PYTHONPATH="")
    finally:
        os.umask(old)
    return {path.name: path.read_bytes() for path in sorted(made.iterdir())}


def build_twice(folder: Path) -> dict[str, bytes]:
    """The same files from two clones, made by two people; an error if they differ."""
    (folder / "elsewhere").mkdir()
    one, other = build(folder / "a", 0o022), build(folder / "elsewhere" / "clone", 0o077)
    differ = [name for name in {*one, *other} if one.get(name) != other.get(name)]
    if differ:
        raise SystemExit(f"Two builds differ: {', '.join(differ)}.")
    return one


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel has the package, the sdist the repository; neither has anything else."""
    tracked = set(run("git", "ls-files", folder=ROOT).splitlines())
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/fedprikl/")}
    with zipfile.ZipFile(wheel) as opened:
        found = {name for name in opened.namelist() if ".dist-info/" not in name}
        inside = {name.rpartition(".dist-info/")[2] for name in opened.namelist()} - found
    _same("wheel", found, package)
    told = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    _same("wheel's metadata", {name for name in inside if name in told}, told)
    with tarfile.open(sdist) as archive:
        unpacked = {name.partition("/")[2] for name in archive.getnames()} - {"PKG-INFO"}
    wanted = {name for name in tracked if not name.startswith(NOT_IN_SDIST)}
    _same("sdist", unpacked, wanted)


def _same(what: str, found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        raise SystemExit(
            f"The {what} has other files than it should: {sorted(found ^ wanted)[:9]}."
        )


def check_metadata(wheel: Path, sdist: Path) -> None:
    """Valid, the same in both, with known classifiers, and as pyproject.toml says."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        raw = opened.read(name)
    with tarfile.open(sdist) as archive:
        member = archive.extractfile(next(n for n in archive.getnames() if n.endswith("PKG-INFO")))
        if member is None or member.read() != raw:
            raise SystemExit("Wheel and sdist have different metadata.")
    told = Metadata.from_email(raw, validate=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    checks = {
        "version": str(told.version) == project["version"],
        "licence": told.license_expression == project["license"],
        "classifiers": set(told.classifiers or ()) == set(project["classifiers"]) <= classifiers,
        "description": told.description == (ROOT / "README.md").read_text()
        and (told.description_content_type or "").startswith("text/markdown"),
        "Python": str(told.requires_python) == project["requires-python"],
        "extras": set(told.provides_extra or ()) == set(project["optional-dependencies"]),
        "citation": f"version: {project['version']}" in (ROOT / "CITATION.cff").read_text(),
    }
    if wrong := [name for name, holds in checks.items() if not holds]:
        raise SystemExit(f"The metadata is wrong: {', '.join(wrong)}.")


def try_out(wheel: Path, folder: Path) -> float:
    """Installs the wheel beside what it needs, and nothing else; seconds that the demo takes."""
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)
    needed = {name for name in closure("fedprikl", ("plan",)) if name != "fedprikl"}
    (folder / "needed.lock").write_text(locked(needed))
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, "--require-hashes", "--only-binary", ":all:", "-r", "needed.lock", folder=folder)
    run(*pip, wheel, folder=folder)
    began = time.monotonic()
    program = folder / "venv" / "bin" / "fedprikl"
    (folder / "demo").mkdir()
    run(program, "demo", folder=folder / "demo", PYTHONPATH="")
    seconds = time.monotonic() - began
    world = folder / "readme"
    world.mkdir()
    write_readme_files(world)
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    readme = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"<!-- walk -->\n```sh\n(.*?)```", readme, re.DOTALL)
    for line in block.strip().splitlines():
        run("sh", "-c", line, folder=world, PATH=path, PYTHONPATH="")
    for name in ("ref.json", "plan.json", "release.json", "report.html"):
        if not (world / name).is_file():
            raise SystemExit(f"The commands of the README made no {name}.")
    return seconds


def write_readme_files(folder: Path) -> None:
    """What the commands of the README read: a public file, and one file of each client."""
    rows = [f"{20 + 7 * place % 60},{'basic' if place % 3 else 'plus'}" for place in range(720)]
    (folder / "public.csv").write_text("\n".join(["age,plan", *rows, ""]))
    (folder / "clients").mkdir()
    for client in range(12):
        held = rows[client::12]
        (folder / "clients" / f"{client}.csv").write_text("\n".join(["age,plan", *held, ""]))


def main() -> None:
    """All steps, in order."""
    if run("git", "status", "--porcelain", folder=ROOT):
        print("Note: what is not committed is not built.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = build_twice(folder)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        for file, data in files.items():
            (DIST / file).write_bytes(data)
        (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
        check_contents(wheel, sdist)
        check_metadata(wheel, sdist)
        seconds = try_out(wheel, folder)
    parts = DIST / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    parts.write_text(json.dumps(sbom(digest), indent=1) + "\n")
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(DIST.iterdir())
    )
    (DIST / "SHA256SUMS").write_text(sums)
    print(f"{sums}The demo took {seconds:.1f} s in an empty environment.")
    if seconds > MOST_SECONDS:
        raise SystemExit(f"That is more than {MOST_SECONDS:g} s.")


if __name__ == "__main__":
    main()
