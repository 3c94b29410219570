"""The public names of fedprikl, from their docstrings."""

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import fedprikl as fk
from site_parts.docstrings import markdown

GROUPS = {
    "Asking": (
        "Reference",
        "fit_reference",
        "plan",
        "PlannedRound",
        "Plan",
        "SignedPlan",
        "Series",
    ),
    "Answering": (
        "compare",
        "Comparison",
        "monitor",
        "report",
        "divergence_of",
        "verify",
        "Release",
    ),
    "Privacy": ("PrivacyStatement", "Ledger", "SigningKey", "InsecureSeededNoise"),
    "Files": ("CsvFormat",),
    "Errors": (
        "FedPriKLError",
        "InvalidInputError",
        "RecordsError",
        "BudgetExceededError",
        "LedgerError",
        "ReleaseRefused",
    ),
}


def api() -> str:
    """All of `fedprikl.__all__`, group by group."""
    missing = (
        set(fk.__all__) - {"__version__"} - {name for group in GROUPS.values() for name in group}
    )
    if missing:
        raise LookupError(f"docs/site_parts/api.py does not say where {missing} belong.")
    return "\n\n".join(
        "\n\n".join([f"## {group}", *(_entry(name) for name in names)])
        for group, names in GROUPS.items()
    )


def _entry(name: str) -> str:
    thing = getattr(fk, name)
    parts = [f"### fk.{name}", _signature(name, thing), markdown(inspect.getdoc(thing) or "")]
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        parts += [f"**`{name}.{each}`**\n\n{text}" for each, text in _members(thing)]
    return "\n\n".join(parts)


def _signature(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return f"```python\nclass {name}({thing.__bases__[0].__name__})\n```"
    kind = "class " if inspect.isclass(thing) else ""
    names = [_parameter(each) for each in inspect.signature(thing).parameters.values()]
    return f"```python\n{kind}{name}({', '.join(names)})\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    """The name with its default, if that is short: types are in the source."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    shown = repr(default)
    return f"{parameter.name}={shown if len(shown) < 30 and '<' not in shown else '...'}"


def _members(thing: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties that the class itself defines and documents."""
    for name, member in vars(thing).items():
        computed = isinstance(member, property | cached_property)
        inner = ("__func__", "fget", "func")  # of class methods, properties, cached ones
        function = next((found for at in inner if (found := getattr(member, at, None))), member)
        if name.startswith("_") or not (inspect.isroutine(function) and inspect.getdoc(function)):
            continue
        shown = name
        if not computed:
            given = inspect.signature(function).parameters.values()
            names = [_parameter(each) for each in given if each.name not in ("self", "cls")]
            shown += f"({', '.join(names)})"
        yield shown, markdown(inspect.getdoc(function) or "")
