"""``tessera explain``: the reason why one workload waits."""
