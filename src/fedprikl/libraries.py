"""Libraries that a site does not need, imported when they are first used.

A site that counts CSV files for a trusted aggregator needs none of them. They are narwhals (for
data frames) and the extras `plan` (what plans, charges, releases and judges) and `parquet`. They
take most of the space of an installation, and most of the time of importing fedprikl.

>>> from fedprikl.libraries import scipy
>>> float(scipy.special.ndtr(0.0))
0.5
"""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedprikl.errors import MissingExtraError

__all__ = [
    "check_plan_extra",
    "dp_accounting",
    "duckdb",
    "load_extensions",
    "loss_distributions",
    "matplotlib_pyplot",
    "narwhals",
    "opendp",
    "parquet",
    "postgresql",
    "pyarrow",
    "scipy",
]


class _Library:
    """Stands for a module, whose names it gets at their first use."""

    def __init__(self, name: str, extra: str) -> None:
        self._name, self._extra = name, extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by tools that look at every object
            raise AttributeError(name)
        found = getattr(_load(self._name, self._extra), name)
        setattr(self, name, found)
        return found


def install_words(extra: str) -> str:
    """How to install an extra, from an index or in a clone.

    >>> install_words("db")
    "pip install 'fedprikl[db]', or in a clone: pip install '.[db]'"
    """
    return f"pip install 'fedprikl[{extra}]', or in a clone: pip install '.[{extra}]'"


def _load(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"This needs {error.name}, which is not installed: {install_words(extra)}."
        ) from None


if TYPE_CHECKING:
    import duckdb
    import narwhals.stable.v2 as narwhals
    import pyarrow
    import scipy
    from adbc_driver_postgresql import dbapi as postgresql
    from pyarrow import parquet
else:
    duckdb = _Library("duckdb", "db")
    narwhals = _Library("narwhals.stable.v2", "")  # always installed; for data frames
    postgresql = _Library("adbc_driver_postgresql.dbapi", "db")
    parquet = _Library("pyarrow.parquet", "parquet")
    pyarrow, scipy = _Library("pyarrow", "parquet"), _Library("scipy", "plan")


def check_plan_extra() -> None:
    """Refuses, before anything is done, what needs the extra `plan` where it is not installed."""
    for name in ("scipy", "opendp", "dp_accounting"):
        if find_spec(name) is None:
            raise MissingExtraError(
                f"This needs {name}, which is not installed: {install_words('plan')}."
            )


@cache
def dp_accounting() -> Any:
    """The module of the same name."""
    return _load("dp_accounting", "plan")


@cache
def loss_distributions() -> Any:
    """Its makers of privacy loss distributions."""
    return _load("dp_accounting.pld", "plan").privacy_loss_distribution


@cache
def matplotlib_pyplot() -> Any:
    """The module of figures."""
    return _load("matplotlib.pyplot", "report")


@cache
def opendp() -> Any:
    """OpenDP with what makes noise. Its prelude would load all its extras: 26 MB more."""
    module = _load("opendp", "plan")
    for part in ("domains", "measurements", "metrics", "mod"):
        import_module(f"opendp.{part}")
    module.mod.enable_features("contrib")
    return module


@cache
def load_extensions(group: str) -> None:
    """Imports, once, what installed packages list as entry points of this group."""
    for point in entry_points(group=group):
        point.load()
