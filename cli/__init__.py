"""The ``tessera`` command, which a person types."""
