"""One message of a site: taken from its SuperNode, answered, given back.

The app that answers is the installed one, whatever app the relay ships with a run. An exception's
words stay here: the SuperNode would send them on.
"""

import logging

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedprikl.deployment.flower.runtime import Runtime, heartbeats

FAILED = "the site failed; its own log says why"
log = logging.getLogger(__name__)


def answer_message(runtime: Runtime, token: str, app: ClientApp) -> None:
    """Runs the app on the message of a task. The site's state travels with the task's output."""
    client = runtime.client_of(token)
    context: Context | None = None
    status, details = SubStatus.FAILED, FAILED
    try:
        with heartbeats(client):
            message, context, _, _ = pull_task_input(client)
            push_message(client, _reply(app, message, context), context)
            status, details = SubStatus.COMPLETED, ""
    finally:
        push_task_output(client, context, status, details)
        client.close()


def _reply(app: ClientApp, message: Message, context: Context) -> Message:
    try:
        return app(message=message, context=context)
    except Exception as error:
        log.error("fedprikl could not answer a message: %s", type(error).__name__)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, FAILED), reply_to=message)
