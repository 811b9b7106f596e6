"""Fairness in trees that mirror Volcano's and KAI's Queues: which job starts, and which jobs give way for it."""
