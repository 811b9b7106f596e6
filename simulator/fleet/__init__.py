"""The simulated fleet: the file, its nodes, and the orders that change it."""
