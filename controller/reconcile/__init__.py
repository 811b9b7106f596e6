"""Reconcilers: jobs, pods and serving objects follow what is decided on their Workloads."""
