"""The simulated hardware of one node: its state, the store of that, and the events it raises."""
