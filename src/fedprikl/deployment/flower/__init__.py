"""Flower: the same roles across real processes and machines. Adapters only.

    server_app.py  a ServerApp: a hosted round, in the aggregator's domain
    client_app.py  a ClientApp: a site, where the records are
    exchange.py    the network: send, wait only so long, hand over what comes
    envelope.py    how Flower carries an envelope
    connection.py  whether a SuperLink can be reached
    tuning.py      what we change in Flower: its waits, and its relay's queues
    plain_words.py  Flower's errors, in words that say what to do
    following.py   a run as the organiser sees it, to its release; of one period, in a series
    parties.py     the processes of a site, an aggregator and a relay
    relay_database.py  removes what is old from the relay's database
    executor.py    a fork per task, with everything imported (executing.py: its program)
    runtime.py     where tasks come from
    client_task.py, server_task.py  one message of a site; one run at the aggregator
    app/           the folder that `flwr run` takes

The relay between them, Flower's SuperLink, carries sealed messages and learns nothing:
docs/decisions/0008-flower.md. How to set it all up: docs/deployment.md.
"""

from pathlib import Path

__all__ = ["APP_FOLDER"]

APP_FOLDER = Path(__file__).parent / "app"
