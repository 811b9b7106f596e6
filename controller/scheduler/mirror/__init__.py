"""Queues of other systems in the engine: trees of Volcano's and KAI's Queues, mirrored without objects."""
