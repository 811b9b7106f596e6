"""The simulated hardware of one node: its state, where it is kept, and the events it raises."""
