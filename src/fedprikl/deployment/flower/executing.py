"""The program of a warm executor: `python -m fedprikl.deployment.flower.executing site ...`.

`fedprikl site` and `fedprikl aggregator` start it. Everything a task needs is imported before the
first fork, as long as it starts no thread.
"""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.supercore.constant import TaskType

from fedprikl.deployment.flower.executor import Executor
from fedprikl.deployment.flower.plain_words import explain_flower
from fedprikl.deployment.flower.runtime import Runtime
from fedprikl.errors import DeploymentError

APPS = {
    "site": "fedprikl.deployment.flower.client_app:app",
    "aggregator": "fedprikl.deployment.flower.server_app:app",
}
KINDS = {"site": TaskType.CLIENT_APP, "aggregator": TaskType.SERVER_APP}
# What tasks would import late. Not OpenDP and pyarrow, which start threads: a fork that needs them
# imports them.
LATE: dict[str, tuple[str, ...]] = {"site": (), "aggregator": ("scipy.optimize",)}
# What a site with a budget of its own needs as well, to keep count of it.
LEDGER = ("scipy.optimize", "scipy.special")


def preload(party: str, app: str = "", *, ledger: bool = False) -> Callable[[Runtime, str], None]:
    """Imports what the tasks of a party need; what runs one of them, in a fork."""
    for name in LATE[party] + (LEDGER if ledger else ()):
        importlib.import_module(name)
    module, _, attribute = (app or APPS[party]).partition(":")
    found: Any = getattr(importlib.import_module(module), attribute)
    if party == "site":
        from fedprikl.deployment.flower.client_task import answer_message

        return lambda runtime, token: answer_message(runtime, token, found)
    from fedprikl.deployment.flower.server_task import host_run

    return lambda runtime, token: host_run(runtime, token, found)


def main(arguments: list[str] | None = None) -> None:
    """Serves until it is stopped."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    own = options.party == "site"  # whose SuperNode is at the address; else it is the relay's
    explain_flower(options.address, own=own)
    run = preload(options.party, options.app, ledger=options.ledger)
    runtime = Runtime(
        address=options.address,
        roots=None if options.root_certificates is None else options.root_certificates.read_bytes(),
        secret=options.secret.read_bytes(),
    )
    if not runtime.secret:
        raise DeploymentError(f"The file {options.secret} is empty: it has to hold the secret.")
    executor = Executor(
        source=runtime.tasks(KINDS[options.party]),
        run=lambda token: run(runtime, token),
        own=own,
        poll=options.poll,
        beat=options.beat,
        parent=options.parent,
    )
    with suppress(SystemExit):
        executor.serve()
    sys.stderr.flush()
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("party", choices=sorted(APPS))
    parser.add_argument("--address", required=True)
    parser.add_argument("--root-certificates", type=Path)
    parser.add_argument("--secret", type=Path, required=True)
    parser.add_argument("--poll", type=float, required=True)
    parser.add_argument("--beat", type=Path)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--app", default="")
    parser.add_argument("--ledger", action="store_true")
    return parser


if __name__ == "__main__":
    main()
