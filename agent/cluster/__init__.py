"""What the API server is told of this node, and what it says about it: labels, GpuNode, Events, layouts."""
