"""One run at the aggregator: taken from the SuperLink, hosted, its end reported.

The app that runs is the installed one, with its own defaults, whatever app the relay ships with the
run; of the run only its config is used. What the app prints is what the relay stores: nothing else
of this process travels, neither its warnings nor an exception's words.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from queue import Queue

from flwr.app import Context
from flwr.common.config import get_fused_config_from_dir
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.serverapp import ServerApp
from flwr.supercore.logger import flush_logs, start_log_uploader, stop_log_uploader
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.runtime import Runtime, heartbeats
from fedprikl.deployment.flower.tuning import hasten
from fedprikl.errors import FedPriKLError

STOPPED = "The run was stopped, or its aggregator was."
log = logging.getLogger(__name__)


def host_run(runtime: Runtime, token: str, app: ServerApp) -> None:
    """Runs the app on the run of a task, and tells the SuperLink how it ended."""
    hasten(HttpGrid.__module__)
    grid = HttpGrid(runtime.address, root_certificates=runtime.roots, token=token)
    client = grid._runtime_client
    status, details = SubStatus.FAILED, STOPPED
    try:
        with heartbeats(client):
            run, context = _pull(client)
            grid.set_run(run)
            with _printing_to(client, run.run_id):
                status, details = _run(app, grid, context)
    finally:
        grid._retry_invoker.max_tries = 1
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        except Exception as error:  # of a run that was stopped there is nothing to report
            log.warning("The end of a run could not be reported: %s", type(error).__name__)
        grid.close()


def _pull(client: RuntimeHttpClient) -> tuple[Run, Context]:
    found = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = found.task_id, found.run.run_id
    TaskIdentity.node_id = found.context.node_id  # what a message says it comes from
    run, context = run_from_proto(found.run), context_from_proto(found.context)
    context.run_config = get_fused_config_from_dir(APP_FOLDER, run.override_config)
    return run, context


def _run(app: ServerApp, grid: HttpGrid, context: Context) -> tuple[str, str]:
    """Of our own errors the words, which are public; of any other its name."""
    try:
        app(grid=grid, context=context)
    except FedPriKLError as error:
        return SubStatus.FAILED, str(error)
    except Exception as error:
        return SubStatus.FAILED, f"The ServerApp failed: {type(error).__name__}."
    return SubStatus.COMPLETED, ""


class _Told(TextIOBase):
    """A standard output whose text also goes to the run's log."""

    def __init__(self, queue: "Queue[str | None]") -> None:
        self._queue, self._own = queue, sys.stdout

    def write(self, text: str) -> int:
        self._queue.put(text)
        return self._own.write(text)

    def flush(self) -> None:
        self._own.flush()


@contextmanager
def _printing_to(client: RuntimeHttpClient, run_id: int) -> Iterator[None]:
    """Sends what is printed to the run's log, all of it before the block ends."""
    queue: Queue[str | None] = Queue()
    uploader = start_log_uploader(queue, node_id=0, run_id=run_id, client=client)
    try:
        with redirect_stdout(_Told(queue)):
            yield
    finally:
        flush_logs(queue)
        stop_log_uploader(queue, uploader)
