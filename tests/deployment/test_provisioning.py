"""A federation is set up by files that travel. Bad ones change nothing.

`test_five_sites_in_ten_commands` runs the commands of docs/deployment.md with real processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deploy.loopback import free_port
from deploy.small_world import write_sites

from fedprikl.deployment import provisioning
from fedprikl.deployment.flower.parties import prepare_relay
from fedprikl.deployment.provisioning import Federation
from fedprikl.deployment.settings import Home
from fedprikl.documents import canonical
from fedprikl.errors import FedPriKLError, InvalidInputError
from fedprikl.protocol import Release, Roster, SigningKey
from fedprikl.records import fit_reference

NAMES = ("aachen", "bergen", "cork", "delft", "evora")
BIN = Path(sys.executable).parent / "fedprikl"


def make(folder: Path, reference: Path) -> Federation:
    prepare_relay(folder / "relay", name="127.0.0.1", days=1)
    return provisioning.found(folder, name="hospitals", relay="127.0.0.1:9443", reference=reference)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    write_sites(tmp_path, sites=1, rows=5)
    fit_reference(tmp_path / "public.csv").save(tmp_path / "ref.json")
    return make(tmp_path / "organiser", tmp_path / "ref.json")


def invited(federation: Federation, *names: str, days: float = 1) -> dict[str, Path]:
    """Invites, and writes the invitations beside the organiser's folder."""
    tokens = [os.urandom(16).hex() for _ in names]
    changed, texts = provisioning.invite(federation, names, days=days, tokens=tokens)
    changed.save()
    paths = {name: federation.folder.parent / f"{name}.invite" for name in names}
    for name, path in paths.items():
        path.write_text(texts[name])
    return paths


def joined(federation: Federation, *names: str) -> dict[str, Path]:
    """Invites and has each site join; the joining files."""
    found = {}
    for name, path in invited(federation, *names).items():
        _, text, _ = provisioning.join(path, path.with_suffix(".site"))
        found[name] = path.with_suffix(".join")
        found[name].write_text(text)
    return found


def admitted(folder: Path, *files: Path) -> Federation:
    federation = Federation.load(folder)
    sites = [provisioning.read_joining(federation, path)[0] for path in files]
    changed = provisioning.admit(federation, sites)
    changed.save()
    return changed


def test_both_sides_see_the_same_fingerprint_and_no_private_key_travels(
    federation: Federation,
) -> None:
    (path,) = invited(federation, "aachen").values()
    _, text, told = provisioning.join(path, path.with_suffix(".site"))
    file = path.with_suffix(".join")
    file.write_text(text)
    _, seen = provisioning.read_joining(Federation.load(federation.folder), file)
    assert seen == told
    assert "PRIVATE" not in path.read_text() + text
    assert (path.with_suffix(".site") / "node").stat().st_mode & 0o077 == 0


def test_a_removed_site_is_admitted_again_with_the_same_file(federation: Federation) -> None:
    files = joined(federation, "aachen", "bergen", "cork")
    before = admitted(federation.folder, *files.values())
    whole = Roster.load(before.home.roster).fingerprint
    provisioning.remove(before, ["cork"]).save()
    assert "cork" not in before.home.roster.read_text()
    admitted(federation.folder, files["cork"])
    assert Roster.load(before.home.roster).fingerprint == whole


def test_a_removed_site_that_is_invited_again_keeps_its_keys(federation: Federation) -> None:
    first = joined(federation, "aachen")["aachen"]
    old = first.read_text()
    provisioning.remove(admitted(federation.folder, first), ["aachen"]).save()
    second = joined(Federation.load(federation.folder), "aachen")["aachen"]
    assert json.loads(second.read_text())["signer"] == json.loads(old)["signer"]
    second.with_name("old.join").write_text(old)
    with pytest.raises(InvalidInputError, match="older invitation"):
        admitted(federation.folder, second.with_name("old.join"))
    admitted(federation.folder, second)


def altered(text: str) -> str:
    content = json.loads(text)
    content["body"]["site"] = "bergen"
    return json.dumps(content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (altered, "altered"),
        (lambda text: text[:-40], "sent again"),
        (lambda _: "", "sent again"),
        (lambda _: "[]", "sent again"),
        (lambda _: "{}", "is no joining file"),
        (lambda text: text.replace("joining file", "kit"), "is no joining file"),
    ],
)
def test_a_bad_joining_file_changes_nothing(
    federation: Federation, change: Callable[[str], str], words: str
) -> None:
    files = joined(federation, "aachen", "bergen")
    files["aachen"].write_text(change(files["aachen"].read_text()))
    before = (federation.folder / "federation.json").read_bytes()
    with pytest.raises(InvalidInputError, match=words) as error:
        admitted(federation.folder, files["bergen"], files["aachen"])
    assert "Nothing was changed" in str(error.value)
    assert (federation.folder / "federation.json").read_bytes() == before


def rewritten(path: Path, key: SigningKey, kind: str, **body: str) -> Path:
    """The file as the holder of the key could have written it."""
    content = json.loads(path.read_text())["body"] | body
    message = f"fedprikl/{kind}/1/".encode() + canonical(content)
    signed = {"format": f"fedprikl {kind}", "body": content}
    path.write_text(json.dumps(signed | {"signer": key.public, "signature": key.sign(message)}))
    return path


@pytest.mark.parametrize("name", ['a" = "b', "a\nb", "A", "../a"])
def test_the_name_of_a_federation_is_a_plain_word(federation: Federation, name: str) -> None:
    file = rewritten(
        invited(federation, "aachen")["aachen"], federation.organiser, "invitation", federation=name
    )
    with pytest.raises(InvalidInputError, match="is no name here"):
        provisioning.join(file, file.with_suffix(".site"))
    assert not file.with_suffix(".site").exists()


def test_a_node_key_is_one_line_and_of_one_site(federation: Federation) -> None:
    files = joined(federation, "aachen", "bergen")
    keys = {
        name: SigningKey.load(Home(path.with_suffix(".site")).identity)
        for name, path in files.items()
    }
    (first, second), line = files.values(), json.loads(files["aachen"].read_text())["body"]["node"]
    rewritten(second, keys["bergen"], "joining file", node=f"{line.split()[0]} {line.split()[1]} b")
    with pytest.raises(InvalidInputError, match="the same node"):
        admitted(federation.folder, first, second)
    rewritten(second, keys["bergen"], "joining file", node=f"{line}\n{line}")
    with pytest.raises(InvalidInputError, match="no elliptic-curve node key"):
        admitted(federation.folder, second)


@pytest.mark.parametrize("part", ["reference", "plan"])
def test_a_kit_that_cannot_be_used_changes_nothing(federation: Federation, part: str) -> None:
    files = joined(federation, "aachen", "bergen", "cork")
    known = admitted(federation.folder, *files.values())
    folder, content = files["aachen"].with_suffix(".site"), {"reference": "{}", "plan": "{}"}
    content |= {
        "federation": known.name,
        "certificates": "x",
        "roster": known.home.roster.read_text(),
    }
    if part == "plan":
        content["reference"] = known.home.reference.read_text()
    kit = folder.with_name("kit.json")
    kit.write_text(json.dumps({"body": {}}))
    rewritten(kit, known.organiser, "kit", **content)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(FedPriKLError):
        provisioning.unpack(kit, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_file_twice_of_another_federation_or_too_late_is_refused(
    federation: Federation, tmp_path: Path
) -> None:
    file = joined(federation, "aachen")["aachen"]
    with pytest.raises(InvalidInputError, match="same name"):
        admitted(federation.folder, file, file)
    other = make(tmp_path / "other", tmp_path / "ref.json")
    with pytest.raises(InvalidInputError, match="another federation"):
        admitted(other.folder, file)
    admitted(federation.folder, file)
    with pytest.raises(InvalidInputError, match="admitted already"):
        admitted(federation.folder, file)
    late = invited(Federation.load(federation.folder), "bergen", days=1e-9)["bergen"]
    with pytest.raises(InvalidInputError, match="expired"):
        provisioning.join(late, tmp_path / "late")
    assert not (tmp_path / "late").exists()


def test_two_sites_cannot_have_one_folder(federation: Federation) -> None:
    paths = invited(federation, "aachen", "bergen")
    files = []
    for name, path in paths.items():
        _, text, _ = provisioning.join(path, federation.folder.parent / "shared")
        files.append(path.with_name(f"{name}.join"))
        files[-1].write_text(text)
    with pytest.raises(InvalidInputError, match="same identity"):
        admitted(federation.folder, *files)


@pytest.mark.parametrize("name", ["", "A", "../x", "a b", "x" * 41, "-a"])
def test_a_name_is_a_plain_word(federation: Federation, name: str) -> None:
    with pytest.raises(InvalidInputError, match="no name"):
        invited(federation, name)


def test_a_folder_without_a_federation_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FedPriKLError, match="federation init"):
        Federation.load(tmp_path)


class Commands:
    """Runs commands in empty folders, as people do, and counts them; ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counts = folder, dict[str, int]()
        self.running: list[subprocess.Popen[bytes]] = []

    def __call__(self, who: str, *words: str, background: bool = False) -> str:
        place = self.folder / who
        place.mkdir(exist_ok=True)
        self.counts[who] = self.counts.get(who, 0) + 1
        environment = os.environ | {"HOME": str(place), "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if background:
            with (place / "log").open("ab") as log:
                self.running.append(
                    subprocess.Popen(
                        [BIN, *words], cwd=place, env=environment, stdout=log, stderr=log
                    )
                )
            return ""
        done = subprocess.run(
            [BIN, *words],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(60)


@pytest.mark.validation
def test_five_sites_in_ten_commands(tmp_path: Path) -> None:
    files = write_sites(tmp_path, sites=len(NAMES), rows=400)
    run, org, port = Commands(tmp_path), "organiser", free_port()
    try:
        run(org, "reference", str(tmp_path / "public.csv"), "-o", "ref.json")
        relay = ("--relay", f"127.0.0.1:{port}")
        run(
            *(org, "federation", "init", "hospitals", *relay),
            *("--reference", "ref.json", "--epsilon", "3"),
        )
        quiet = ("--health-port", "0")
        run(org, "federation", "host", "hospitals", *quiet, background=True)
        run(org, "federation", "invite", "hospitals", *NAMES)
        for name in NAMES:
            run(name, "federation", "join", str(tmp_path / org / f"{name}.invite"))
        returned = [str(tmp_path / name / f"{name}.join") for name in NAMES]
        said = run(org, "federation", "admit", "hospitals", *returned, "--yes")
        (line,) = [line for line in said.splitlines() if line.startswith("  fedprikl plan")]
        run(org, *line.replace("NUMBER", "2000").split()[1:])
        run(org, "federation", "kit", "hospitals", "plan.json")
        kit = str(tmp_path / org / "kit.json")
        for name, file in zip(NAMES, files, strict=True):
            more = ("--data", str(file), *quiet)
            run(name, "federation", "start", kit, *more, background=True)
        run(org, "federation", "ask", "hospitals", "--wait", "180")
        folder = str(tmp_path / org / "hospitals")
        known = json.loads(run("somebody", "federation", "status", folder, "--json"))
    finally:
        run.stop()
    release = Release.load(tmp_path / org / "release.json")
    assert [cohort.included for cohort in release.cohorts] == [len(NAMES)]
    assert all(each["connected"] for each in known["sites"])  # as Flower's own API tells it
    assert run.counts == {org: 8, "somebody": 1} | dict.fromkeys(NAMES, 2)
