"""Reporting: self-contained HTML pages. Only the comparison needs the extra `report`."""

from fedprikl.reporting.comparison_page import HEAD, comparison_page, comparison_row, why_no_charts
from fedprikl.reporting.facts import ReleaseFacts, absences
from fedprikl.reporting.release_page import release_page

__all__ = [
    "HEAD",
    "ReleaseFacts",
    "absences",
    "comparison_page",
    "comparison_row",
    "release_page",
    "why_no_charts",
]
