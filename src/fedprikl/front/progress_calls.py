"""How far a long call is, for whoever asks to be told. Counts clients, and tells no times."""

from collections.abc import Callable

__all__ = ["Progress", "silent"]

Progress = Callable[[str, int, int], None]  # what is done, how many are done, of how many


def silent(_: str, __: int, ___: int) -> None:
    """Tells nobody."""
