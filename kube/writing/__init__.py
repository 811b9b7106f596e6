"""Writes to the API server: in order for one object, retried where it helps; and Events."""
