"""The device model both sides share: pure data and arithmetic, no I/O.

The agent fills it from NVML, the device plugin advertises it, the controller places pods on it. No module here reads a
file, a socket or a clock.
"""

__version__ = "0.2.0"
