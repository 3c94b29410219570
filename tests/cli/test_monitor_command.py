"""`fedprikl monitor`, as cron calls it and as a person does."""

import json
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli import monitor_command
from fedprikl.cli.app import app
from fedprikl.documents import readable
from fedprikl.front import series
from fedprikl.monitoring.history import History
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    Once,
    Plan,
    SignedPlan,
    SigningKey,
)
from tests.cli.test_round_commands import fails
from tests.monitoring.small_series import (
    DRIFTED,
    LIKE_PI,
    NAMED,
    REFERENCE,
    World,
    over,
    plan_of,
    quick_folder,
)
from tests.monitoring.test_history import rewritten

pytestmark = pytest.mark.slow

VERBS = ("run", "status", "acknowledge", "rebaseline", "verify")


def monitor_line(*arguments: str) -> list[str]:
    """The command line: a verb, the plan, and the rest."""
    verb, *rest = arguments if arguments and arguments[0] in VERBS else ("run", *arguments)
    return ["monitor", verb, "plan.json", *rest]


PLAN = plan_of(false_alarm=1e-4)  # a year: so rarely do these tests fail, as the noise is real
BEGUN = ("begin", 3)  # the last of four periods
runner = CliRunner()


def write_plan(plan: Plan, path: Path) -> None:
    path.write_text(readable(SignedPlan(plan).to_dict()), encoding="utf-8")


@pytest.fixture(scope="module")
def _drifted() -> Iterator[World]:
    """Four weeks; the third and the fourth are far from the reference."""
    with quick_folder() as folder:
        world = World.create(folder / "series", PLAN)
        REFERENCE.save(world.folder / "ref.json")
        write_plan(world.plan, world.folder / "plan.json")
        for week, counts in enumerate([LIKE_PI, LIKE_PI, DRIFTED, DRIFTED]):
            world.grow(week, [10 * count for count in counts])
        shutil.copytree(world.folder, folder / "fresh")
        world.monitor(over(3))
        yield world


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with quick_folder() as found:
        yield found
        monkeypatch.undo()  # leaves the folder before it goes


@pytest.fixture
def drifted(_drifted: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """After four weeks, with an open alarm; it is the working directory."""
    return _there(_drifted.folder, folder, monkeypatch, over(3, hours=7))


@pytest.fixture
def fresh(_drifted: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same files after two weeks, before the first call."""
    return _there(_drifted.folder.parent / "fresh", folder, monkeypatch, over(1))


def _there(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> World:
    shutil.copytree(source, folder / "series")
    monkeypatch.chdir(folder / "series")
    clock(monkeypatch, at)
    return World(folder / "series", PLAN)


def clock(monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    for module in (series, monitor_command):
        monkeypatch.setattr(module, "now", lambda: at)


def called(*arguments: str, code: int = 0) -> Any:
    result = runner.invoke(app, monitor_line(*arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.mark.usefixtures("fresh")
def test_what_is_due_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    result = called("clients")
    assert result.stdout.splitlines()[0] == "No drift in 2 weeks."
    assert "Budget of one record: Epsilon 2 of 2 is spent, nothing is left" in (result.stdout)
    assert "Next: after 25 January 2027, 00:00 UTC." in result.stdout
    assert "'clients' had no budget; it is now epsilon 2" in " ".join(result.stderr.split())
    assert called("clients").stdout == result.stdout  # nothing is due
    assert called("status").stdout == result.stdout
    assert "2 releases, each signed, none missing" in called("verify").stdout
    clock(monkeypatch, over(2))
    assert called("clients", code=3).stdout.startswith("Drift since week 2 (18 January 2027).\n")


@pytest.mark.usefixtures("fresh")
def test_a_period_whose_records_are_late_hides_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four weeks are there, drifted since the third; the fifth is over and has no rows yet."""
    clock(monkeypatch, over(4))
    for _ in range(2):
        result = called("clients", code=3)
        assert result.stdout.startswith("Drift since week 2 (18 January 2027).\n")
        said = " ".join(result.stderr.split())
        assert "Period 4 is still due" in said
        assert "Nothing of period 4 was counted or charged" in said
    assert called("status", code=3).stdout == result.stdout


@pytest.mark.usefixtures("fresh")
def test_without_an_alarm_what_could_not_be_counted_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in Path("clients").glob("*.csv"):
        lines = file.read_text().splitlines()
        kept = [line for line in lines if line[:10] < "2027-01-18" or line == lines[0]]
        file.write_text("\n".join([*kept, ""]))
    clock(monkeypatch, over(2))
    assert "Period 2 is still due" in fails(monkeypatch, capsys, *monitor_line("clients"))
    assert called("status").stdout.startswith("No drift in 2 weeks.")


@pytest.mark.usefixtures("drifted")
def test_what_is_said_depends_on_released_numbers_only() -> None:
    """The clients' files are gone: all of it comes from the history."""
    before = [called(*more, code=3).stdout for more in (["status"], ["status", "--json"])]
    shutil.rmtree("clients")
    assert before == [called(*m, code=3).stdout for m in (["status"], ["status", "--json"])]
    words = called("status", code=3).output
    with History.open("history.db", create=False) as opened:
        texts = " ".join(release.to_bytes().decode() for release in opened.releases().values())
    numbers = set(re.findall(r"[0-9]{3,}", words)) - {"2027"}
    assert all(number in texts for number in numbers)


@pytest.mark.usefixtures("drifted")
def test_json_is_the_status() -> None:
    found = json.loads(called("status", "--json", code=3).stdout)
    assert found["headline"] == "Drift since week 2 (18 January 2027)."
    assert [point["state"] for point in found["points"]] == ["released"] * 4 + ["ahead"]
    (alarm,) = found["alarms"]
    assert (alarm["number"], alarm["raised"], alarm["since"], alarm["state"]) == (1, 2, 2, "open")
    assert found["budget"]["epsilon"] == 2.0
    assert [site["answered"] for site in found["sites"]] == [4, 4, 4]


@pytest.mark.usefixtures("drifted")
def test_an_alarm_is_open_until_it_is_acknowledged() -> None:
    said = called("clients", code=3).stdout
    assert "Alarm 1 (open): Drift since week 2 (18 January 2027). Raised in week 2 by " in said
    said = called("acknowledge", "1", "--note", "new carrier").stdout
    assert said.startswith("Drift since week 2 (18 January 2027); acknowledged.\n")
    assert "Alarm 1 (acknowledged)" in said
    found = json.loads(called("clients", "--json").stdout)
    assert found["alarms"][0]["note"] == "new carrier"


def test_an_alarm_ends_by_itself_and_may_be_raised_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad week stays in the windows for a year; what is repaired is not called drift."""
    world = World.create(folder / "series", PLAN)
    REFERENCE.save(world.folder / "ref.json")
    write_plan(world.plan, world.folder / "plan.json")
    for week, counts in enumerate([DRIFTED, LIKE_PI, LIKE_PI, LIKE_PI, LIKE_PI, DRIFTED]):
        world.grow(week, [10 * count for count in counts])
    monkeypatch.chdir(world.folder)
    clock(monkeypatch, over(3))
    assert (
        "Alarm 1 (open): Drift since week 0 (4 January 2027)." in called("clients", code=3).stdout
    )
    clock(monkeypatch, over(4))
    said = called("clients", "--metrics", "drift.prom").stdout
    assert said.startswith("No drift in the last 4 weeks.\n")
    assert "Alarm 1 (ended): Drift in week 0 (4 January 2027). Raised in week 0 by " in said
    text = Path("drift.prom").read_text()
    assert 'alarms{population="clients",state="open"} 0\n' in text
    assert 'alarms{population="clients",state="ended"} 1\n' in text
    clock(monkeypatch, over(5))
    said = called("clients", code=3).stdout
    assert said.startswith("Drift since week 5 (8 February 2027).\n")
    assert "Alarm 1 (ended)" in said
    assert "Alarm 2 (open)" in said


def test_only_alarms_that_exist_are_acknowledged(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = drifted.history.read_bytes()
    error = fails(monkeypatch, capsys, *monitor_line("acknowledge", "7"))
    assert "There is no alarm 7; there are: 1." in error
    assert drifted.history.read_bytes() == before


def test_a_new_normal(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, words in [
        ("3:2", "Periods 3 to 2 cannot be the new normal"),
        ("2:9", "both must have a release"),
        ("1:2", "ends with the last release: 1:3"),
    ]:
        assert words in " ".join(
            fails(monkeypatch, capsys, *monitor_line("rebaseline", wrong)).split()
        )
    assert "two periods, like 23:30" in called("rebaseline", "three", code=2).stderr
    assert "Alarm 1 (rebaselined)" in called("rebaseline", "2:3").stdout
    drifted.grow(4, [10 * count for count in DRIFTED])
    clock(monkeypatch, over(4))
    assert "Alarm 1 (rebaselined)" in called("clients").stdout
    assert json.loads(called("status", "--json").stdout)["points"][4]["exceeds"] is False


@pytest.mark.usefixtures("drifted")
def test_page_and_metrics_are_written() -> None:
    called("status", "--site", "public", "--metrics", "fedprikl.prom", code=3)
    page = Path("public/index.html").read_text()
    assert "Drift since week 2 (18 January 2027)." in page
    assert sorted(path.name for path in Path("public/periods").iterdir()) == [
        f"000{n}.html" for n in range(4)
    ]
    text = Path("fedprikl.prom").read_text()
    assert text == Path("public/metrics.prom").read_text()
    assert text.endswith("# EOF\n")


def test_news_do_not_wait_for_the_periods_to_come(
    fresh: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of five weeks raises an alarm; records of the fifth are not there."""
    Path("hook.py").write_text(
        "import pathlib, shutil, sys\n"
        "pathlib.Path('heard.json').write_text(sys.stdin.read())\n"
        "shutil.copytree('public', 'seen')\n"
        "shutil.copy('drift.prom', 'seen')\n"
    )
    clock(monkeypatch, over(4))
    hook = ("--command", f"{sys.executable} hook.py")
    shown = ("--site", "public", "--metrics", "drift.prom")
    assert "Period 4 is still due" in called("clients", *shown, *hook, code=3).stderr
    told = json.loads(Path("heard.json").read_text())
    assert (told["kind"], told["period"]) == ("alarm", 2)
    then = Path("seen/drift.prom").read_text()  # when the hook was told: two weeks to go
    assert 'fedprikl_series_last_period{population="clients"} 2\n' in then
    assert sorted(path.name for path in Path("seen/periods").iterdir()) == [
        f"000{n}.html" for n in range(3)
    ]
    assert 'last_period{population="clients"} 3\n' in Path("drift.prom").read_text()
    assert "1 week is over and not counted yet, from week 4 on." in called("status", code=3).stdout
    assert "Drift since week 2 (18 January 2027)" in Path("public/index.html").read_text()
    assert len(fresh.charged()) == 4


def test_a_page_that_cannot_be_written_is_noticed_before_anything_is_charged(
    fresh: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("public").write_text("a file")
    assert "Cannot make the folder public" in fails(
        monkeypatch, capsys, *monitor_line("clients", "--site", "public")
    )
    assert not fresh.charged()


def test_a_hook_that_fails_stops_nothing_and_is_tried_again_at_the_end(
    fresh: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hook.py").write_text("open('tried', 'a').write('x')\nraise SystemExit('no network')\n")
    clock(monkeypatch, over(3))
    hook = ("--command", f"{sys.executable} hook.py")
    assert "no network" in fails(monkeypatch, capsys, *monitor_line("clients", *hook))
    assert Path("tried").read_text() == "xx"  # not once for every week
    assert len(fresh.charged()) == 4


def test_metrics_that_cannot_be_written_are_noticed_before_anything_is_charged(
    fresh: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = 250 * "x" + ".prom"
    assert "Cannot write" in fails(
        monkeypatch, capsys, *monitor_line("clients", "--metrics", place)
    )
    assert not fresh.charged()


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it is told."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.heard.append((json.loads(body), dict(self.headers)))
        self.send_response(server.answer)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Receiver)
    server.heard, server.answer = [], 204
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("drifted")
def test_a_webhook_is_told_once(receiver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRIKL_WEBHOOK_SECRET", "a secret that is long enough to sign with")
    hook = ("--webhook", f"http://127.0.0.1:{receiver.server_port}/news")
    for _ in range(2):
        called("status", *hook, code=3)
        ((told, headers),) = receiver.heard
    assert (told["kind"], told["words"]) == ("alarm", "Drift since week 2 (18 January 2027).")
    assert any("signature" in name.lower() for name in headers)
    assert "a secret" not in json.dumps([told, headers])
    called("acknowledge", "1", *hook)  # its state is news
    assert receiver.heard[1][0]["alarm"]["state"] == "acknowledged"
    called("status", *hook)
    assert len(receiver.heard) == 2


@pytest.mark.usefixtures("drifted")
def test_a_webhook_that_fails_is_told_again(
    receiver: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    receiver.answer = 403  # an answer that trying again at once would not change
    hook = ("--webhook", f"http://127.0.0.1:{receiver.server_port}/?token=s3cret")
    error = fails(monkeypatch, capsys, *monitor_line("status", *hook))
    assert "s3cret" not in error
    assert "403" in error
    receiver.answer = 200
    called("status", *hook, code=3)
    called("status", *hook, code=3)
    assert receiver.heard[-1][0] == receiver.heard[0][0]
    heard = len(receiver.heard)
    called("status", *hook, code=3)
    assert len(receiver.heard) == heard


@pytest.mark.usefixtures("drifted")
def test_a_command_is_told_once_and_again_if_it_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hook.py").write_text(
        "import pathlib, sys\n"
        "text = sys.stdin.read()\n"
        "with open('heard.txt', 'a') as file: file.write(text + '\\n')\n"
        "sys.exit('no network' if pathlib.Path('broken').exists() else 0)\n"
    )
    Path("broken").touch()
    hook = ("--command", f"{sys.executable} hook.py")
    error = fails(monkeypatch, capsys, *monitor_line("status", *hook))
    assert "ended with 1: no network" in " ".join(error.split())
    Path("broken").unlink()
    for _ in range(2):
        called("status", *hook, code=3)
        one, two = Path("heard.txt").read_text().splitlines()
        assert json.loads(one)["id"] == json.loads(two)["id"]


@pytest.mark.usefixtures("fresh")
def test_where_nothing_is_due_no_relay_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    monkeypatch.setenv("FLWR_HOME", str(Path.cwd()))
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    Path("config.toml").write_text(f'[superlink.mine]\naddress = "{address}"\n')
    line = ["--federation", "mine", "--signer", SigningKey.generate().public]
    clock(monkeypatch, "2027-01-05T06:00:00+00:00")
    assert "Next: after 11 January 2027, 00:00 UTC." in called(*line).stdout
    clock(monkeypatch, over(0))
    said = " ".join(fails(monkeypatch, capsys, *monitor_line(*line)).split())
    assert f"The relay {address} cannot be reached: Connection refused" in said


@pytest.mark.parametrize("option", ["--largest-epsilon", "--largest-delta"])
def test_the_limits_hold_in_a_federation_too(
    fresh: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    pytest.importorskip("flwr")
    line = monitor_line("--federation", "mine", "--signer", SigningKey.generate().public)
    said = " ".join(fails(monkeypatch, capsys, *line, option, "1e-9").split())
    assert f"Raise {option}" in said
    assert "is nan" in fails(monkeypatch, capsys, *line, option, "nan")
    assert not fresh.history.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("clients --federation mine", "nobody reads a folder of clients."),
        ("--federation mine --counted w.db --key k.pem", "nobody reads --counted, --key."),
        ("--federation mine --separator ;", "nobody reads --separator."),
        ("--federation mine --encoding cp1252 --skip-bad-files", "--encoding, --skip-bad-files."),
        ("clients --signer 3f", "Without --federation, nobody reads --signer."),
        ("clients --roster r.txt --least-clients 3", "nobody reads --least-clients, --roster."),
    ],
)
def test_an_option_that_nobody_reads_is_refused(fresh: World, line: str, words: str) -> None:
    said = " ".join(called(*line.split(), code=2).stderr.replace("│", " ").split())
    assert words in said
    assert not fresh.history.exists()


def test_usage(
    fresh: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "Give the folder with the clients' files, or --federation." in " ".join(
        called(code=2).stderr.replace("│", " ").split()
    )
    assert "quote that is not closed" in called("clients", "--command", "'a", code=2).stderr
    called("acknowledge", "0", code=2)
    for more in (["status"], ["verify"], ["acknowledge", "1"], ["rebaseline", "1:2"]):
        assert "There is no history at history.db" in fails(
            monkeypatch, capsys, *monitor_line(*more)
        )
    assert not fresh.history.exists()
    assert "nowhere.json" in fails(monkeypatch, capsys, "monitor", "run", "nowhere.json", "clients")


def test_help_has_an_example() -> None:
    said = runner.invoke(app, ["monitor", "run", "--help"], env={"COLUMNS": "200"}).stdout
    assert "fedprikl monitor run plan.json clients/ --site public" in said


def test_the_plan_must_be_that_of_the_history(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plan(drifted.plan.changed(false_alarm=0.05), Path("plan.json"))
    for more in (["status"], ["verify"], ["acknowledge", "1"], ["clients"]):
        error = " ".join(fails(monkeypatch, capsys, *monitor_line(*more)).split())
        assert "history.db is the history of another plan." in error


def test_verify_misses_no_period_that_was_cut_off(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A forger makes all hashes anew; the ledger remembers what it was charged for."""
    assert "The ledger ledger.db has charged no others" in " ".join(called("verify").stdout.split())

    rewritten(drifted, lambda bodies: [body for body in bodies if body.get("period") != 3])
    error = " ".join(fails(monkeypatch, capsys, *monitor_line("verify")).split())
    assert "The ledger ledger.db has charged period 3" in error
    drifted.ledger.unlink()
    said = " ".join(called("verify").stdout.split())
    assert "3 releases, each signed, none missing: history.db up to period 2. Whether later" in said


@pytest.mark.parametrize("reason", ["", "its process ended"])
def test_verify_misses_no_release_whose_round_was_begun(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    """The last release is gone; its begin stays, or it is said to be missed."""

    def cut(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (begin,) = [
            n for n, body in enumerate(bodies) if (body["event"], body.get("period")) == BEGUN
        ]
        missed = {"event": "missed", "period": 3, "reason": reason, "at": over(3)}
        return [*bodies[: begin + 1], *([missed] if reason else [])]

    rewritten(drifted, cut)
    error = " ".join(fails(monkeypatch, capsys, *monitor_line("verify")).split())
    assert "The ledger ledger.db says that period 3 was released, and the history does" in error


def test_verify_names_what_was_changed(
    drifted: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(drifted.history.read_bytes())
    place = data.index(b'"noisy_counts"')
    data[place + 1] ^= 1
    drifted.history.write_bytes(bytes(data))
    error = " ".join(fails(monkeypatch, capsys, *monitor_line("verify")).split())
    assert re.search("release of period [0-3] is not the one that was kept", error)


@pytest.mark.parametrize("first", ["monitor", "estimate"])
def test_clients_that_are_folders_are_one_population_to_series_and_rounds(
    fresh: World, first: str
) -> None:
    """Whichever comes first binds the folders and the files in them."""
    for file in sorted((fresh.folder / "clients").iterdir()):
        folder = file.with_suffix("")
        folder.mkdir()
        file.rename(folder / file.name)
    once = replace(PLAN, when=Once(), population="others")
    write_plan(once, fresh.folder / "once.json")
    lines = {
        "monitor": ["monitor", "run", "plan.json", "clients"],
        "estimate": ["estimate", "once.json", "clients", "-o", "release.json"],
    }
    done = runner.invoke(app, lines.pop(first))
    assert done.exit_code == 0, done.output
    (second,) = lines.values()
    refused = runner.invoke(app, second)
    assert refused.exit_code == 1
    assert "bound to the population" in str(refused.exception)
    with Ledger.open(fresh.ledger, create=False) as book:
        assert len(book.populations()) == 1


def test_names_tell_the_period(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World.create(folder / "series", plan_of(NAMED)).grow(0).grow(1)
    monkeypatch.chdir(world.folder)
    clock(monkeypatch, over(1))
    REFERENCE.save("ref.json")
    write_plan(world.plan, Path("plan.json"))
    status = json.loads(called("clients", "--json").stdout)
    assert [point["records"] for point in status["points"][:2]] == [60, 60]


@pytest.mark.parametrize(
    ("option", "place"),
    [
        *(
            ("--metrics", name)
            for name in ("plan.json", "ref.json", "key.pem", "ledger.db", "history.db.lock")
        ),
        ("--metrics", "history.db"),
        ("--metrics", "counted.db"),
        ("--metrics", "clients/metrics.prom"),
        ("--site", "clients/public"),
        ("--site", "public"),  # whose series.json is the plan
    ],
)
@pytest.mark.parametrize("what", ["clients", "status"])
def test_no_output_overwrites_what_a_series_is_made_of(
    drifted: World, what: str, option: str, place: str
) -> None:
    Path("public").mkdir()
    Path("public/series.json").symlink_to(drifted.folder / "plan.json")
    before = {path: path.read_bytes() for path in drifted.folder.rglob("*") if path.is_file()}
    line = [what] if what == "status" else [what, "--key", "key.pem"]
    if what == "status" and ("clients" in place or "key" in place):
        pytest.skip("only a run knows where the clients and the key are")
    result = runner.invoke(app, [*monitor_line(*line), option, place])
    assert "never overwritten" in str(result.exception)
    after = {path: path.read_bytes() for path in drifted.folder.rglob("*") if path.is_file()}
    assert before == after
