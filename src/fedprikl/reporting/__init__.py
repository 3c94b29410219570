"""Reporting: self-contained HTML pages, and the words that they share with the terminal."""

from fedprikl.reporting.facts import absences, release_headline, release_words
from fedprikl.reporting.release_page import (
    COMPARISON_HEAD,
    comparison_page,
    comparison_row,
    release_page,
    release_summary,
)

__all__ = [
    "COMPARISON_HEAD",
    "absences",
    "comparison_page",
    "comparison_row",
    "release_headline",
    "release_page",
    "release_summary",
    "release_words",
]
