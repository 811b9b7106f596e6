"""Flavor assignment: which flavors a workload would get, also with fewer pods, and in which topology domains."""
