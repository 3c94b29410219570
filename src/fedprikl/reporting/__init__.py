"""Reporting: self-contained HTML pages, and the words that they share with the terminal."""

from fedprikl.reporting.facts import (
    absences,
    release_headline,
    release_words,
    spending_words,
)
from fedprikl.reporting.figure import release_figure
from fedprikl.reporting.release_page import (
    COMPARISON_HEAD,
    comparison_page,
    comparison_row,
    release_page,
    release_summary,
)
from fedprikl.reporting.values import ColumnValues

__all__ = [
    "COMPARISON_HEAD",
    "ColumnValues",
    "absences",
    "comparison_page",
    "comparison_row",
    "release_figure",
    "release_headline",
    "release_page",
    "release_summary",
    "release_words",
    "spending_words",
]
