"""``tessera workload``: shows and changes workloads, with the rights of the caller."""
