"""What one pass over NVML reads of a GPU: everything that is exported, on the GPU's own thread."""
