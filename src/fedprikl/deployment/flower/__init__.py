"""Flower: the same roles across real processes and machines. Adapters only.

    client.py     a ClientApp: a site, where the records are
    server.py     a ServerApp: a hosted round, in the aggregator's domain, and its network
    organiser.py  starts a run, follows it and checks its release
    parties.py    the processes of a site, an aggregator and a relay
    executor.py   runs each task in a fork, with everything imported
    privates.py   all that we use of Flower beyond its public API
    app/          the folder that `flwr run` takes

The relay between them, Flower's SuperLink, carries sealed messages and learns nothing:
docs/decisions/0008-flower.md. How to set it all up: docs/deployment.md.
"""

from pathlib import Path

__all__ = ["APP_FOLDER"]

APP_FOLDER = Path(__file__).parent / "app"
