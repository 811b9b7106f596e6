"""The layout of a node's GPUs, how they are cut and shared, and the resources that follow."""
