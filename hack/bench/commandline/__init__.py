"""Benchmarks of the ``tessera`` command."""
