"""Deployment: the roles on real machines, whatever network is between them.

hosted_round.py   a round at the aggregator's host; a period of a series: one run at a time
gathering.py      whom it asks
host.py           what it needs of its machine and its network: time, noise, where it prints
site.py           a site that answers a round
site_memory.py    what a site must never forget: steps answered, records counted, plans replaced
settings.py       run config, node config and files
progress.py       what a round prints, and how `fedprikl federate` reads it
metrics.py        Prometheus text format
supervisor.py     keeps the processes of a party running
tls.py            certificates and keys; whether a relay can be reached and trusted
flower/           the network over Flower: adapters only
"""
