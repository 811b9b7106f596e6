"""``tessera top``: the fleet, live."""
