"""Dashboard: the page of a series over the web, read-only, and the same as static files.

`app` needs the extra `serve`; `source` does not.
"""
