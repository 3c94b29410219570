"""Dashboard: the page of a series over the web, read-only, and the same as static files.

`app`, `guard` and `serving` need the extra `serve`; `source` and `site` do not.
"""
