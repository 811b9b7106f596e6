"""The controller of serving kinds: their Workloads, and the Workload to which each of their pods belongs."""
