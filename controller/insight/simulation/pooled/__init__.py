"""A run on nodes that come and go: what they change in a scenario, and which of its workloads they keep waiting."""
