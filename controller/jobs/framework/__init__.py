"""What all kinds of jobs share: the kind's interface, pod sets, the composed Workload, names, settings."""
