"""Names: completed by a shell, and the one that was probably meant."""
