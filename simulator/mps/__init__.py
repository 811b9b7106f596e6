"""Stand-ins for the MPS control program and for one CUDA client."""
