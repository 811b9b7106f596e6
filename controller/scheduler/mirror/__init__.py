"""Queues of other systems in the engine: trees of foreign Queues, mirrored without objects."""
