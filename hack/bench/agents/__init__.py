"""Benchmarks of what a fleet of agents asks of the API server."""
