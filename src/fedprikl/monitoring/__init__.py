"""Monitoring: a series of releases over time. Periods, alarms of the whole series, history."""
