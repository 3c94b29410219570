"""The journal: a client answers each step of a round at most once.

What a client remembers of a round lives in its SuperNode's memory (`ctx.state`), which Flower
updates after the answer has left. A process that dies in between, or two that overlap, would find
an old memory, and two different answers to one step could expose somebody. So before a client
works on an answer it creates a file, named after the round and the step, that must not exist yet:
an atomic claim. The files are empty; no secret is ever on the disk. They are never removed, five
per round: a claim that is gone could be made again, and whoever carries the messages can invite to
another round while the first is going on.
"""

import os
from pathlib import Path

from fedprikl.errors import DeploymentError
from fedprikl.federation import Step

__all__ = ["Journal"]


class Journal:
    """The claims of one client, in a folder of its host."""

    def __init__(self, folder: Path, client: int) -> None:
        self._folder, self._client = folder, client

    def claim(self, round_id: str, step: Step) -> bool:
        """True exactly once, for ever, for a round and a step; across restarts and crashes."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(
                self._path(round_id, step), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
            )
        except FileExistsError:
            return False
        except OSError as error:
            raise DeploymentError(
                f"Cannot write the journal {self._folder}: {error.strerror}. Without it no step is "
                "answered; set FEDPRIKL_HOME to a folder of this user."
            ) from None
        os.close(handle)
        return True

    def _path(self, round_id: str, step: Step) -> Path:
        if not round_id.isalnum():  # it comes from outside and becomes a file's name
            raise DeploymentError("The round's name is not made of letters and digits.")
        return self._folder / f"{self._client}-{round_id}-{step}"
