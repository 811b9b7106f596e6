"""Flavor assignment: which flavors a workload would get, with fewer pods and on which topology."""
