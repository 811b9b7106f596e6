"""Serving kinds, reconciled: their Workloads, and which Workload each of their pods belongs to."""
