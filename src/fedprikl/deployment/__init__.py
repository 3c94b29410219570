"""Deployment: the roles on real machines, whatever network is between them.

hosted_round.py   a round at the aggregator's host (host_checks.py, host_files.py)
period_runs.py    a period of a series there: one run at a time, one release for ever
gathering.py      whom it asks
company.py        who was together before, and stays together
ledger_anchor.py  a ledger that is older than its releases is refused
site.py           a site that answers a round (site_checks.py)
site_memory.py    what a site must never forget: steps answered, records counted, plans replaced
                  (site_tables.py)
pruning.py        what an aggregator and a site may forget after a while
answers.py        what an organiser checks of a release that came over a relay
network.py        what both need of a network
settings.py       run config, node config and files
host.py           time, noise, and where a round prints
progress.py       what a round prints, and how `fedprikl federate` reads it
metrics.py        Prometheus text format
roster_names.py   names of lost sites, at the organiser
supervisor.py     keeps the processes of a party running (parent_watch.py), with health.py
certificates.py   TLS of a relay and within a site, node keys
flower/           the network over Flower: adapters only
"""
