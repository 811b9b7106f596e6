"""GPUs and nodes that fail under running pods: pure decisions, and the shells that carry them out."""
