"""Units and containers: their commands and options exist, and nothing runs as root or writable."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from fedprikl.cli.app import COMMANDS, app

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UNITS = {path.stem: path for path in sorted((DEPLOY / "systemd").glob("*.service"))}


def unit(path: Path) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(path.read_text(encoding="utf-8"))
    return parsed


def check_line(line: list[str]) -> None:
    """A command that exists, with options that it has, and with those that it needs."""
    name, *words = line
    if name not in COMMANDS:
        pytest.skip(f"there is no `fedprikl {name}` in this version")
    group: Any = get_command(app)
    command = group.get_command(None, name)
    if hasattr(command, "commands"):  # a group: its command is the next word
        command = command.commands[words[0]]
    given = {word for word in words if word.startswith("--")}
    known = {option: each for each in command.params for option in each.opts}
    assert given <= set(known), f"{name} has no {given - set(known)}"
    for each in command.params:
        if each.required and each.param_type_name == "option":
            assert given & set(each.opts), f"{name} needs {each.opts}"


@pytest.mark.parametrize("name", UNITS)
def test_a_units_command_exists(name: str) -> None:
    program, *line = shlex.split(unit(UNITS[name])["Service"]["ExecStart"])
    assert program == "/opt/fedprikl/bin/fedprikl"
    assert name == f"fedprikl-{line[0]}"
    check_line(line)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_confined(name: str) -> None:
    service = unit(UNITS[name])["Service"]
    assert service["User"] == service["Group"] == "fedprikl"
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == (name, "0700")
    text = UNITS[name].read_text(encoding="utf-8")
    assert f"Environment=FEDPRIKL_HOME=/var/lib/{name}\n" in text
    assert set(re.findall(r"/var/lib/([\w-]+)", text)) == {name}
    assert set(re.findall(r"/etc/([\w-]+)", text)) == {"fedprikl"}


def test_a_service_never_loses_its_policy() -> None:
    """Unit and containers name the file, and nothing else says what a site allows."""
    line = unit(UNITS["fedprikl-site"])["Service"]["ExecStart"]
    assert "--policy /etc/fedprikl/policy.toml" in line
    for number in range(1, 5):
        command = SERVICES[f"site{number}"]["command"]
        assert command[command.index("--policy") + 1] == "/own/policy.toml"
        assert f"./own/site{number}:/own:ro" in SERVICES[f"site{number}"]["volumes"]


@pytest.mark.parametrize("name", UNITS)
def test_the_docs_name_what_a_unit_reads(name: str) -> None:
    """Every variable of its environment file, in the line of the table that starts it."""
    text = UNITS[name].read_text(encoding="utf-8")
    page = (DEPLOY.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.split("\n") if re.match(rf"\| \d \| `{name}(.timer)?` ", line))
    for variable in set(re.findall(r"\$\{?([A-Z_]+)", text)):
        assert f"`{variable}" in line
    for file in re.findall(r"/etc/fedprikl/([\w.]+)", text):
        assert file in ("ca.pem", "superexec.secret") or f"`{file}`" in line


def test_sites_of_the_containers_have_a_policy_and_can_be_registered() -> None:
    """The relay runs before sites are registered, which is before they are started."""
    text = (DEPLOY / "container" / "compose.yaml").read_text(encoding="utf-8")
    steps = [
        line[4:] for line in text.split("\n") if re.match("#   (podman|ssh-keygen|fedprikl)", line)
    ]
    places = [
        next(n for n, step in enumerate(steps) if re.search(words, step))
        for words in (
            *("up -d relay$", " keys$", "config.toml", "ssh-keygen", "site policy", "register"),
            "up -d$",
        )
    ]
    assert places == sorted(places)
    for variable in set(re.findall(r"\$\{([A-Z_]+)", text)):
        assert variable in text.split("x-party")[0]


def test_units_restart_and_the_monitor_has_a_timer() -> None:
    assert set(UNITS) == {f"fedprikl-{name}" for name in ("aggregator", "monitor", "relay", "site")}
    for name, path in UNITS.items():
        service = unit(path)["Service"]
        if name == "fedprikl-monitor":
            assert (service["Type"], service["SuccessExitStatus"]) == ("oneshot", "3")
        else:
            assert service["Restart"] == "on-failure"
    timer = unit(DEPLOY / "systemd" / "fedprikl-monitor.timer")
    assert timer["Timer"]["Persistent"] == "yes"
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("spoilt", [False, True])
def test_systemd_accepts_the_units(tmp_path: Path, spoilt: bool) -> None:
    """With a program that is there; a unit with an unknown setting is found out."""
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text(encoding="utf-8").replace("/opt/fedprikl/bin/fedprikl", "/bin/true")
        (tmp_path / path.name).write_text(text.replace("Restart=", "Rsetart=") if spoilt else text)
    done = subprocess.run(
        [str(shutil.which("systemd-analyze")), "verify", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("Rsetart" in done.stderr) is spoilt
    assert spoilt or (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_a_services_command_exists(name: str) -> None:
    check_line(SERVICES[name]["command"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["user"].split(":")[0] == re.findall(r"^USER (\d+)$", IMAGE, re.M)[-1] != "0"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    mounts = [volume.split(":") for volume in service["volumes"]]
    written = [mount for mount in mounts if mount[2:] != ["ro"]]
    assert all(mount[0] in COMPOSE["volumes"] for mount in written)
    assert {mount[1] for mount in written} <= {"/srv/fedprikl"}
    places = {mount[1] for mount in mounts}
    paths = [word for word in service["command"] if word.startswith("/")]
    assert all(any(Path(path).is_relative_to(place) for place in places) for path in paths)


def test_the_federation_is_whole() -> None:
    assert set(SERVICES) == {"relay", "aggregator", "monitor", "page"} | {
        f"site{number}" for number in range(1, 5)
    }
    planners = {name for name in SERVICES if SERVICES[name]["image"] == "fedprikl-aggregator"}
    assert planners == {"aggregator", "monitor", "page"}  # they need more than a site
    homes = [service["volumes"][0] for service in SERVICES.values()]
    assert len({*homes}) == len(homes)  # no two parties write the same place
    for name, service in SERVICES.items():
        secrets = [volume for volume in service["volumes"] if "secret" in volume]
        assert bool(secrets) is (name == "aggregator")


def test_the_image() -> None:
    stages = re.findall(r"^FROM (\S+)", IMAGE, re.M)
    assert stages == ["${BASE}"] * 2
    assert "COPY --from=build /opt/fedprikl /opt/fedprikl" in IMAGE
    assert 'ENTRYPOINT ["fedprikl"]' in IMAGE
    for line in re.findall(r"^COPY (?!--)(.*) \S+$", IMAGE, re.M):
        assert all((DEPLOY.parent / name).exists() for name in line.split())
