"""What a site has seen of its own files, as it is kept between two messages of a round."""

import json
from dataclasses import astuple, dataclass

from fedprikl.records import Seen

__all__ = ["Arrivals"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Parts of files, and how often the site's records had been counted when it looked."""

    counted: int
    seen: tuple[Seen, ...] = ()

    def to_bytes(self) -> bytes:
        """For the site's own memory."""
        return json.dumps([self.counted, [astuple(seen) for seen in self.seen]]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Arrivals":
        """What `to_bytes` made."""
        counted, seen = json.loads(data)
        return cls(counted, tuple(Seen(*each) for each in seen))
