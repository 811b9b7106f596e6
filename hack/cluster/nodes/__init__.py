"""A node of the cluster: its processes, cgroups and network."""
