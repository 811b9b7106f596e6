"""NVML's C functions in Python, against the ctypes arguments that pynvml passes, in the manual's groups."""
