"""Flower: the same roles across real processes and machines. Adapters only.

    server.py       a ServerApp that hosts the server and the aggregator, in the aggregator's domain
    client.py       a ClientApp that hosts a client, at the site that holds the records
    exchange.py     one step over Flower's grid: send, wait so long, take what comes
    gathering.py    whom a run asks
    cohorts.py      who was together before, and stays together
    anchor.py       a ledger that is older than its releases is refused
    site_memory.py  what a site must never forget: steps answered, records counted, plans replaced
    settings.py     run config, node config and files
    host.py         time, noise, and where a run prints
    progress.py     what a run prints, and how `fedprikl federate` reads it
    metrics.py      Prometheus text format
    app/            the folder that `flwr run` takes

The relay between them, Flower's SuperLink, carries sealed letters and learns nothing:
docs/decisions/0008-flower.md. How to set it all up: docs/deployment.md.
"""

from pathlib import Path

__all__ = ["APP_FOLDER"]

APP_FOLDER = Path(__file__).parent / "app"
