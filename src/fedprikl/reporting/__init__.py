"""Reporting: self-contained HTML pages. The extra `report` draws their charts."""

from fedprikl.reporting.comparison import HEAD, comparison_page, comparison_row
from fedprikl.reporting.facts import ReleaseFacts
from fedprikl.reporting.release import release_page

__all__ = ["HEAD", "ReleaseFacts", "comparison_page", "comparison_row", "release_page"]
