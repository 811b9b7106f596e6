"""What NVML's failures mean to a caller.

    NvmlError
    |-- DriverUnavailable   no library, no driver, or a driver that was swapped: open a new session later
    |-- GpuLost             this GPU fell off the bus, or its handle is from before a reset: take a new one
    |-- CallTimedOut        NVML did not answer in time: this GPU's thread may hang; the others do not
    `-- CallFailed          anything else NVML said, by its own words

"Not supported" is no error here: ``query.ask`` turns it into None.
"""


class NvmlError(Exception):
    """The root: nothing else leaves this package."""


class DriverUnavailable(NvmlError):  # noqa: N818 - a state, not a mistake
    """There is no driver to talk to right now."""


class GpuLost(NvmlError):  # noqa: N818 - a state, not a mistake
    """The handle names no living GPU."""


class CallTimedOut(NvmlError):  # noqa: N818 - a state, not a mistake
    """The GPU's thread did not answer in time."""


class CallFailed(NvmlError):  # noqa: N818 - a state, not a mistake
    """NVML refused."""
