"""Between the API server and the engine: what is watched, what is decided from it, what is written back."""
