"""``tessera advise``: smaller requests that would do."""
