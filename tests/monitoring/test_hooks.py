"""Notifications, and the command that gets them."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.notifications import CommandHook, notifications
from tests.monitoring.statuses import SCENES, series

ALARM = notifications(SCENES["drift"])[-1]


def test_what_is_worth_a_notification() -> None:
    assert notifications(series(37)) == ()
    kinds = [(each.kind, each.period) for each in notifications(SCENES["drift"])]
    assert kinds == [("missed", 5), ("missed", 9), ("missed", 10), ("alarm", 24)]
    assert [each.kind for each in notifications(SCENES["broken"])][-2:] == ["fault", "fault"]


def test_the_same_notification_has_the_same_identity_later() -> None:
    now = SCENES["drift"]
    later = replace(now, at="2028-01-01T00:00:00+00:00", budget=None)
    assert [n.identity for n in notifications(now)] == [n.identity for n in notifications(later)]
    assert len({n.identity for n in notifications(SCENES["broken"])}) == len(
        notifications(SCENES["broken"])
    )


def test_another_notification_has_another_identity() -> None:
    now = SCENES["drift"]
    known = replace(now, alarms=(replace(now.alarms[0], state="acknowledged"),))
    elsewhere = replace(now, plan=64 * "9")
    identities = {notifications(each)[-1].identity for each in (now, known, elsewhere)}
    assert len(identities) == 3


def command(tmp_path: Path, code: str, **more: float) -> CommandHook:
    script = tmp_path / "hook.py"
    script.write_text(code, encoding="utf-8")
    return CommandHook(argv=(sys.executable, str(script), str(tmp_path / "got")), **more)


def test_the_command_reads_the_notification(tmp_path: Path) -> None:
    command(tmp_path, "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())").deliver(
        ALARM
    )
    assert (tmp_path / "got").read_bytes() == ALARM.to_bytes()


def test_no_shell_is_between(tmp_path: Path) -> None:
    target = tmp_path / "made"
    CommandHook(argv=("true", f"; touch {target}", f"$(touch {target})")).deliver(ALARM)
    assert not target.exists()


def test_a_command_may_ignore_what_it_is_command(tmp_path: Path) -> None:
    command(tmp_path, "").deliver(ALARM)


def test_a_failure_says_what_the_command_said_last(tmp_path: Path) -> None:
    code = "import sys; print('first', file=sys.stderr); sys.exit('no\\x1b[2J mail today')"
    with pytest.raises(HookError, match=r"ended with 1: no.\[2J mail today\.") as caught:
        command(tmp_path, code).deliver(ALARM)
    assert str(tmp_path) not in str(caught.value)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(HookError, match="'no-such-program' cannot be started"):
        CommandHook(argv=("/nowhere/no-such-program", "token")).deliver(ALARM)


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """The shell begins in milliseconds, so that its child is there also on a busy machine."""
    code = 'sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; sleep 600'
    began = time.monotonic()
    with pytest.raises(HookError, match=r"ended after 1\.5 seconds"):
        CommandHook(argv=("sh", "-c", code, str(tmp_path / "got")), timeout=1.5).deliver(ALARM)
    assert time.monotonic() - began < 300
    child = int((tmp_path / "got").read_text(encoding="utf-8"))
    while _runs(child):
        assert time.monotonic() - began < 300
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state.split()[0] != "Z"


@pytest.mark.parametrize("argv", [(), ("",), ("true", "a\0b")])
def test_a_command_is_needed(argv: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError):
        CommandHook(argv=argv)
