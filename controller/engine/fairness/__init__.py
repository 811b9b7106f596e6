"""Fairness of trees that are mirrored from Volcano's and KAI's Queues: whose job starts, and who gives way for it."""
