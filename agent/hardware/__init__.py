"""NVML in, plain data out; and the monitor that follows the GPUs. Nothing outside of here imports ``pynvml``."""
