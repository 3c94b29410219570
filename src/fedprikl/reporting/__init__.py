"""Reporting: charts and self-contained HTML pages. Needs the extra `report`."""

from fedprikl.reporting.comparison import HEAD, comparison_page, comparison_row
from fedprikl.reporting.release import release_page, release_sentence

__all__ = ["HEAD", "comparison_page", "comparison_row", "release_page", "release_sentence"]
