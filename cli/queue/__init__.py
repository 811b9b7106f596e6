"""``tessera queue``: the queues, and the workloads that wait in them."""
