"""What every part of the engine counts in: resources, workloads, device requests, limits, configuration, undo log."""
