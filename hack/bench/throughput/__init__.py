"""Benchmarks on an API server, real or modelled: workloads drained, writes a second."""
