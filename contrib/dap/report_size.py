"""How long a proof is and what a report weighs, by the formulas of the VDAF and DAP drafts."""

from dataclasses import dataclass

from contrib.dap.field import ELEMENT_BYTES

__all__ = ["ProofSize", "ReportSize", "best_chunk_length"]

SEED = 32  # bytes of a seed of XofTurboShake128
PARTIES = 2  # leader and helper
METADATA = 16 + 8 + 2  # report ID, time, and the length of no public extensions
PREFIX = 4  # bytes that say how long a share or ciphertext is
# Of each encrypted share: key ID, X25519 key with its length, length of the ciphertext, tag of the
# cipher, lengths of no private extensions and of the share.
SEALING = 1 + (2 + 32) + PREFIX + 16 + (2 + PREFIX)


@dataclass(frozen=True, slots=True)
class ProofSize:
    """The lengths of a proof that `encoded` elements are zeros and ones, in field elements.

    The circuit reads them in chunks (the gadget `ParallelSum` of products, of degree 2):

        calls = ceil(encoded / chunk),    P = the least power of two >= 1 + calls
        proof = 2 chunk + 2 (P - 1) + 1

    >>> size = ProofSize(251, 17)
    >>> size.calls, size.proof
    (15, 65)
    """

    encoded: int
    chunk_length: int

    @property
    def calls(self) -> int:
        """Of the gadget, one for each chunk; as many elements of joint randomness."""
        return -(-self.encoded // self.chunk_length)

    @property
    def proof(self) -> int:
        """Elements of the proof: a seed for each input of the gadget, and its polynomial."""
        wire = 1 << self.calls.bit_length()  # the least power of two above `calls`
        return 2 * self.chunk_length + 2 * (wire - 1) + 1

    @property
    def verifier(self) -> int:
        """Elements of what each aggregator tells the other about the proof."""
        return 2 * self.chunk_length + 2


def best_chunk_length(encoded: int) -> int:
    """The chunk length with the shortest proof.

    The proof depends on the chunk length and on a power of two P above the number of calls; for
    each P, the best chunk length is the smallest one with fewer than P calls.

    >>> best_chunk_length(251)
    17
    """
    above = [1 << power for power in range(1, encoded.bit_length() + 1)]
    smallest = [-(-encoded // (wire - 1)) for wire in above]
    return min(smallest, key=lambda chunk: ProofSize(encoded, chunk).proof)


@dataclass(frozen=True, slots=True)
class ReportSize:
    """Bytes of one report, with X25519 and no extensions.

    >>> ReportSize(ProofSize(251, 17)).upload
    5368
    """

    proof: ProofSize

    @property
    def leader_share(self) -> int:
        """Shares of measurement and proof in full, and a seed for joint randomness."""
        return ELEMENT_BYTES * (self.proof.encoded + self.proof.proof) + SEED

    @property
    def helper_share(self) -> int:
        """A seed for both shares, and one for joint randomness."""
        return 2 * SEED

    @property
    def public_share(self) -> int:
        """A part of the joint randomness for each party."""
        return PARTIES * SEED

    @property
    def upload(self) -> int:
        """All that a client sends."""
        shares = self.leader_share + self.helper_share + PARTIES * SEALING
        return METADATA + PREFIX + self.public_share + shares

    @property
    def exchange(self) -> int:
        """What the aggregators tell each other for one report: verifier shares and message."""
        return PARTIES * (ELEMENT_BYTES * self.proof.verifier + SEED) + SEED
