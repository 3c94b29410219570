"""Deployment: the roles on real machines, whatever network is between them.

site.py           a site that answers a round
site_memory.py    what a site must never forget: steps answered, records counted, plans replaced
host.py           the aggregator's host: its machine and network, and whom a round asks
hosted_round.py   a round at that host; a period of a series: one run at a time
progress.py       what a round makes public: lines for people, metrics for Prometheus
reporter.py       a client of three servers: one report, kept and sent
delivery.py       its messages over HTTPS, until the servers have them
settings.py       run config, node config and files
supervisor.py     keeps the processes of a party running
tls.py            certificates and keys; whether a relay can be reached and trusted
web.py            an ASGI app on a socket, with limits
servers/          one of three servers: collector, links to the others, the one answer
flower/           the network over Flower: adapters only
"""
