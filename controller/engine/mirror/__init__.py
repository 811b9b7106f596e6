"""Queues of other systems as the engine holds them: trees of Volcano's and KAI's Queues, mirrored without objects."""
