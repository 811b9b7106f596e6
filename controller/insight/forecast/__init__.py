"""When pending workloads are expected to start, and what would let one start sooner."""
