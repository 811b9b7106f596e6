"""Reads all exported figures of a GPU in one pass over NVML, on the GPU's own thread."""
