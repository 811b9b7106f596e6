"""The state that watches bring: typed copies, the ledger of Workloads, queues of work."""
