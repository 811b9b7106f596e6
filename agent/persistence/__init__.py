"""The state that the agent keeps on disk across its own restarts."""
