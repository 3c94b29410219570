"""One of three servers, none of which is trusted: what runs beside the roles of `protocol`.

intake.py      reports on disk, as they came; durable before anybody is told
collector.py   the web address that clients send reports to
links.py       TLS between the servers, with pinned keys
meeting.py     what the servers do together: agree on reports, check them, answer once
home.py        the files of a server: keys, certificates, plans, limits, ledger
"""
