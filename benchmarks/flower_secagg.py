"""Flower's SecAgg+ primitives, called in process as its client mod and workflow call them.

Only the protocol's own work: no messages, no quantisation, no network. Used by
benchmarks/secure_sum.py for comparison.
"""

import os
import time

import numpy as np
import numpy.typing as npt
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    decrypt,
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

Ints = npt.NDArray[np.int64]
MODULUS = 1 << 32


class FlowerClient:
    """One client of Flower's protocol: the state of `secaggplus_mod`."""

    def __init__(self, index: int, neighbours: list[int], threshold: int) -> None:
        self.index, self.neighbours, self.threshold = index, neighbours, threshold
        mask, seal = generate_key_pairs(), generate_key_pairs()
        self.mask_private = private_key_to_bytes(mask[0])
        self.seal_private = private_key_to_bytes(seal[0])
        self.public = public_key_to_bytes(mask[1]), public_key_to_bytes(seal[1])
        self.seed = os.urandom(32)
        self.keys: dict[int, bytes] = {}
        self.seed_shares: dict[int, bytes] = {}

    def share(self, publics: list[tuple[bytes, bytes]]) -> dict[int, bytes]:
        """A ciphertext with both shares for every neighbour; one share stays at home."""
        holders = [self.index, *self.neighbours]
        seeds = create_shares(self.seed, self.threshold, len(holders))
        masks = create_shares(self.mask_private, self.threshold, len(holders))
        self.seed_shares[self.index] = seeds[0]
        boxes = {}
        for place, peer in enumerate(self.neighbours, start=1):
            self.keys[peer] = generate_shared_key(
                bytes_to_private_key(self.seal_private), bytes_to_public_key(publics[peer][1])
            )
            plain = share_keys_plaintext_concat(self.index, peer, seeds[place], masks[place])
            boxes[peer] = encrypt(self.keys[peer], plain)
        return boxes

    def mask(
        self, values: Ints, boxes: dict[int, bytes], publics: list[tuple[bytes, bytes]]
    ) -> list[Ints]:
        """The masked vector."""
        for peer, box in boxes.items():
            plain = decrypt(self.keys[peer], box)
            self.seed_shares[peer] = share_keys_plaintext_separate(plain)[2]
        shape = [values.shape]
        vector = parameters_addition([values], pseudo_rand_gen(self.seed, MODULUS, shape))
        for peer in self.neighbours:
            shared = generate_shared_key(
                bytes_to_private_key(self.mask_private), bytes_to_public_key(publics[peer][0])
            )
            pair = pseudo_rand_gen(shared, MODULUS, shape)
            change = parameters_addition if self.index > peer else parameters_subtraction
            vector = change(vector, pair)
        return parameters_mod(vector, MODULUS)


def flower_seconds(inputs: Ints, shares: int, threshold: int) -> float:
    """CPU seconds of all clients and the server for one sum without dropouts."""
    n = len(inputs)
    start = time.process_time()
    side = (shares - 1) // 2
    near = [
        [j for j in range(n) if j != i]
        if shares == n
        else [(i + step) % n for step in range(-side, side + 1) if step]
        for i in range(n)
    ]
    clients = [FlowerClient(i, near[i], threshold) for i in range(n)]
    publics = [client.public for client in clients]
    boxes = [client.share(publics) for client in clients]
    total = [np.zeros(inputs.shape[1], dtype=np.int64)]
    for i, client in enumerate(clients):
        inbox = {peer: boxes[peer][i] for peer in near[i]}
        total = parameters_addition(total, client.mask(inputs[i], inbox, publics))
    for i in range(n):
        held = [clients[j].seed_shares[i] for j in (i, *near[i])]
        seed = combine_shares(held)
        total = parameters_subtraction(total, pseudo_rand_gen(seed, MODULUS, [total[0].shape]))
    total = parameters_mod(total, MODULUS)
    spent = time.process_time() - start
    if not np.array_equal(total[0], inputs.sum(axis=0)):
        raise SystemExit("The sum with Flower's primitives is wrong; the comparison is void.")
    return spent
