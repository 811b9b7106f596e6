"""Checks that request nodes of an autoscaler before a workload with quota may start."""
