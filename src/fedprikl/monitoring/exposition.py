"""Samples as text, as Prometheus reads them: written for every party by the same few lines.

What is printed here is public, and names from outside cannot leave their label.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Labels", "read_samples", "sample_name", "samples_text", "told_apart"]

Labels = Mapping[str, str]
_SAMPLE = re.compile(r"^(\w+(?:\{.*\})?) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$", re.ASCII)


def sample_name(metric: str, labels: Labels) -> str:
    """A metric with its labels.

    >>> sample_name("records", {"population": "sites"})
    'records{population="sites"}'
    """
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{metric}{{{shown}}}" if shown else metric


def samples_text(samples: Mapping[str, float], described: Mapping[str, tuple[str, str]]) -> str:
    """The samples in the order of `described`, which has the kind and the words of each metric.

    >>> print(samples_text({"rounds_total": 3}, {"rounds_total": ("counter", "Rounds.")}), end="")
    # HELP rounds_total Rounds.
    # TYPE rounds_total counter
    rounds_total 3
    """
    own: dict[str, list[str]] = {name: [] for name in described}
    for name, value in samples.items():
        own[name.partition("{")[0]].append(f"{name} {_number(value)}\n")
    return "".join(
        f"# HELP {name} {words}\n# TYPE {name} {kind}\n{''.join(own[name])}"
        for name, (kind, words) in described.items()
        if own[name]
    )


def read_samples(text: str) -> Iterator[tuple[str, float]]:
    """The samples of a text, each with its name and labels as they stand there."""
    for match in map(_SAMPLE.match, text.splitlines()):
        if match:
            yield match[1], float(match[2])


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return "".join(each if each.isprintable() else "\ufffd" for each in plain)


def told_apart(names: Iterable[str]) -> Iterator[str]:
    """Labels of columns: no two alike, and none like the whole's.

    A table may have a column without a name, or one that is called like a pair of others; its
    numbers would stand in place of theirs, and a drift would not be seen.

    >>> list(told_apart(["", "age", "age"]))
    ['(column 1)', 'age', 'age (column 3)']
    """
    told = {sample_name("", {"": ""})}
    for place, name in enumerate(names, start=1):
        label = name
        while (shown := sample_name("", {"": label})) in told:
            label = f"{label} (column {place})".strip()
        told.add(shown)
        yield label
