"""What the aggregator turns away: by name and reason, while the round goes on."""

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import (
    CohortTooSmallError,
    RejectedMessageError,
    UnmaskFailedError,
    WrongStepError,
)
from fedprikl.secure_sum import AggregatorStep, SumAggregator
from fedprikl.secure_sum.messages import (
    Echo,
    KeyAdvert,
    MaskedInput,
    SealedShares,
    SignedMessage,
    UnmaskShares,
    decode,
    sign,
)

from .helpers import Cohort, identities, make_plan

STEPS = [step for step in AggregatorStep if step is not AggregatorStep.CLOSED]
CULPRIT = 2


def resigned(cohort: Cohort, message: SignedMessage) -> bytes:
    """A message with a valid signature of its sender, who does not keep to the protocol."""
    return sign(message, cohort.clients[message.sender]._keys.sign_key)


def goes_on_without(cohort: Cohort, bad: bytes, reason: str, sender: int = CULPRIT) -> bool:
    """Whether a message is rejected by name and reason, and the others still get their sum."""
    with pytest.raises(RejectedMessageError, match=reason) as caught:
        cohort.aggregator.receive(sender, bad)
    assert caught.value.sender == sender
    assert f"client {sender}" in str(caught.value)
    noted = cohort.aggregator.rejected
    assert len(noted) == 8 or str(noted[-1]) == str(caught.value)
    step = cohort.aggregator.step
    cohort.answer_all(without=[CULPRIT])
    late = step in (AggregatorStep.ECHOES, AggregatorStep.UNMASK)
    included = set(range(cohort.plan.clients)) - (set() if late else {CULPRIT})
    if step is AggregatorStep.UNMASK:
        total = cohort.aggregator.unmask().total
    else:
        cohort.next()
        total = cohort.finish()
    return np.array_equal(total, cohort.inputs[sorted(included)].sum(axis=0))


@pytest.mark.parametrize("step", STEPS)
def test_malformed(step: AggregatorStep) -> None:
    cohort = Cohort(make_plan(6, 3)).until(step)
    good = cohort.answer(CULPRIT)
    assert goes_on_without(cohort, good[:-1], "cut short")


@pytest.mark.parametrize("step", STEPS)
def test_wrong_length(step: AggregatorStep) -> None:
    cohort = Cohort(make_plan(6, 3)).until(step)
    assert goes_on_without(cohort, cohort.answer(CULPRIT) + b"\0", "1 bytes too many")


@pytest.mark.parametrize("step", STEPS)
def test_tampered(step: AggregatorStep) -> None:
    """One flipped bit, in whichever byte, and the message is turned away."""
    cohort = Cohort(make_plan(6, 3)).until(step)
    good = cohort.answer(CULPRIT)
    for at in range(len(good)):
        bad = good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]
        with pytest.raises(RejectedMessageError, match=f"from client {CULPRIT}"):
            cohort.aggregator.receive(CULPRIT, bad)
    assert goes_on_without(cohort, good[:-1] + bytes([good[-1] ^ 1]), "signature is wrong")


@pytest.mark.parametrize("step", STEPS)
def test_foreign_round(step: AggregatorStep) -> None:
    """The same clients in another round: their messages do not count here."""
    cohort = Cohort(make_plan(6, 3)).until(step)
    other = Cohort(make_plan(6, 3, seed=7)).until(step)
    assert goes_on_without(cohort, other.answer(CULPRIT), "another round")


@pytest.mark.parametrize("step", STEPS)
def test_another_clients_message(step: AggregatorStep) -> None:
    cohort = Cohort(make_plan(6, 3)).until(step)
    someone = Cohort(make_plan(6, 3)).until(step).answer(3)
    assert goes_on_without(cohort, someone, "does not come from the client it says")


@pytest.mark.parametrize("step", STEPS)
def test_duplicate_and_replayed(step: AggregatorStep) -> None:
    """The first message counts, once; earlier steps' messages come too late."""
    cohort = Cohort(make_plan(6, 3)).until(step)
    answers = cohort.answer_all()
    with pytest.raises(RejectedMessageError, match="already in"):
        cohort.aggregator.receive(CULPRIT, answers[CULPRIT])
    for earlier in cohort.sent[:-1]:
        with pytest.raises(RejectedMessageError, match="too late"):
            cohort.aggregator.receive(CULPRIT, earlier[CULPRIT])
    if step is AggregatorStep.UNMASK:
        total = cohort.aggregator.unmask().total
    else:
        cohort.next()
        total = cohort.finish()
    assert np.array_equal(total, cohort.inputs.sum(axis=0))


@pytest.mark.parametrize("step", STEPS)
def test_late(step: AggregatorStep) -> None:
    """A message that comes after its step has ended is turned away, also at the very end."""
    cohort = Cohort(make_plan(6, 3)).until(step)
    late = cohort.answer(CULPRIT)
    cohort.answer_all(without=[CULPRIT])
    if step is AggregatorStep.UNMASK:
        cohort.aggregator.unmask()
    else:
        cohort.next()
    with pytest.raises(RejectedMessageError, match="too late"):
        cohort.aggregator.receive(CULPRIT, late)


def test_early_and_after_leaving() -> None:
    cohort = Cohort(make_plan(6, 3)).until(AggregatorStep.SHARES)
    ahead = Cohort(make_plan(6, 3)).until(AggregatorStep.ECHOES)
    with pytest.raises(RejectedMessageError, match="MaskedInput comes too early"):
        cohort.aggregator.receive(CULPRIT, ahead.sent[2][CULPRIT])
    cohort.answer_all(without=[CULPRIT])
    cohort.next()
    with pytest.raises(RejectedMessageError, match="left the round"):
        cohort.aggregator.receive(CULPRIT, ahead.sent[2][CULPRIT])


def test_nobody_of_the_cohort() -> None:
    cohort = Cohort(make_plan(6, 3))
    stranger = replace(KeyAdvert.decode(cohort.clients[0].advertise()), sender=6)
    with pytest.raises(RejectedMessageError, match=r"client 6 .* the cohort is 0 to 5"):
        cohort.aggregator.receive(6, stranger.encode())
    keys = Cohort(make_plan(6, 3)).until(AggregatorStep.SHARES).letters[0]
    with pytest.raises(RejectedMessageError, match="does not come from the client"):
        cohort.aggregator.receive(0, keys)


Spoil = Callable[[SignedMessage], SignedMessage]


def _spoil_advert(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, KeyAdvert)
    return replace(message, mask_key=bytes(32))


def _spoil_shares(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, SealedShares)
    return replace(message, boxes=message.boxes[1:])


def _spoil_input(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, MaskedInput)
    return replace(message, packed=message.packed + b"\0")


def _spoil_echo(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, Echo)
    return replace(message, tags=message.tags[:-1])


def _spoil_answer(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, UnmaskShares)
    return replace(message, mask_keys=message.self_seeds)


def _spoil_field(message: SignedMessage) -> SignedMessage:
    assert isinstance(message, UnmaskShares)
    return replace(message, self_seeds=[(i, b"\xff" * 36) for i, _ in message.self_seeds])


@pytest.mark.parametrize(
    ("step", "spoil", "reason"),
    [
        (AggregatorStep.ADVERTS, _spoil_advert, "low order"),
        (AggregatorStep.SHARES, _spoil_shares, "exactly its neighbours"),
        (AggregatorStep.INPUTS, _spoil_input, "a packed vector of 2 entries has 2 bytes, got 3"),
        (AggregatorStep.ECHOES, _spoil_echo, "exactly its neighbours"),
        (AggregatorStep.UNMASK, _spoil_answer, "nobody asked for"),
        (AggregatorStep.UNMASK, _spoil_field, "not in the field"),
    ],
)
def test_well_signed_nonsense(step: AggregatorStep, spoil: Spoil, reason: str) -> None:
    cohort = Cohort(make_plan(6, 3)).until(step)
    key = cohort.clients[CULPRIT]._keys.sign_key
    message = decode(cohort.answer(CULPRIT))
    assert isinstance(message, SignedMessage)
    assert goes_on_without(cohort, sign(spoil(message), key), reason)


def sparse_cohort() -> tuple[Cohort, int]:
    """Twelve clients with six neighbours each, waiting for shares, after one has dropped out."""
    cohort = Cohort(make_plan(12, threshold=4, neighbours=6)).until(AggregatorStep.INPUTS)
    gone = min(cohort.plan.graph().of(CULPRIT))
    cohort.answer_all(without=[gone])
    cohort.next()
    return cohort.until(AggregatorStep.UNMASK), gone


def stranger_to(cohort: Cohort, client: int) -> int:
    """Somebody alive who is not the client's neighbour."""
    near = cohort.plan.graph().of(client) | {client}
    return next(i for i in cohort.letters if i not in near)


@pytest.mark.parametrize("kind", ["self_seeds", "mask_keys"])
@pytest.mark.parametrize("of", ["a neighbour", "a stranger"])
def test_shares_that_nobody_asked_for(kind: str, of: str) -> None:
    """Only shares of a living neighbour's seed and of a dropped neighbour's key are taken.

    A share of a dropped client's seed would count as one of its key, and a stranger's share has
    no place on its secret's line: either would spoil the sum.
    """
    cohort, gone = sparse_cohort()
    near = cohort.plan.graph().of(CULPRIT)
    sender, wrong = {
        ("self_seeds", "a neighbour"): (CULPRIT, gone),
        ("self_seeds", "a stranger"): (CULPRIT, stranger_to(cohort, CULPRIT)),
        ("mask_keys", "a neighbour"): (CULPRIT, min(near - {gone})),
        ("mask_keys", "a stranger"): (stranger_to(cohort, gone), gone),
    }[kind, of]
    key = cohort.clients[sender]._keys.sign_key
    honest = UnmaskShares.decode(cohort.answer(sender))
    (_, piece), *_ = honest.self_seeds
    more: dict[str, Any] = {kind: sorted([*getattr(honest, kind), (wrong, piece)])}
    bad = sign(replace(honest, **more), key)
    with pytest.raises(RejectedMessageError, match="it reveals what nobody asked for"):
        cohort.aggregator.receive(sender, bad)
    cohort.answer_all(without=[sender])
    result = cohort.aggregator.unmask()
    there = [i for i in range(12) if i != gone]
    assert np.array_equal(result.total, cohort.inputs[there].sum(axis=0))


def test_a_roster_decides_whose_signature_counts() -> None:
    private, roster = identities(6)
    cohort = Cohort(make_plan(6, 3, roster=roster), private=private)
    advert = KeyAdvert.decode(cohort.answer(CULPRIT))
    impostor = sign(advert, cohort.clients[4]._keys.sign_key)
    with pytest.raises(RejectedMessageError, match="signature is wrong"):
        cohort.aggregator.receive(CULPRIT, impostor)
    other = resigned(cohort, replace(advert, verify_key=roster[4]))
    assert goes_on_without(cohort, other, "not the roster's")


def lie(cohort: Cohort, liars: Iterable[int]) -> None:
    """These reveal zeros for every share, the others are honest."""
    for liar in liars:
        key = cohort.clients[liar]._keys.sign_key
        honest = UnmaskShares.decode(cohort.answer(liar))
        zeros = replace(
            honest,
            self_seeds=[(i, bytes(36)) for i, _ in honest.self_seeds],
            mask_keys=[(i, bytes(36)) for i, _ in honest.mask_keys],
        )
        cohort.aggregator.receive(liar, sign(zeros, key))
    cohort.answer_all(without=liars)


def misfits(rejected: Iterable[RejectedMessageError]) -> set[tuple[int, int]]:
    """Owners and holders of the shares that do not fit."""
    words = [error.reason.split() for error in rejected]
    assert all(error.reason.endswith("does not fit") for error in rejected)
    return {(int(each[4].removesuffix("'s")), int(each[8])) for each in words}


def test_a_wrong_share_is_found_and_named() -> None:
    """One neighbour reveals wrong shares, of living and dropped: the sum holds, it is named."""
    cohort = Cohort(make_plan(8, 5)).until(AggregatorStep.INPUTS)
    cohort.answer_all(without=[7])
    cohort.next()
    cohort.until(AggregatorStep.UNMASK)
    lie(cohort, [CULPRIT])
    result = cohort.aggregator.unmask()
    assert np.array_equal(result.total, cohort.inputs[:7].sum(axis=0))
    assert misfits(result.rejected) == {(i, CULPRIT) for i in range(8) if i != CULPRIT}
    assert str(result.rejected[0]) == (
        "A message from client 2 was rejected: the share of client 0's secret at client 2 "
        "does not fit."
    )


@pytest.mark.parametrize(
    ("clients", "threshold", "liars"),
    [
        (20, 11, {5, 15}),
        (12, 6, {0, 7}),
        (8, 4, {2, 5}),
        (8, 4, {7}),  # not among the first t holders of any secret
        (9, 5, {0, 8}),
    ],
)
def test_wrong_shares_are_found_wherever_they_are(
    clients: int, threshold: int, liars: set[int]
) -> None:
    cohort = Cohort(make_plan(clients, threshold)).until(AggregatorStep.UNMASK)
    lie(cohort, liars)
    result = cohort.aggregator.unmask()
    assert np.array_equal(result.total, cohort.inputs.sum(axis=0))
    found = misfits(result.rejected)
    assert {holder for _, holder in found} == liars
    expected = [(i, liar) for liar in liars for i in range(clients) if i != liar]
    assert found <= set(expected)
    assert len(found) == min(8, clients - 1) * len(liars)


def test_a_dealer_of_garbage_is_named_with_its_victim() -> None:
    """Client 3 seals nonsense for client 0, who passes it on in good faith: the pair is named."""
    cohort = Cohort(make_plan(8, 5)).until(AggregatorStep.SHARES)
    dealer = SealedShares.decode(cohort.answer(3))
    garbage = cohort.clients[3]._channels[0].seal(bytes(72))
    boxes = [(peer, garbage if peer == 0 else box) for peer, box in dealer.boxes]
    cohort.aggregator.receive(3, resigned(cohort, replace(dealer, boxes=boxes)))
    cohort.answer_all(without=[3])
    cohort.next()
    assert np.array_equal(cohort.finish(), cohort.inputs.sum(axis=0))
    assert misfits(cohort.aggregator.rejected) == {(3, 0)}


@pytest.mark.parametrize(
    ("clients", "threshold", "liars"), [(5, 4, {2}), (8, 4, {0, 2, 4, 6}), (9, 5, {1, 3, 5, 7})]
)
def test_too_many_wrong_shares_open_nothing(clients: int, threshold: int, liars: set[int]) -> None:
    cohort = Cohort(make_plan(clients, threshold)).until(AggregatorStep.UNMASK)
    lie(cohort, liars)
    with pytest.raises(UnmaskFailedError, match="do not open the secret of client"):
        cohort.aggregator.unmask()


def test_withheld_shares_open_nothing() -> None:
    cohort = Cohort(make_plan(5, 4)).until(AggregatorStep.UNMASK)
    key = cohort.clients[CULPRIT]._keys.sign_key
    honest = UnmaskShares.decode(cohort.answer(CULPRIT))
    cohort.aggregator.receive(CULPRIT, sign(replace(honest, self_seeds=[]), key))
    cohort.answer_all(without=[CULPRIT])
    with pytest.raises(CohortTooSmallError, match="3 shares of a secret of client 0"):
        cohort.aggregator.unmask()


def test_an_impossible_sum_is_handed_out_as_it_is() -> None:
    """A signed but wrong vector makes the first entry larger than five inputs can be.

    An error would depend on the exact sum of the others: the liar could ask for it.
    """
    cohort = Cohort(make_plan(5, 3, maxima=(8, 8))).until(AggregatorStep.INPUTS)
    key = cohort.clients[CULPRIT]._keys.sign_key
    ring = cohort.plan.ring()
    message = MaskedInput.decode(cohort.answer(CULPRIT))
    room = 63 - int(cohort.inputs[:, 0].sum())
    shift = np.array([room, 0], dtype=np.uint64)
    wrong = ring.pack(ring.cut(ring.unpack(message.packed) + shift))
    cohort.aggregator.receive(CULPRIT, sign(replace(message, packed=wrong), key))
    cohort.answer_all(without=[CULPRIT])
    cohort.next()
    total = cohort.finish()
    assert total.tolist() == [63, cohort.inputs[:, 1].sum()]
    assert 63 > 5 * 8


def test_steps_end_once_and_in_order() -> None:
    cohort = Cohort(make_plan(3, 2))
    with pytest.raises(WrongStepError, match="waiting for key adverts"):
        cohort.aggregator.unmask()
    cohort.finish()
    for end in (
        cohort.aggregator.send_keys,
        cohort.aggregator.send_shares,
        cohort.aggregator.send_survivors,
        cohort.aggregator.send_echoes,
        cohort.aggregator.unmask,
    ):
        with pytest.raises(WrongStepError, match="used once"):
            end()


@pytest.mark.parametrize("step", STEPS)
def test_below_threshold_closes_the_round_and_reveals_nothing(step: AggregatorStep) -> None:
    cohort = Cohort(make_plan(6, 3)).until(step)
    cohort.answer_all(without=[0, 1, 2, 3])
    with pytest.raises(CohortTooSmallError, match="start a new round"):
        cohort.aggregator.unmask() if step is AggregatorStep.UNMASK else cohort.next()
    assert cohort.aggregator.step is AggregatorStep.CLOSED
    with pytest.raises(WrongStepError):
        cohort.aggregator.unmask()


def test_rejections_can_be_copied_and_so_pickled() -> None:
    """Cohorts may be summed in worker processes, which pickle what they return."""
    again = copy(RejectedMessageError(3, "it is late"))
    assert (again.sender, again.reason, str(again)) == (
        3,
        "it is late",
        "A message from client 3 was rejected: it is late.",
    )


def test_rejections_hold_on_to_nothing_and_are_few() -> None:
    """A flood of nonsense leaves 8 short notes per sender, without the frames it passed."""
    aggregator = SumAggregator(make_plan(5, 3))
    for sender in (0, 0, 1, *[0] * 20, 1):
        with pytest.raises(RejectedMessageError):
            aggregator.receive(sender, b"FSS\1" + bytes(1000))
    assert Counter(error.sender for error in aggregator.rejected) == {0: 8, 1: 2}
    for error in aggregator.rejected:
        assert error.__traceback__ is None
        assert error.__context__ is None


def test_empty_round() -> None:
    with pytest.raises(CohortTooSmallError, match="0 clients are left, but 4 are needed"):
        SumAggregator(make_plan(5, 3)).send_keys()
