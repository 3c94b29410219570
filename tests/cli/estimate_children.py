"""What child processes do in the crash tests of `fedprikl estimate`: run until they are killed."""

import contextlib
import io
import os
import signal
from pathlib import Path

from fedprikl.cli.app import app
from fedprikl.documents import readable
from fedprikl.protocol import SignedPlan
from tests.monitoring.monitor_children import each_step
from tests.monitoring.small_series import REFERENCE, plan_of, quick_folder

__all__ = ["crash", "estimate", "set_up", "steps_of"]

CLIENTS = 3


def set_up(folder: Path) -> Path:
    """Three clients, a reference, and a plan for two releases whose budget fits one."""
    (folder / "clients").mkdir(parents=True)
    for i in range(CLIENTS):
        cells = 12 * [0] + 6 * [1] + (2 + i) * [2]
        text = "\n".join(["cell", *map(str, cells), ""])
        (folder / "clients" / f"{i}.csv").write_text(text, encoding="utf-8")
    REFERENCE.save(folder / "ref.json")
    plan = SignedPlan(plan_of(None)).to_dict()
    (folder / "plan.json").write_text(readable(plan), encoding="utf-8")
    return folder


def estimate(folder: Path) -> str:
    """The real command, with all its defaults; what it says on both streams."""
    told = io.StringIO()
    here = {
        "--ledger": "ledger.db",
        "--key": "aggregator.pem",
        "-o": "release.json",
        "--report": "report.html",
    }
    places = [word for name, file in here.items() for word in (name, str(folder / file))]
    line = ["estimate", str(folder / "plan.json"), str(folder / "clients"), *places]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        app([*line, "--json", "--largest-epsilon", "2"], standalone_mode=False)
    return told.getvalue()


def steps_of(folder: Path) -> list[str]:
    """The moments of one run, in order."""
    moments: list[str] = []
    with each_step(moments.append):
        estimate(folder)
    return moments


def crash(folder: Path, moment: str) -> None:
    """One run that ends at this moment. SIGKILL: it can clean up nothing."""

    def stop(here: str) -> None:
        if here == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    with each_step(stop):
        estimate(folder)


with quick_folder() as warm:  # processes that are forked afterwards lose no time
    estimate(set_up(warm / "warm"))
