"""What any long-running process needs: log, clock, tasks, memory, programs of the host. Knows nothing of GPUs."""
