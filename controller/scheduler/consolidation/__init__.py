"""Moves of running workloads of ClusterQueues to other nodes, so that a pending one finds its places."""
