"""Reporting: charts and self-contained HTML pages. Needs the extra `report`."""

from fedprikl.reporting.comparison import HEAD, comparison_page, comparison_row

__all__ = ["HEAD", "comparison_page", "comparison_row"]
