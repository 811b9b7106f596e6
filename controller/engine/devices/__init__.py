"""The devices of nodes: which GPUs are free, how they are linked, and who is to have which."""
