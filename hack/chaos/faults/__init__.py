"""Faults: the kinds as a table, and what begins and ends each."""
