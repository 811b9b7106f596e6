"""Pending workloads in the order in which they are tried, and those parked until something changes for them.

Parked is what Kueue calls inadmissible: out of the order until the queue is woken, which requeues all that is parked.
A head is the next workload of a ClusterQueue to be tried; a cycle pops heads and requeues those it does not admit.
"""
