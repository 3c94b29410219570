"""A secure sum, seen from the aggregator."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedprikl.checks import Ints
from fedprikl.errors import (
    CohortTooSmallError,
    MessageDecodeError,
    RejectedMessageError,
    UnmaskFailedError,
    WrongStepError,
)
from fedprikl.secure_sum.masking import (
    Words,
    agree,
    apply_masks,
    commitment,
    is_usable_key,
    pair_mask,
    pair_sign,
    public_of,
    self_mask,
    verify,
)
from fedprikl.secure_sum.messages import (
    SIGNATURE_BYTES,
    Echo,
    EchoInbox,
    KeyAdvert,
    MaskedInput,
    PeerKeys,
    SealedShares,
    ShareInbox,
    SignedMessage,
    Survivors,
    UnmaskShares,
    decode,
)
from fedprikl.secure_sum.shamir import LIMBS, all_in_field, fitting, from_limbs, reconstruct
from fedprikl.secure_sum.sum_plan import SumPlan

_BATCH = 256  # owners whose secrets are reconstructed in one go; bounds the memory

Holders = list[tuple[int, bytes]]
"""Who revealed a share of one secret, and the share."""

_NOTES_PER_SENDER = 8


def _batches(holders: Mapping[int, Holders]) -> Iterator[list[int]]:
    """Owners with equally many shares, to be reconstructed in one go."""
    owners = sorted(holders, key=lambda owner: len(holders[owner]))
    for _, alike in groupby(owners, key=lambda owner: len(holders[owner])):
        group = list(alike)
        yield from (group[start : start + _BATCH] for start in range(0, len(group), _BATCH))


def _arrays(held: list[Holders]) -> tuple[Ints, Ints]:
    """The points (owners, shares) and the shares (owners, shares, limbs)."""
    points = np.array([[sender + 1 for sender, _ in row] for row in held], dtype=np.int64)
    flat = b"".join(piece for row in held for _, piece in row)
    limbs = np.frombuffer(flat, dtype="<u2").astype(np.int64)
    return points, limbs.reshape(*points.shape, LIMBS)


def _reconstruct(held: list[Holders]) -> list[bytes | None]:
    """One secret for every list of shares; None where the limbs are none of a secret."""
    return [from_limbs(limbs) for limbs in reconstruct(*_arrays(held))]


def _candidates(held: Holders, threshold: int) -> Iterator[Holders]:
    """Choices of at least t shares that may all be right.

    Decoding is right whenever at most (held - t) / 2 shares are wrong. Decoding without each
    holder in turn, one of them a liar, makes that half a share more: it rounds up.
    """
    for without in range(-1, len(held)):
        tried = [each for place, each in enumerate(held) if place != without]
        points, shares = _arrays([tried])
        places = fitting(points[0], shares[0], threshold) if len(tried) >= threshold else None
        if places is not None:
            yield [tried[place] for place in places]


class AggregatorStep(Enum):
    """What the aggregator is waiting for."""

    ADVERTS = "key adverts"
    SHARES = "sealed shares"
    INPUTS = "masked inputs"
    ECHOES = "echoes"
    UNMASK = "unmask shares"
    CLOSED = "nothing; the round is over"


_EXPECTED: dict[AggregatorStep, type[SignedMessage]] = {
    AggregatorStep.ADVERTS: KeyAdvert,
    AggregatorStep.SHARES: SealedShares,
    AggregatorStep.INPUTS: MaskedInput,
    AggregatorStep.ECHOES: Echo,
    AggregatorStep.UNMASK: UnmaskShares,
}


@dataclass(frozen=True, slots=True, eq=False)
class SumResult:
    """The sum, whose inputs are in it, and which messages were turned away."""

    total: Ints = field(repr=False)
    included: tuple[int, ...]
    rejected: tuple[RejectedMessageError, ...] = field(default=(), repr=False)


class SumAggregator:
    """One secure sum, seen from the aggregator; the object serves one round.

    ADVERTS --send_keys--> SHARES --send_shares--> INPUTS --send_survivors--> ECHOES
            --send_echoes--> UNMASK --unmask--> CLOSED

    In every step, `receive` takes any number of messages; the method on the arrow ends the
    step, goes on with those who answered, and returns the next message for each of them. Who
    is too late, damaged or foreign is turned away with a `RejectedMessageError` that names
    the sender and the reason, and changes nothing. Too few clients close the round.

    The aggregator sees masked vectors, public keys, sealed boxes, and for every client
    shares of one of its two secrets. It learns the sum of `included` inputs.
    """

    def __init__(self, plan: SumPlan) -> None:
        self._plan = plan
        self._ring = plan.ring()
        graph = plan.graph()
        self._neighbours = {i: graph.of(i) for i in range(plan.clients)}
        self._present = frozenset(range(plan.clients))  # who may still send in this step
        self._dropped: frozenset[int] = frozenset()
        self._adverts: dict[int, KeyAdvert] = {}
        self._shares: dict[int, SealedShares] = {}
        self._inputs: dict[int, MaskedInput] = {}
        self._echoes: dict[int, Echo] = {}
        self._answers: dict[int, bytes] = {}  # of `UnmaskShares`, as they came: many small parts
        logs = (self._adverts, self._shares, self._inputs, self._echoes, self._answers)
        self._received: dict[Any, dict[int, Any]] = dict(zip(_EXPECTED.values(), logs, strict=True))
        self._rejected: list[RejectedMessageError] = []
        self._noted: Counter[int] = Counter()
        self.step = AggregatorStep.ADVERTS

    def __repr__(self) -> str:
        return f"<SumAggregator of {self._plan.clients} clients, waiting for {self.step.value}>"

    @property
    def rejected(self) -> tuple[RejectedMessageError, ...]:
        """The messages turned away so far, the first 8 of each sender."""
        return tuple(self._rejected)

    def receive(self, sender: int, data: bytes) -> None:
        """Takes one message of a client; `sender` is who the transport says it came from."""
        try:
            self._store(self._open(sender, data), data)
        except MessageDecodeError as error:
            self._note(sender, str(error))
            raise RejectedMessageError(sender, str(error)) from None
        except RejectedMessageError as error:
            self._note(sender, error.reason)
            raise

    def send_keys(self) -> dict[int, bytes]:
        """Ends the adverts; for every client present, the `PeerKeys` of its neighbours."""
        self._leave(AggregatorStep.ADVERTS)
        self._present = self._enough(self._adverts.keys())
        records = {i: self._adverts[i].record() for i in self._present}
        self.step = AggregatorStep.SHARES
        return self._inboxes(PeerKeys, lambda sender, _: records[sender])

    def send_shares(self) -> dict[int, bytes]:
        """Ends the sharing; for every client present, the `ShareInbox` of boxes for it."""
        self._leave(AggregatorStep.SHARES)
        self._present = self._enough(self._shares.keys())
        boxes = {i: dict(self._shares[i].boxes) for i in self._present}
        for i, sent in self._shares.items():
            self._shares[i] = replace(sent, boxes=())  # delivered; only the commitment is needed
        self.step = AggregatorStep.INPUTS
        return self._inboxes(ShareInbox, lambda sender, receiver: boxes[sender][receiver])

    def send_survivors(self) -> dict[int, bytes]:
        """Ends the inputs; the same `Survivors` for every client whose input is in."""
        self._leave(AggregatorStep.INPUTS)
        alive = frozenset(self._inputs)
        self._dropped, self._present = self._present - alive, alive
        self._check_openable(alive)
        told = Survivors(self._plan.round_id, alive, self._dropped).encode()
        self.step = AggregatorStep.ECHOES
        return dict.fromkeys(sorted(alive), told)

    def send_echoes(self) -> dict[int, bytes]:
        """Ends the echoes; for every client that echoed, the `EchoInbox` of tags for it."""
        self._leave(AggregatorStep.ECHOES)
        self._present = frozenset(self._echoes)
        self._check_openable(self._present)
        tags = {i: dict(self._echoes[i].tags) for i in self._present}
        self._echoes.clear()
        self.step = AggregatorStep.UNMASK
        return self._inboxes(EchoInbox, lambda sender, receiver: tags[sender][receiver])

    def unmask(self) -> SumResult:
        """Ends the round; the sum of the inputs that are in.

        Every secret is checked against what its owner published (the commitment to its seed,
        the public mask key), so a wrong share cannot change the sum. Each secret is first opened
        from all its shares at once: a wrong one spoils that, unless several were chosen to cancel
        out, which changes nothing. If it does not open, the wrong shares are looked for.
        """
        self._leave(AggregatorStep.UNMASK)
        holders = self._check_shares()
        total = self._unmask(self._open_secrets(holders))
        return SumResult(total, tuple(sorted(self._inputs)), self.rejected)

    def check_shares(self) -> None:
        """Raises a `CohortTooSmallError` if too few shares for `unmask` are here; opens nothing."""
        self._check_shares()

    def _check_shares(self) -> dict[int, Holders]:
        holders = self._holders()
        worst = min(holders, key=lambda owner: len(holders[owner]))
        if len(holders[worst]) < self._plan.threshold:
            raise CohortTooSmallError(
                f"{len(holders[worst])} shares of a secret of client {worst} were revealed, but "
                f"unmasking needs {self._plan.threshold}. No sum was opened; start a new round."
            )
        return holders

    def _inboxes(
        self,
        kind: type[PeerKeys | ShareInbox | EchoInbox],
        record: Callable[[int, int], bytes],
    ) -> dict[int, bytes]:
        """For every client present, the records (sender, receiver) of its neighbours."""
        return {
            i: kind(self._plan.round_id, i, [(j, record(j, i)) for j in self._near(i)]).encode()
            for i in sorted(self._present)
        }

    def _note(self, sender: int, reason: str) -> None:
        """Keeps a rejection: a fresh one, for a raised one holds on to the message, and few."""
        self._noted[sender] += 1
        if self._noted[sender] <= _NOTES_PER_SENDER:
            self._rejected.append(RejectedMessageError(sender, reason))

    # What opens the sum

    def _holders(self) -> dict[int, Holders]:
        holders: dict[int, Holders] = {
            i: [] for i in sorted(self._inputs.keys() | self._needed_dropped())
        }
        for sender, data in sorted(self._answers.items()):
            answer = UnmaskShares.decode(data)
            for owner, piece in (*answer.self_seeds, *answer.mask_keys):
                if owner in holders:
                    holders[owner].append((sender, piece))
        return holders

    def _open_secrets(self, holders: Mapping[int, Holders]) -> dict[int, bytes]:
        """The secret of every owner; notes the shares that do not fit, whoever spoilt them."""
        secrets: dict[int, bytes] = {}
        misfits: list[tuple[int, int]] = []
        for batch in _batches(holders):
            found = _reconstruct([holders[owner] for owner in batch])
            for owner, secret in zip(batch, found, strict=True):
                if secret is not None and self._is_secret_of(owner, secret):
                    secrets[owner] = secret
                else:
                    secrets[owner], wrong = self._repair(owner, holders[owner])
                    misfits += [(owner, holder) for holder in wrong]
        for owner, holder in sorted(misfits):
            what = f"the share of client {owner}'s secret at client {holder} does not fit"
            self._note(holder, what)
        return secrets

    def _is_secret_of(self, owner: int, secret: bytes) -> bool:
        if owner in self._inputs:
            fixed = self._shares[owner].commitment
            return commitment(secret, round_id=self._plan.round_id) == fixed
        return public_of(secret) == self._adverts[owner].mask_key

    def _repair(self, owner: int, held: Holders) -> tuple[bytes, set[int]]:
        """The secret from those shares that fit together, and the holders of all others."""
        t = self._plan.threshold
        for good in _candidates(held, t):
            (secret,) = _reconstruct([good])
            if secret is not None and self._is_secret_of(owner, secret):
                others = [each for each in held if each not in good]
                again = [_reconstruct([[*good[: t - 1], other]])[0] for other in others]
                pairs = zip(others, again, strict=True)
                return secret, {holder for (holder, _), found in pairs if found != secret}
        raise UnmaskFailedError(
            f"The revealed shares do not open the secret of client {owner}: it shared a wrong "
            "secret, or some neighbours revealed wrong shares. No sum was opened; start a new "
            "round."
        )

    def _unmask(self, secrets: Mapping[int, bytes]) -> Ints:
        """The sum in the ring, whatever it is: an error here would depend on the exact sum.

        A client that sent a vector outside the public maxima may have made it impossible, which is
        for the caller to see to.
        """
        ring = self._ring
        total = np.zeros(ring.length, dtype=np.uint64)
        for message in self._inputs.values():
            total += ring.unpack(message.packed)
        return apply_masks(ring, total, self._masks_to_remove(secrets)).astype(np.int64)

    def _masks_to_remove(self, secrets: Mapping[int, bytes]) -> Iterator[tuple[int, Words]]:
        """Self masks of the living, and the masks that the living share with the dropped."""
        round_id, ring = self._plan.round_id, self._ring
        for owner, secret in secrets.items():
            if owner in self._inputs:
                yield -1, self_mask(secret, owner, round_id=round_id, ring=ring)
                continue
            private = X25519PrivateKey.from_private_bytes(secret)
            for peer in self._neighbours[owner] & self._inputs.keys():
                shared = agree(private, self._adverts[peer].mask_key)
                if shared is None:  # cannot happen: low-order keys are turned away on arrival
                    raise UnmaskFailedError(f"The mask key of client {peer} is of low order.")
                mask = pair_mask(shared, owner, peer, round_id=round_id, ring=ring)
                yield -pair_sign(peer, owner), mask

    # What a message must hold up to

    def _open(self, sender: int, data: bytes) -> SignedMessage:
        """The message, if it comes from this client, in this round, in this step."""
        message = decode(data)
        if message.round_id != self._plan.round_id:
            raise RejectedMessageError(sender, "it belongs to another round")
        if not isinstance(message, SignedMessage) or message.sender != sender:
            raise RejectedMessageError(sender, "it does not come from the client it says")
        self._check_turn(message)
        if isinstance(message, KeyAdvert):
            key = self._plan.roster[sender] if self._plan.roster else message.verify_key
        else:
            key = self._adverts[sender].verify_key
        if not verify(key, message.signature, data[:-SIGNATURE_BYTES]):
            raise RejectedMessageError(sender, "its signature is wrong")
        return message

    def _check_turn(self, message: SignedMessage) -> None:
        sender, expected = message.sender, _EXPECTED.get(self.step)
        if sender >= self._plan.clients:
            raise RejectedMessageError(sender, f"the cohort is 0 to {self._plan.clients - 1}")
        if not isinstance(message, expected or ()):
            late = expected is None or message.KIND < expected.KIND
            raise RejectedMessageError(
                sender,
                f"a {type(message).__name__} comes too {'late' if late else 'early'}, the round "
                f"is waiting for {self.step.value}",
            )
        if sender not in self._present:
            raise RejectedMessageError(sender, "it left the round at an earlier step")
        if sender in self._received[type(message)]:
            raise RejectedMessageError(sender, f"its {type(message).__name__} is already in")

    def _store(self, message: SignedMessage, data: bytes) -> None:
        match message:
            case KeyAdvert():
                self._check_advert(message)
            case SealedShares(boxes=records) | Echo(tags=records):
                if [receiver for receiver, _ in records] != self._near(message.sender):
                    reason = "it is not for exactly its neighbours"
                    raise RejectedMessageError(message.sender, reason)
            case MaskedInput():
                self._ring.unpack(message.packed)
            case UnmaskShares():
                self._check_answer(message)
        kept = data if isinstance(message, UnmaskShares) else message
        self._received[type(message)][message.sender] = kept

    def _check_advert(self, advert: KeyAdvert) -> None:
        roster = self._plan.roster
        if roster and advert.verify_key != roster[advert.sender]:
            raise RejectedMessageError(advert.sender, "its identity is not the roster's")
        if not (is_usable_key(advert.seal_key) and is_usable_key(advert.mask_key)):
            raise RejectedMessageError(advert.sender, "a key is of low order")

    def _check_answer(self, answer: UnmaskShares) -> None:
        near = self._neighbours[answer.sender]
        for records, allowed in (
            (answer.self_seeds, self._inputs.keys() & near),
            (answer.mask_keys, self._dropped & near),
        ):
            if not allowed >= {owner for owner, _ in records}:
                raise RejectedMessageError(answer.sender, "it reveals what nobody asked for")
            if not all_in_field([piece for _, piece in records]):
                raise RejectedMessageError(answer.sender, "a share is not in the field")

    # Who is still there

    def _near(self, client: int) -> list[int]:
        """The neighbours of a client who are present, in order."""
        return sorted(self._neighbours[client] & self._present)

    def _enough(self, answered: AbstractSet[int]) -> frozenset[int]:
        """Who answered, if that is enough for every one of them to go on.

        A client with too few neighbours ends the round rather than being left out alone: that
        could leave its neighbours with too few, and theirs, and `choose_degree` makes the
        case too rare to be worth it.
        """
        if len(answered) < self._plan.minimum:
            self._too_small(len(answered), self._plan.minimum, "clients are left")
        for client in answered:
            self._check_holders(client, answered)
        return frozenset(answered)

    def _needed_dropped(self) -> frozenset[int]:
        """Dropped clients whose masks are on a living one's vector."""
        return frozenset(i for i in self._dropped if self._neighbours[i] & self._inputs.keys())

    def _check_openable(self, answering: AbstractSet[int]) -> None:
        """Every secret that the sum needs must have enough holders, or nothing is asked."""
        if len(self._inputs) < self._plan.minimum:
            self._too_small(len(self._inputs), self._plan.minimum, "inputs are in")
        for owner in self._inputs.keys() | self._needed_dropped():
            self._check_holders(owner, answering)

    def _check_holders(self, owner: int, present: AbstractSet[int]) -> None:
        holders = len(self._neighbours[owner] & present)
        if holders < self._plan.threshold:
            what = f"neighbours of client {owner} remain"
            self._too_small(holders, self._plan.threshold, what)

    def _leave(self, step: AggregatorStep) -> None:
        """Ends a step; if the next one is not reached, the round is closed."""
        if self.step is not step:
            raise WrongStepError(
                f"The aggregator is waiting for {self.step.value}, not ending {step.value}. "
                "A round's objects are used once, in order."
            )
        self.step = AggregatorStep.CLOSED

    def _too_small(self, count: int, need: int, what: str) -> NoReturn:
        raise CohortTooSmallError(
            f"{count} {what}, but {need} are needed. No input was revealed and no sum was "
            "opened; start a new round."
        )
