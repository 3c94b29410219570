"""The attack of a relay that stored every message: be the aggregator, after the fact."""

from contextlib import suppress

from fedprikl.checks import Ints
from fedprikl.deployment.site import Envelope
from fedprikl.errors import FedPriKLError, SecureSumError
from fedprikl.protocol import Invitation
from fedprikl.secure_sum import SumAggregator


def sums_of_a_relay(carried: list[tuple[int, Envelope]]) -> Ints | None:
    """The cohort's sum, if the stored envelopes (with the node of each) allow to open it.

    The invitations give the public plan of the sum and each node's number; then every stored
    message is tried as every node's answer in every step.
    """
    members, plan = {}, None
    for node, envelope in carried:
        with suppress(FedPriKLError):
            invitation = Invitation.from_bytes(envelope.message)
            members[node], plan = invitation.index, invitation.sums
    if plan is None:
        return None
    sums = SumAggregator(plan)
    try:
        for end_of_step in (
            sums.send_keys,
            sums.send_shares,
            sums.send_survivors,
            sums.send_echoes,
            None,
        ):
            for node, envelope in carried:
                with suppress(SecureSumError):
                    sums.receive(members[node], envelope.message)
            if end_of_step is not None:
                end_of_step()
        return sums.unmask().total
    except SecureSumError:
        return None
