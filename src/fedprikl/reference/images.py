"""The paper's code for images: 28 x 28 pixels become 16 bits, one per 7 x 7 block."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["BlockCode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCode:
    """Cuts a square image into blocks x blocks parts; a part's bit is 1 if it holds ink.

    "Holds ink" means: mean of (white - pixel) over the part > threshold. The paper does not print
    its threshold; 0 (the part is not pure white) is the one that reproduces its closest and
    furthest pairs of digits. Bits run row by row, the first part most significant.

    >>> page = np.full((1, 28, 28), 255)
    >>> page[0, 0, 0] = 0
    >>> BlockCode().encode(page)
    array([32768])
    """

    side: int = 28
    blocks: int = 4
    white: float = 255.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_positive_int(self.side, "side")
        check_positive_int(self.blocks, "blocks")
        check_finite(self.white, "white")
        check_finite(self.threshold, "threshold")
        if self.side % self.blocks:
            raise InvalidInputError(
                f"An image of side {self.side} cannot be cut into {self.blocks} equal blocks. "
                "Choose a number of blocks that divides the side."
            )
        if self.blocks**2 > 20:
            raise InvalidInputError(
                f"{self.blocks} x {self.blocks} blocks give 2^{self.blocks**2} cells; use at most "
                "4 x 4."
            )

    @property
    def size(self) -> int:
        """Number of possible codes."""
        return 1 << self.blocks**2

    def encode(self, images: npt.ArrayLike) -> Ints:
        """Codes of images given as an array (n, side, side). Cost: one pass over the pixels."""
        pixels = np.asarray(images)
        if pixels.dtype.kind not in "iufb":
            raise InvalidInputError("Images must be an array of numbers.")
        if pixels.ndim != 3 or pixels.shape[1:] != (self.side, self.side):
            raise InvalidInputError(
                f"Images must have shape (n, {self.side}, {self.side}), got {pixels.shape}."
            )
        width = self.side // self.blocks
        parts = pixels.reshape(-1, self.blocks, width, self.blocks, width)
        ink = self.white - parts.mean(axis=(2, 4), dtype=np.float64).reshape(-1, self.blocks**2)
        if not np.all(np.isfinite(ink)):
            raise InvalidInputError("Images contain nan or infinity. Clean them first.")
        bits = (ink > self.threshold).astype(np.int64)
        place: Ints = np.left_shift(1, np.arange(self.blocks**2 - 1, -1, -1, dtype=np.int64))
        codes: Ints = bits @ place
        return codes

    def label(self, code: int) -> str:
        """The bits, row by row, like 0110/1001/1001/0110."""
        bits = f"{code:0{self.blocks**2}b}"
        return "/".join(bits[i : i + self.blocks] for i in range(0, len(bits), self.blocks))
