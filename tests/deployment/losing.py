"""A ClientApp some of whose nodes die on the way, for tests only."""

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedprikl.deployment.flower.client import handle
from fedprikl.protocol import Step

DIES = {4: Step.SHARE, 17: Step.INPUT, 23: Step.INPUT, 41: Step.REVEAL}

app = ClientApp()


def _handler(step: Step) -> None:
    @app.query(step.value)
    def _(message: Message, context: Context) -> Message:
        if DIES.get(int(context.node_config["partition-id"])) is step:
            raise RuntimeError("this node is lost")
        return handle(step, message, context)


for _step in Step:
    _handler(_step)
