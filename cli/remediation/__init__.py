"""``tessera remediation``: the repairs of GPUs, as GpuNodes tell of them, and the orders of people."""
