"""``tessera node``: the local agent's report."""
