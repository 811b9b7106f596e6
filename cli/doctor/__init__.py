"""``tessera doctor``: the faults of this node."""
