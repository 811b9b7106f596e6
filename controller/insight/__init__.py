"""What people are told beside decisions: why a workload waits, when it starts, and what a policy would do."""
