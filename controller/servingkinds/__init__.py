"""Kinds that serve: no field holds them back, so their pods wait. One module a kind, and the table of all."""
