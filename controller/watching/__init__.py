"""What the watches tell: typed copies, the ledger of Workloads, queues of work."""
