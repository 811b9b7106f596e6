"""Benchmarks of the controller at the size of a fleet: on a real API server, and the engine alone."""
