"""The counts of views in a client's vector and in a sum: one view after the other."""

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.column_questions import ColumnQuestions
from fedprikl.protocol.plan import Plan
from fedprikl.reference import QueryPoints, Reference, View

__all__ = ["asked_views", "split_views", "view_places", "view_points", "view_score"]


def asked_views(plan: Plan, reference: Reference) -> tuple[View, ...]:
    """The reference's views that a plan asks about, in the plan's order."""
    return tuple(reference.views[i] for i in view_places(plan.columns, reference))


def view_places(asked: ColumnQuestions | None, reference: Reference) -> list[int]:
    """Where the asked views stand among those of the reference."""
    if asked is None:
        return []
    places = {view.columns: place for place, view in enumerate(reference.views)}
    if not places.keys() >= set(asked.views):
        raise InvalidInputError("The plan asks about columns that the reference does not have.")
    found = [places[view] for view in asked.views]
    if [reference.views[place].size for place in found] != list(asked.sizes):
        raise InvalidInputError("The plan asks for another number of counts than a column has.")
    return found


def view_points(view: View) -> QueryPoints:
    """All cells of a view, asked of everybody."""
    pi, cells = view.probabilities, np.arange(view.size)
    return QueryPoints.build(pi, cells=cells, batch=np.zeros_like(cells), weights=pi[cells])


def view_score(divergence: str) -> Score:
    """Of a view's counts: everybody's, so they need no correction; no step is limited."""
    found = divergence_named(divergence)
    return Score(Skew(found.skew), found, correction=0.0)


def split_views(plan: Plan, counts: Ints, *, more: int = 0) -> list[Ints]:
    """The counts of each view, with `more` entries after the cells of each."""
    sizes = () if plan.columns is None else plan.columns.sizes
    ends = np.cumsum([size + more for size in sizes], dtype=np.int64)
    return np.split(counts, ends[:-1]) if len(sizes) else []
