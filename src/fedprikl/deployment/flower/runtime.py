"""Flower's Runtime API, where tasks come from: a SuperNode's at a site, a SuperLink's otherwise.

Whoever may acquire tasks receives the messages and the state of a site, and whoever poses as the
API decides what is asked. So both sides prove who they are: the API by its certificate, the caller
by a shared secret; each task then has a token of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """An API that hands out tasks."""

    address: str  # host:port
    roots: bytes | None  # PEM of the certificates it is trusted by; None: the system's
    secret: bytes = field(repr=False)  # SECRET: shared with whoever may acquire tasks

    def tasks(self, kind: TaskType) -> "TaskSource":
        """Where tasks of a kind are acquired. It tries once: the caller decides when again."""
        signed = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods={ACQUIRE}
        )
        version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        client = RuntimeHttpClient.from_server_address(
            self.address,
            insecure=False,
            root_certificates=self.roots,
            interceptors=[version, signed],
        )
        return TaskSource(client, kind)

    def client_of(self, token: str) -> RuntimeHttpClient:
        """What a ClientApp speaks through, with the token of its task."""
        return RuntimeHttpClient.from_server_address(
            self.address,
            insecure=False,
            root_certificates=self.roots,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        )


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Acquires tasks of one kind."""

    client: RuntimeHttpClient
    kind: TaskType

    def acquire(self) -> str:
        """The token of a task that is now ours; empty if there is none."""
        found = self.client.AcquireTask(AcquireTaskRequest(supported_task_types=[self.kind]))
        return found.token if found.HasField("task") else ""


@contextmanager
def heartbeats(client: RuntimeHttpClient) -> Iterator[None]:
    """Tells the API that a task is being worked on; a task without them is given up."""
    sender = HeartbeatSender(make_task_heartbeat_fn_http(client))
    sender.start()
    try:
        yield
    finally:
        if sender.is_running:
            sender.stop()
