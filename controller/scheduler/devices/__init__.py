"""The devices of nodes: which GPUs are free, how they are linked, and which pod gets which."""
