"""Rules about Volcano's and KAI's objects, and defaults of their fields. Pure."""
