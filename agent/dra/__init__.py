"""The driver for Dynamic Resource Allocation: GPUs that pods ask for by ResourceClaim."""
