"""Plans for tests, from settings that go by their own names, whatever their part of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedprikl.divergence import divergence_named
from fedprikl.protocol import AskedView, Budget, Plan, Question, WholeClient

QUESTION = {field.name for field in fields(Question)}


@dataclass(frozen=True, kw_only=True)
class AskColumns:
    """Questions about columns: a share for the values of tv and js, and one for noisy counts."""

    views: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    counts: float
    tv: float = 0.0
    js: float = 0.0

    @property
    def asked(self) -> tuple[AskedView, ...]:
        pairs = zip(self.views, self.sizes, strict=True)
        return tuple(AskedView(columns=columns, points=size) for columns, size in pairs)

    @property
    def questions(self) -> tuple[Question, ...]:
        values = tuple(
            Question(divergence=n, views=self.views, share=share, skew=divergence_named(n).skew)
            for n, share in (("tv", self.tv), ("js", self.js))
            if share > 0
        )
        counts = tuple(
            Question(
                divergence=name,
                views=self.views,
                share=self.counts / 2,
                skew=divergence_named(name).skew,
                release="counts",
            )
            for name in ("tv", "kl")
        )
        return values + counts


def make_plan(
    *,
    points: int = 6,
    exponent: float = 1.0,
    questions: Sequence[Question] | None = None,
    columns: AskColumns | None = None,
    **settings: Any,
) -> Plan:
    """A plan about the whole, unless `questions` are empty, and about columns if they are given."""
    noise = settings.pop("noise", "auto")
    if questions is None:
        asked = {name: settings.pop(name) for name in QUESTION & settings.keys()}
        if settings.get("trust") == "none":
            asked.setdefault("release", "counts")
        questions = (Question(**asked),)
    if settings.get("unit") == "client":
        drawn = settings.pop("per_client"), settings.pop("empty", "reference")
        settings["unit"] = WholeClient(*drawn)
    else:
        settings = {n: v for n, v in settings.items() if n not in ("unit", "per_client", "empty")}
    if (series := settings.pop("series", None)) is not None:
        settings["when"] = series
    whole = (AskedView(points=points, exponent=exponent),) if questions else ()
    of_columns = () if columns is None else columns.questions
    releases = settings.pop("releases", 1)
    plan = Plan(
        population=settings.pop("population", "testers"),
        reference=settings.pop("reference", 64 * "0"),
        trust=settings.pop("trust", "aggregator"),
        budget=Budget(epsilon=settings.pop("epsilon", 1.0), releases=releases),
        views=whole + (() if columns is None else columns.asked),
        questions=(*questions, *of_columns),
    )
    return (plan if noise == "auto" else plan.with_noise(noise)).changed(**settings)
