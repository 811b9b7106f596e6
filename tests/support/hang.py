"""The one limit of tests in real time: it ends a hang, and says nothing else."""

from typing import Final

from kube.testing.clocks import HANG_S as _HANG_S

HANG_S: Final = _HANG_S
"""A test waits for events. What takes so long on a machine that others keep busy has failed. No claim rests on it."""
