"""Boards as data: products, MIG profiles and instances, wiring, loads, faults."""
