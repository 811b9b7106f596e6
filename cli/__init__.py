"""The ``tessera`` command: what a person types."""
