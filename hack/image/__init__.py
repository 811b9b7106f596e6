"""The image: made in seconds for tests, or as the Dockerfile makes it."""
