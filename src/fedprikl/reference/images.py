"""The paper's code for images: 28 x 28 pixels become 16 bits, one per 7 x 7 block."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import UNSEEN
from fedprikl.reference.domain import OneField, separate
from fedprikl.reference.values import number, simple


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCode(OneField):
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

    def encode(self, images: Any) -> Ints:
        """Codes of images given as an array (n, side, side). Cost: one pass over the pixels.

        An image that cannot be read is `UNSEEN`, and no other image notices: one with a nan, an
        infinity or a text among its pixels, or one of another shape in a list of images.
        """
        pixels = self._pixels(separate(images, "images: an array of numbers, or a list of them"))
        width = self.side // self.blocks
        parts = pixels.reshape(-1, self.blocks, width, self.blocks, width)
        with np.errstate(over="ignore", invalid="ignore"):
            means = parts.mean(axis=(2, 4), dtype=np.float64).reshape(-1, self.blocks**2)
        ink = self.white - means
        bits = (ink > self.threshold).astype(np.int64)
        place: Ints = np.left_shift(1, np.arange(self.blocks**2 - 1, -1, -1, dtype=np.int64))
        return np.where(np.isfinite(ink).all(axis=1), bits @ place, UNSEEN).astype(np.int64)

    def _pixels(self, images: npt.NDArray[Any] | list[Any]) -> npt.NDArray[Any]:
        shape = (self.side, self.side)
        if isinstance(images, np.ndarray):
            if images.ndim != 3 or images.shape[1:] != shape:
                raise InvalidInputError(
                    f"Images must have shape (n, {self.side}, {self.side}), got {images.shape}."
                )
            return images
        pixels = np.full((len(images), *shape), np.nan)
        for image, into in zip(images, pixels, strict=True):
            into[:] = self._image(image)
        return pixels

    def _image(self, image: Any) -> npt.NDArray[Any] | float:
        """The pixels of one image; nan if it is none of this shape."""
        if isinstance(image, np.ndarray) and image.dtype.kind in "iufb":
            return image if image.shape == (self.side, self.side) else np.nan
        try:
            rows = [[number(simple(pixel)) for pixel in row] for row in image]
        except Exception:  # whatever it is, the other images do not notice
            return np.nan
        fits = len(rows) == self.side and all(len(row) == self.side for row in rows)
        return np.array(rows, dtype=np.float64) if fits else np.nan  # None becomes nan

    def label(self, code: int) -> str:
        """The bits, row by row, like 0110/1001/1001/0110."""
        bits = f"{code:0{self.blocks**2}b}"
        return "/".join(bits[i : i + self.blocks] for i in range(0, len(bits), self.blocks))
