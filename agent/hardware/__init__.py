"""Turns NVML's answers into plain data; has the monitor that follows the GPUs.

Of the other rooms only telemetry's readers import ``pynvml``: functions that run on a GPU's own thread.
"""
