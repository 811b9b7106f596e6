"""Writes to the API server: Workloads, queue status, Events, and the pace of writes."""
