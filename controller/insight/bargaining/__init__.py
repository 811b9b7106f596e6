"""CapacityRequests: what a program could have, answered at once, and what it was granted."""
