"""Volcano's and KAI's objects: what becomes of each field, and the part of a plan that follows."""
