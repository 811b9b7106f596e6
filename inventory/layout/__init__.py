"""How a node's GPUs are cut and shared, and the resources that follow."""
