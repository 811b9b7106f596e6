"""``tessera simulate``: the engine on files alone."""
