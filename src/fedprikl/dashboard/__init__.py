"""Dashboard: the page of a series over the web, read-only, and the same as static files."""

from fedprikl.dashboard.app import SeriesSource, dashboard
from fedprikl.dashboard.serving import open_socket, serve, serving
from fedprikl.dashboard.site import write_site

__all__ = ["SeriesSource", "dashboard", "open_socket", "serve", "serving", "write_site"]
