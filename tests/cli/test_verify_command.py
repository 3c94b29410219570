"""`fedprikl verify` on documents from anybody: genuine, forged, damaged, hostile."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.cli.verify_command import verify_command
from fedprikl.documents import canonical
from fedprikl.errors import FedPriKLError
from fedprikl.protocol import Release, SignedPlan, SigningKey
from fedprikl.reporting import release_page
from fedprikl.reporting.facts import answer_words, decimals
from tests.protocol.worlds import World

pytestmark = pytest.mark.slow

runner = CliRunner()
KEY = SigningKey.generate()
NEST: Any = []
for _ in range(200):
    NEST = [NEST]
ODD = [
    *(None, True, "1", "", -1, 0, 2**63, 10**400, 1e308, -1e308, 5e-324, -0.0, [], {}, NEST),
    *("\x1b[2J\x9b\u202e", "\ud800", "[bold][/", "x" * 10_000, [1e308, -1e308], [None, 1], [1]),
]


@pytest.fixture(scope="module")
def world() -> World:
    return World.make(clients=9)


@pytest.fixture(scope="module")
def genuine(world: World) -> dict[str, Any]:
    return world.run(world.plan(cohort=9)).release.to_dict()


@pytest.fixture(scope="module")
def noisy(world: World) -> dict[str, Any]:
    plan = world.plan(cohort=9, trust="none")
    return world.run(plan).release.to_dict()


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field, all the way down; of a list its first item."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, (*path, name))
    if isinstance(value, list) and value:
        yield from paths(value[0], (*path, 0))


def mutants(content: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The content with one field replaced, left out, or added."""
    for path in paths(content):
        for odd in (*ODD, KeyError, IndexError):
            changed = copy.deepcopy(content)
            place = changed
            for name in path[:-1]:
                place = place[name]
            if odd is KeyError:
                del place[path[-1]]
            elif odd is IndexError:
                place.__setitem__("more", 1) if isinstance(place, dict) else place.append("more")
            else:
                place[path[-1]] = odd
            yield path, changed


def signed(content: dict[str, Any]) -> str:
    """By somebody who may sign what he likes."""
    signature = KEY.sign(canonical(content))
    return json.dumps({"release": content, "signer": KEY.public, "signature": signature})


@pytest.mark.parametrize("kind", ["genuine", "noisy"])
def test_every_document_is_refused_in_words_or_printed(
    kind: str,
    tmp_path: Path,
    world: World,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = request.getfixturevalue(kind)["release"]
    file, plan = tmp_path / "release.json", world.plan(cohort=9)
    accepted = refused = 0
    for path, changed in mutants(content):
        file.write_text(signed(changed))
        try:
            verify_command(file, key=KEY.public)
            verify_command(file, json=True)
        except FedPriKLError:
            refused += 1
            continue
        accepted += 1
        if path[0] == "answers":
            assert "What is protected" in release_page(Release.load(file), plan, {})
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert accepted > 50  # texts and numbers that are odd, and possible
    assert refused > 500


OUTER = [
    ("{", "}"),
    ('{"release": ', ', "release": {}}'),
    ('{"extra": 1, "release": {}, ', "}"),
    ("[" * 100_000, "]" * 100_000),
    ('{"release": ' * 50_000, "}" * 50_000),
    ("\ufeff\xff", ""),
    ("", ""),
    ("null", ""),
]


@pytest.mark.parametrize(("before", "after"), OUTER)
def test_what_is_no_release_is_refused(before: str, after: str, tmp_path: Path) -> None:
    file = tmp_path / "release.json"
    file.write_text(
        before + after, encoding="latin-1" if "\xff" in before else "utf-8", errors="replace"
    )
    with pytest.raises(FedPriKLError):
        verify_command(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"signer"', '"note": "1", "signer"'),
        ('"population"', '"population": "others", "population"'),
        ('"value": ', '"value": 1e400, "was": '),
        ('"value": ', '"value": NaN, "was": '),
        ('"true_epsilon": ', '"true_epsilon": "1", "was": '),
    ],
    ids=["extra outer field", "named twice", "1e400", "NaN", "epsilon as text"],
)
def test_a_document_with_two_readings_is_not_genuine(
    genuine: dict[str, Any], tmp_path: Path, old: str, new: str
) -> None:
    file = tmp_path / "release.json"
    text = json.dumps(genuine)
    file.write_text(text)
    verify_command(file)
    file.write_text(text.replace(old, new, 1))
    assert file.read_text() != text
    with pytest.raises(FedPriKLError):
        verify_command(file)


@pytest.mark.parametrize("key", ["abc", "xyz", "ab" * 31, "ab" * 33, "g" * 64, "--"])
def test_a_malformed_key_is_called_malformed(
    genuine: dict[str, Any], tmp_path: Path, key: str
) -> None:
    file = tmp_path / "release.json"
    file.write_text(json.dumps(genuine))
    result = runner.invoke(app, ["verify", str(file), f"--signer={key}"])
    assert result.exit_code == 2
    assert "malformed" in result.output
    assert "genuine" not in result.output


def test_an_empty_key_is_not_no_key(genuine: dict[str, Any], tmp_path: Path) -> None:
    """A script's variable may not be set."""
    file = tmp_path / "release.json"
    file.write_text(json.dumps(genuine))
    result = runner.invoke(app, ["verify", str(file), "--signer", ""])
    assert result.exit_code == 2
    assert "--signer is empty" in result.output


def test_a_release_is_shown_with_its_verdict_and_plan(
    genuine: dict[str, Any], world: World, tmp_path: Path
) -> None:
    file, plan = tmp_path / "release.json", tmp_path / "plan.json"
    file.write_text(json.dumps(genuine))
    mine = SignedPlan.sign(world.plan(cohort=9), world.key)
    plan.write_text(json.dumps(mine.to_dict()))
    upper = genuine["signer"].upper()
    said = runner.invoke(app, ["verify", str(file), "--signer", upper, "--plan", str(plan)]).stdout
    assert genuine["release"]["verdict"]["statement"] in said
    assert f"serial 0, valid for ever, signed by {world.key.public}" in said
    other = SignedPlan.sign(world.plan(cohort=9, serial=7), world.key)
    plan.write_text(json.dumps(other.to_dict()))
    result = runner.invoke(app, ["verify", str(file), "--plan", str(plan)])
    assert "about another plan" in str(result.exception)


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (0.0321, 0.0319, 0.0323, "= 0.03210 nats (95% interval: 0.03190 to 0.03230)"),
        (0.5, 0.25, 0.75, "= 0.500 nats (95% interval: 0.250 to 0.750)"),
        (0.5, 0.5, 0.5, "= 0.500 nats (95% interval: 0.500 to 0.500)"),
        (1e300, -1e308, 1e308, "= 1e+300 nats (95% interval: -1e+308 to 1e+308)"),
    ],
)
def test_the_ends_of_an_interval_look_different(
    genuine: dict[str, Any], value: float, low: float, high: float, words: str
) -> None:
    release = Release.from_bytes(json.dumps(genuine))
    answer = replace(release.answers[0], value=value, interval=(low, high), no_drift=None)
    assert words in answer_words(answer, release)


def test_digits_follow_the_width() -> None:
    for width in (0.9, 0.09, 0.009, 1e-5, 1e-11):
        digits = decimals(width)
        assert f"{1.0:.{digits}f}" != f"{1.0 + width:.{digits}f}"
    assert decimals(0.0) == decimals(-1.0) == decimals(float("inf")) == 3
