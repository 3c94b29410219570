"""One of three servers, none of which is trusted: what runs beside the roles of `protocol`.

intake.py      reports on disk, as they came; durable before anybody is told
collector.py   the web address that clients send reports to
links.py       TLS between the servers, with pinned keys
meeting.py     which reports are counted: what the servers settle before anything is opened
answering.py   the one answer: charged, noised, opened, signed by all
home.py        the files of a server: keys, certificates, plans, limits, ledger
"""
