"""The engine's state across cycles, and how objects of the API server change it."""
