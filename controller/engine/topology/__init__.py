"""Placement on nodes that form a topology: blocks, racks, hosts. Pure: objects in, domains out."""
