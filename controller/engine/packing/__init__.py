"""Moves of running workloads between ClusterQueues' nodes, so that one that waits finds its places."""
