"""The process: command line, listeners, leadership, and one term of it at a time."""
