"""News of a series to a command: JSON on standard input, never through a shell.

Hooks say that a notice was delivered, or raise. Remembering what was delivered, and trying again
later, is for the caller.
"""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import Protocol

from fedprikl.errors import HookError, InvalidInputError
from fedprikl.monitoring.notices import Notice

__all__ = ["CommandHook", "Hook"]

LETTERS = 200  # of what a command said, in an error


class Hook(Protocol):
    """Something that is told the news."""

    def deliver(self, notice: Notice) -> None:
        """Returns once the notice is delivered; else raises `HookError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHook:
    """A command that is told the news: delivered if it exits with 0.

    >>> CommandHook(argv=("true",)).argv
    ('true',)
    """

    argv: tuple[str, ...]
    timeout: float = 30.0  # seconds

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0] or any("\0" in word for word in self.argv):
            raise InvalidInputError("A command hook names a program.")
        if not 0 < self.timeout < 86_400:
            raise InvalidInputError("The timeout of a command hook is between 0 and 86400 seconds.")

    def deliver(self, notice: Notice) -> None:
        """Runs the command with the notice on its standard input."""
        try:
            running = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise HookError(
                f"The command hook {self._name} cannot be started: {error.strerror}."
            ) from None
        with running:
            try:
                _, said = running.communicate(notice.to_bytes(), timeout=self.timeout)
            except subprocess.TimeoutExpired:
                _end(running)
                raise HookError(
                    f"The command hook {self._name} was ended after {self.timeout:g} seconds."
                ) from None
        if running.returncode:
            raise HookError(
                f"The command hook {self._name} ended with {running.returncode}{_last(said)}."
            )

    @property
    def _name(self) -> str:
        """The program; its arguments may hold a secret."""
        return repr(os.path.basename(self.argv[0]))


def _end(running: "subprocess.Popen[bytes]") -> None:
    """Ends the command and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(running.pid, signal.SIGKILL)
        else:
            running.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.communicate(timeout=5)


def _last(said: bytes) -> str:
    """The last line of what it said, if there is one."""
    lines = said.decode(errors="replace").strip().splitlines()
    if not lines:
        return ""
    words = "".join(each if each.isprintable() else "\ufffd" for each in lines[-1][-LETTERS:])
    return f": {words}"
