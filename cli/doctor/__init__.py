"""``tessera doctor``: what is wrong on this node."""
