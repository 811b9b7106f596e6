"""Placement on nodes that form a topology (blocks, racks, hosts). Pure: takes objects, returns topology domains."""
