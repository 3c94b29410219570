"""Reference: the finite domain, how records become cells, Pi, and the query points."""

from fedprikl.reference.client_counts import ClientCounts
from fedprikl.reference.columns import Bins, Categories, Times
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import BlockCode, Domain, Indices, Table, ViewKind
from fedprikl.reference.points import (
    QueryPoints,
    all_points,
    distinct_points,
    iid_points,
    inclusion_probabilities,
    spread_points,
    spread_shares,
)
from fedprikl.reference.reference import Reference
from fedprikl.reference.views import OutOfDomain, Spread, View, one_each

__all__ = [
    "Bins",
    "BlockCode",
    "Categories",
    "ClientCounts",
    "Correlation",
    "Domain",
    "Indices",
    "OutOfDomain",
    "QueryPoints",
    "Reference",
    "Spread",
    "Table",
    "Times",
    "View",
    "ViewKind",
    "all_points",
    "distinct_points",
    "iid_points",
    "inclusion_probabilities",
    "one_each",
    "spread_points",
    "spread_shares",
]
