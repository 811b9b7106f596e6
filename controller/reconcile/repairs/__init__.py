"""Repairs of GPUs: which may go on, and what leaves the GPU or the node before."""
