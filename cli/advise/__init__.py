"""``tessera advise``: smaller requests that would be enough."""
