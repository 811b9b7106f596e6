"""Benchmarks of the agent and of what it decides on a node."""
