"""Failpoints armed, in tests alone: the product's own functions do nothing (docs/failpoints.md)."""
