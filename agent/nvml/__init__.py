"""NVML in, plain data out. Nothing above this package imports ``pynvml``."""
