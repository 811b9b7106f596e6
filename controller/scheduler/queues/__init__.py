"""Pending workloads in the order in which they are tried, and those that are parked until something changes for them.

A parked workload is what Kueue calls inadmissible: it is out of the order until the queue is woken, which requeues all
parked workloads. A head is the next workload of a ClusterQueue to be tried; a cycle pops heads and requeues those it
does not admit.
"""
