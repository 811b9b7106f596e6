"""The verbs of ``kubectl kueue``, under the same words: create, list, stop, resume, delete, and those of kubectl."""
