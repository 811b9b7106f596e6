"""Objects, labels and annotations that the agent and the controller exchange."""
