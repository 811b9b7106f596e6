"""``tessera explain``: why one workload waits."""
