"""Serving kinds: no field holds them back, so their pods wait. One module for each kind, and the table of all."""
