"""Who waits: pending workloads in the order they are tried, and those parked until something changes for them."""
