"""What developers run: the real Kubernetes for tests, code generation, benchmarks."""
