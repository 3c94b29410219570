"""`make federation-demo`: a whole federation on this machine, one site killed on the way.

A SuperLink with TLS and SuperNode authentication, an aggregator in a domain of its own, eight
sites with their own files. One site is killed while it prepares its masked input; the round goes
on. Prints the verified release, the report's path, what was planted and how right the release
was, and leaves no process behind.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from deploy.loopback import Loopback
from deploy.small_world import node_configs, set_up_aggregator, write_sites
from fedprikl.divergence import skewed_divergence
from fedprikl.protocol import Release, SignedPlan, Step
from fedprikl.records import fit_reference, open_records

SITES, VICTIM = 8, 5


def main() -> int:
    """Runs the demo; the exit code of the round."""
    output = Path.cwd()
    for name in ("federation-release.json", "federation-report.html"):
        (output / name).unlink(missing_ok=True)  # of the last demo
    with tempfile.TemporaryDirectory(prefix="fedprikl-") as name:
        folder = Path(name)
        files = write_sites(folder, sites=SITES, rows=1000)
        with Loopback(folder) as federation:
            set_up_aggregator(federation.aggregator, folder / "public.csv")
            shutil.copy(federation.aggregator / "plan.json", folder / "plan.json")
            _say("starting a relay with TLS and an aggregator of its own")
            federation.start_relay()
            _say(f"starting {SITES} sites, each with its own key and its own file")
            federation.add_sites(node_configs(federation.aggregator, files))
            killer = threading.Thread(target=_kill, args=(federation,), daemon=True)
            killer.start()
            done = subprocess.run(
                federation.federate_command(
                    *("--clients", str(SITES), "--grace", "10"),
                    *("--plan", str(folder / "plan.json")),
                    *("-o", str(output / "federation-release.json")),
                    *("--report", str(output / "federation-report.html")),
                ),
                env=federation.environment(folder),
                check=False,
            )
        if not done.returncode:
            _judge(folder, files, Release.load(output / "federation-release.json"))
    left = federation.left_behind()
    _say(f"all processes have ended; left behind: {len(left)}")
    return done.returncode or len(left)


def _judge(folder: Path, files: list[Path], release: Release) -> None:
    """What was planted, and what the records that were counted say without noise."""
    reference = fit_reference(folder / "public.csv")
    counted = sum(cohort.included for cohort in release.cohorts)
    kept = [file for file in files if counted == SITES or file != files[VICTIM]]
    counts = sum(open_records(file).count(reference).counts for file in kept)
    skew = SignedPlan.load(folder / "plan.json").plan.questions[0].skew
    pi, p = (each / np.sum(each) for each in (reference.whole.mass, counts))
    true = skewed_divergence(pi, p, skew=skew)
    (low, high), found = release.interval or (release.value,) * 2, release.outcome == "drift"
    print(
        "\nHow right it was\n"
        "planted: ages around 46 at every site, around 40 in the reference; plans as they were\n"
        f"verdict: {release.outcome}, {'rightly' if found else 'the drift was missed'}\n"
        f"value: {release.value:.3f} nats, 95% from {low:.3f} to {high:.3f}. Without noise the "
        f"{counted} sites that were counted give {true:.3f}, which is "
        f"{'inside' if low <= true <= high else 'outside'}"
    )


def _kill(federation: Loopback) -> None:
    """Ends a site without a goodbye once it works on its masked input."""
    step = list(Step).index(Step.INPUT) + 1
    while max(federation.rounds(VICTIM).values(), default=0) < step:
        time.sleep(0.02)
    federation.kill(f"site{VICTIM}")
    _say(f"killed site {VICTIM} during masked input")


def _say(words: str) -> None:
    print(f"demo: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
