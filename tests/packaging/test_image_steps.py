"""The steps of the image, run in a plain folder: what they build works."""

import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedprikl import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IMAGE = (ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8")
# Packages come from this environment and none from an index: the steps are what is tried here,
# what a download gives is tried in test_clean_environment.py.
OFFLINE = {
    "PIP_NO_DEPS": "1",
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the other way round: no isolation
}
PACKAGES = Path(sysconfig.get_paths()["purelib"])
BUILDER = ("hatchling", "packaging", "pathspec", "pluggy", "trove_classifiers")


def instructions(text: str) -> list[tuple[str, str]]:
    """Each instruction of a Containerfile and the rest of its line."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    words = [line.split(maxsplit=1) for line in lines if line.strip()]
    return [(name, rest.strip()) for name, rest in words]


@dataclass(frozen=True)
class Machine:
    """A folder that stands for the root of an image."""

    root: Path
    environment: dict[str, str]

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        placed = re.sub(r"(?<![\w.])/(source|opt|srv)\b", rf"{self.root}/\1", line)
        return subprocess.run(
            ["/bin/sh", "-c", placed],
            env=self.environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """All that the first stage does; of the second one its settings."""
    root = tmp_path_factory.mktemp("image")
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / "builder").mkdir()
    for name in BUILDER:
        (root / "builder" / name).symlink_to(PACKAGES / name)
    paths = {"PATH": f"{root}/bin:/usr/bin:/bin", "PYTHONPATH": f"{root}/builder"}
    machine = Machine(root, {**paths, "HOME": f"{root}/home", **OFFLINE})
    stage = 0
    for name, rest in instructions(IMAGE):
        stage += name == "FROM"
        if name == "ARG":
            key, value = rest.split("=")
            machine.environment[key] = value
        elif name == "COPY" and stage == 1:
            *sources, place = rest.split()
            for source in sources:
                copy(ROOT / source, root / place.strip("/"))
        elif name == "RUN" and stage == 1:
            done = machine.run(rest)
            assert done.returncode == 0, done.stderr
        elif name == "ENV":
            for setting in rest.split():
                key, value = setting.split("=")
                placed = re.sub(r"^/", f"{root}/", value).replace("$PATH", "/usr/bin:/bin")
                machine.environment[key] = placed
    machine.environment["PYTHONPATH"] = str(PACKAGES)  # what was not downloaded
    (root / "srv" / "fedprikl").mkdir(parents=True)
    (root / "home").mkdir(exist_ok=True)
    return machine


def copy(source: Path, place: Path) -> None:
    """A file into a folder, or the content of a folder."""
    place.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, place, dirs_exist_ok=True)
    else:
        shutil.copy(source, place)


def test_the_entry_point_starts(image: Machine) -> None:
    program = dict(instructions(IMAGE))["ENTRYPOINT"].strip('["]')
    shown = image.run(f"{program} --version")
    assert shown.returncode == 0, shown.stderr
    assert __version__ in shown.stdout
    found = shutil.which(program, path=image.environment["PATH"])
    assert found is not None
    assert Path(found).is_relative_to(image.root / "opt" / "fedprikl")
    where = image.run("/opt/fedprikl/bin/python -c 'import fedprikl; print(fedprikl.__file__)'")
    assert Path(where.stdout.strip()).is_relative_to(image.root / "opt" / "fedprikl")
    assert not (image.root / "opt/fedprikl/bin/pip").exists()  # nobody installs more in there


def test_it_writes_only_where_the_volume_is(image: Machine) -> None:
    before = {path for path in image.root.rglob("*") if "srv" not in path.parts}
    made = image.run("fedprikl keys")
    assert made.returncode == 0, made.stderr
    home = image.root / "srv" / "fedprikl"
    assert (home / "sealing.pem").exists()
    after = {path for path in image.root.rglob("*") if "srv" not in path.parts}
    assert after == before
