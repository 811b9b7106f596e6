"""The basic data of the engine: resources, workloads, device requests, limits, configuration, undo log."""
