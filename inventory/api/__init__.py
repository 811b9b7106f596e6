"""What crosses the wall between the agent and the controller."""
