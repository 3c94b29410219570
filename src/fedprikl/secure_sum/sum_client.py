"""A secure sum, seen from one client."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import (
    CohortTooSmallError,
    InvalidInputError,
    RejectedMessageError,
    UnsafeRequestError,
    WrongStepError,
)
from fedprikl.secure_sum.masking import (
    Agree,
    Channel,
    ClientKeys,
    Words,
    agree,
    apply_masks,
    commitment,
    open_stream,
    pair_mask,
    pair_sign,
    self_mask,
    verify,
)
from fedprikl.secure_sum.messages import (
    Echo,
    EchoInbox,
    KeyAdvert,
    MaskedInput,
    PeerKeys,
    SealedShares,
    ShareInbox,
    Survivors,
    UnmaskShares,
    sign,
)
from fedprikl.secure_sum.shamir import SHARE_BYTES, encode_shares, share, to_limbs
from fedprikl.secure_sum.sum_plan import SumPlan

M = TypeVar("M", PeerKeys, ShareInbox, Survivors, EchoInbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """What a client insists on, whatever the plan says."""

    minimum_clients: int = 3  # fewest inputs in a sum that contains mine
    minimum_threshold: int = 2  # fewest neighbours who could open my mask together
    colluding_neighbours: int = 0  # c, how many of mine may side with a lying aggregator
    require_roster: bool = False  # take part only where keys are signed by known identities


class ClientStep(Enum):
    """What a client has done so far."""

    NEW = "new"
    ADVERTISED = "advertised its keys"
    SHARED = "shared its secrets"
    MASKED = "sent its masked input"
    ECHOED = "echoed the survivors"
    CLOSED = "closed"


class SumClient:
    """One client's part in one secure sum; the object serves one round and is then closed.

    NEW --advertise--> ADVERTISED --share_keys--> SHARED --mask_input--> MASKED
        --echo--> ECHOED --reveal--> CLOSED

    1. advertise    sends fresh public keys, signed
    2. share_keys   checks the neighbours' keys, sends each a sealed share of both secrets
    3. mask_input   opens the neighbours' shares, sends the vector under its masks
    4. echo         learns who survived, tells every neighbour what it was told
    5. reveal       if all were told the same, sends ONE share per neighbour: of the
                    self-mask seed of the living, of the mask key of the dropped

    Secret: everything derived from `randomness`, the vector, the neighbours' shares. A
    request that could expose somebody closes the object; nothing more will be answered. A
    message that is only damaged or foreign is rejected and changes nothing.
    """

    def __init__(
        self,
        plan: SumPlan,
        index: int,
        randomness: bytes,
        *,
        identity: bytes | None = None,
        rules: ClientRules | None = None,
        agreement: Agree | None = None,
    ) -> None:
        self._plan, self._index, self._agree = plan, index, agreement or agree
        self._rules = rules or ClientRules()
        self._check_plan(identity)
        self._keys = ClientKeys.from_seed(
            randomness, round_id=plan.round_id, index=index, identity=identity
        )
        self._verify_key = self._keys.sign_key.public_key().public_bytes_raw()
        if plan.roster and self._verify_key != plan.roster[index]:
            raise InvalidInputError(f"The identity is not the one the roster has for {index}.")
        self._ring = plan.ring()
        self._neighbours = plan.graph().of(index)
        self._channels: dict[int, Channel] = {}
        self._mask_keys: dict[int, bytes] = {}
        self._shares: dict[int, bytes | None] = {}
        self._told: Survivors | None = None
        self._digest = b""
        self.damaged: tuple[int, ...] = ()  # neighbours whose sealed shares did not open
        self.step = ClientStep.NEW

    def __repr__(self) -> str:
        return f"<SumClient {self._index} of {self._plan.clients}, {self.step.value}>"

    def advertise(self) -> bytes:
        """The `KeyAdvert` of this client."""
        if self.step is not ClientStep.NEW:
            raise WrongStepError(
                f"Client {self._index} has {self.step.value}; it does every step once."
            )
        self.step = ClientStep.ADVERTISED
        keys = self._keys
        advert = KeyAdvert(
            self._plan.round_id,
            self._index,
            self._verify_key,
            keys.seal_key.public_key().public_bytes_raw(),
            keys.mask_key.public_key().public_bytes_raw(),
        )
        return sign(advert, keys.sign_key)

    def share_keys(self, data: bytes) -> bytes:
        """The `SealedShares` for the neighbours whose adverts are in `PeerKeys`."""
        message = self._open(PeerKeys, data, ClientStep.ADVERTISED)
        self._check_peers([peer for peer, _ in message.adverts], "adverts")
        for peer, record in message.adverts:
            advert = KeyAdvert.from_record(message.round_id, peer, record)
            self._channels[peer] = self._channel(advert)
            self._mask_keys[peer] = advert.mask_key
        boxes = self._seal(list(self._channels))
        self.step = ClientStep.SHARED
        fixed = commitment(self._keys.self_seed, round_id=message.round_id)
        shares = SealedShares(message.round_id, self._index, fixed, boxes)
        return sign(shares, self._keys.sign_key)

    def mask_input(self, data: bytes, values: Sequence[int] | Ints) -> bytes:
        """The `MaskedInput`: the vector plus its masks, for the neighbours in `ShareInbox`."""
        counts = self._check_values(values)
        message = self._open(ShareInbox, data, ClientStep.SHARED)
        peers = [peer for peer, _ in message.boxes]
        self._check_peers(peers, "shares")
        if not set(peers) <= set(self._channels):
            self._refuse("it was sent shares of clients whose keys it was never shown")
        self._shares = {peer: self._channels[peer].unseal(box) for peer, box in message.boxes}
        self.damaged = tuple(peer for peer, box in self._shares.items() if box is None)
        self.step = ClientStep.MASKED
        masked = apply_masks(self._ring, counts, self._masks(peers))
        packed = self._ring.pack(masked)
        return sign(MaskedInput(message.round_id, self._index, packed), self._keys.sign_key)

    def echo(self, data: bytes) -> bytes:
        """The `Echo` that tells every living neighbour which `Survivors` came here."""
        told = self._open(Survivors, data, ClientStep.MASKED)
        self._check_survivors(told)
        self._told, self._digest = told, hashlib.sha256(data).digest()
        tags = [
            (peer, self._channels[peer].tag(self._digest))
            for peer in sorted(told.alive & self._shares.keys())
        ]
        self.step = ClientStep.ECHOED
        return sign(Echo(told.round_id, self._index, tags), self._keys.sign_key)

    def reveal(self, data: bytes) -> bytes:
        """The `UnmaskShares`, once the neighbours' echoes show that all were told the same."""
        message = self._open(EchoInbox, data, ClientStep.ECHOED)
        told = self._told
        if told is None or not {peer for peer, _ in message.tags} <= told.alive:
            self._refuse("it was sent echoes of clients who are not among the survivors")
        if len(message.tags) < self._plan.threshold:
            self._too_small(len(message.tags), "of its neighbours echoed")
        for peer, tag in message.tags:
            if peer not in self._shares:
                self._refuse(f"client {peer} is not a neighbour, but an echo of it arrived")
            if not self._channels[peer].confirms(tag, self._digest):
                self._refuse(f"neighbour {peer} was told of other survivors")
        held = [(peer, box) for peer, box in sorted(self._shares.items()) if box is not None]
        seeds = [(peer, box[SHARE_BYTES:]) for peer, box in held if peer in told.alive]
        keys = [(peer, box[:SHARE_BYTES]) for peer, box in held if peer in told.dropped]
        answer = UnmaskShares(message.round_id, self._index, seeds, keys)
        signed = sign(answer, self._keys.sign_key)
        self._close()
        return signed

    # What goes into the messages

    def _channel(self, advert: KeyAdvert) -> Channel:
        """The channel to a neighbour whose advert holds up."""
        peer, roster = advert.sender, self._plan.roster
        if roster and advert.verify_key != roster[peer]:
            self._refuse(f"the keys of neighbour {peer} are not signed by its identity")
        if roster and not verify(roster[peer], advert.signature, advert.signed_part()):
            self._refuse(f"the signature on the keys of neighbour {peer} is wrong")
        shared = self._agree(self._keys.seal_key, advert.seal_key)
        if shared is None:
            self._refuse(f"the sealing key of neighbour {peer} is of low order")
        return Channel(shared, self._index, peer, self._plan.round_id)

    def _seal(self, peers: list[int]) -> list[tuple[int, bytes]]:
        """For each peer, a sealed box with its share of the mask key and of the self seed."""
        keys = self._keys
        limbs = np.concatenate((to_limbs(keys.mask_private), to_limbs(keys.self_seed)))
        points, random = np.asarray(peers) + 1, open_stream(keys.share_key)
        plain = encode_shares(share(limbs, points, self._plan.threshold, random))
        return [(i, self._channels[i].seal(both)) for i, both in zip(peers, plain, strict=True)]

    def _masks(self, peers: list[int]) -> Iterator[tuple[int, Words]]:
        """The self mask and one mask per neighbour, with their signs."""
        round_id, ring, me = self._plan.round_id, self._ring, self._index
        yield 1, self_mask(self._keys.self_seed, me, round_id=round_id, ring=ring)
        for peer in peers:
            shared = self._agree(self._keys.mask_key, self._mask_keys[peer])
            if shared is None:
                self._refuse(f"the mask key of neighbour {peer} is of low order")
            yield pair_sign(me, peer), pair_mask(shared, me, peer, round_id=round_id, ring=ring)

    # What a client insists on

    def _check_plan(self, identity: bytes | None) -> None:
        plan, rules = self._plan, self._rules
        if type(self._index) is not int or not 0 <= self._index < plan.clients:
            raise InvalidInputError(
                f"Client {self._index!r} is not one of 0 to {plan.clients - 1}."
            )
        if plan.minimum < rules.minimum_clients or plan.threshold < rules.minimum_threshold:
            raise UnsafeRequestError(
                f"The plan opens sums of {plan.minimum} inputs with {plan.threshold} shares; "
                f"this client insists on {rules.minimum_clients} and {rules.minimum_threshold}."
            )
        if 2 * plan.threshold <= plan.neighbours + rules.colluding_neighbours:
            raise UnsafeRequestError(
                f"With {rules.colluding_neighbours} of {plan.neighbours} neighbours on its side, "
                f"a lying aggregator gets {plan.threshold} shares of both secrets of a client; "
                "this client insists on a threshold t with 2 t > k + c."
            )
        if rules.require_roster and not plan.roster:
            raise UnsafeRequestError("The plan has no roster, and this client insists on one.")
        if bool(plan.roster) != (identity is not None):
            raise InvalidInputError(
                "Pass `identity` (an Ed25519 private key) exactly if the plan has a roster."
            )

    def _check_values(self, values: Sequence[int] | Ints) -> Ints:
        """The vector, if it fits the plan. The error shows no value: they are secret."""
        maxima = np.asarray(self._plan.maxima)
        try:
            given = np.asarray(values)
        except (TypeError, ValueError, OverflowError):
            given = np.empty(0)  # ragged; the plan has at least one entry, so it is refused here
        if given.dtype.kind not in "iu" or given.shape != maxima.shape:
            raise InvalidInputError(
                f"The plan sums one list of {len(maxima)} whole numbers; these values are not. "
                "Nothing was sent."
            )
        counts = given.astype(np.int64)
        if np.any(counts < 0) or np.any(counts > maxima):
            raise InvalidInputError(
                "A value is negative or above the public maximum of its entry. Nothing was sent."
            )
        return counts

    def _check_peers(self, peers: list[int], what: str) -> None:
        if not self._neighbours.issuperset(peers):
            self._refuse(f"it was sent {what} of clients who are not its neighbours")
        if len(peers) < self._plan.threshold:
            self._too_small(len(peers), f"of its neighbours sent {what}")

    def _check_survivors(self, told: Survivors) -> None:
        if told.alive & told.dropped:
            self._refuse("the lists of living and dropped clients overlap")
        if self._index not in told.alive:
            self._refuse("it sent its input, but is not among the survivors")
        if max(told.alive | told.dropped) >= self._plan.clients:
            self._refuse("the survivors contain clients who are not in the cohort")
        if (told.alive | told.dropped) & self._neighbours != self._shares.keys():
            self._refuse("the living and dropped are not the neighbours whose shares it holds")
        least = max(self._plan.minimum, self._rules.minimum_clients)
        if len(told.alive) < least:
            self._too_small(len(told.alive), f"inputs remain of at least {least}")
        near = len(told.alive & self._shares.keys())
        if near < self._plan.threshold:
            self._too_small(near, "of its neighbours survived")

    # States

    def _open(self, kind: type[M], data: bytes, step: ClientStep) -> M:
        """The message, if it is of this round, for this client and for this step."""
        if self.step is not step:
            raise WrongStepError(
                f"Client {self._index} has {self.step.value} and cannot handle a "
                f"{kind.__name__}. A round's objects are used once, in order."
            )
        message = kind.decode(data)
        if message.round_id != self._plan.round_id:
            raise RejectedMessageError(None, "it belongs to another round")
        if getattr(message, "receiver", self._index) != self._index:
            raise RejectedMessageError(None, "it is addressed to another client")
        return message

    def _refuse(self, why: str) -> NoReturn:
        self._close()
        raise UnsafeRequestError(f"Client {self._index} refuses and leaves the round: {why}.")

    def _too_small(self, count: int, what: str) -> NoReturn:
        self._close()
        raise CohortTooSmallError(
            f"Client {self._index} leaves: {count} {what}, but {self._plan.threshold} neighbours "
            f"and {self._plan.minimum} inputs are needed. Nothing was revealed; start a new round."
        )

    def _close(self) -> None:
        """Forgets the secrets and answers nothing more."""
        self.step = ClientStep.CLOSED
        self._channels, self._shares = {}, {}
        del self._keys
