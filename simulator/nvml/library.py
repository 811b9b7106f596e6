"""The object that stands in for the loaded C library behind pynvml, and its installation.

Its attributes are plain functions, because pynvml sets ``restype`` on them; a name that is not simulated is missing,
which pynvml reports as NVML_ERROR_FUNCTION_NOT_FOUND.
"""

import logging
from collections.abc import Callable
from typing import Any

import simulator.nvml.devices
import simulator.nvml.events
import simulator.nvml.fields
import simulator.nvml.gpm
import simulator.nvml.links
import simulator.nvml.memory
import simulator.nvml.mig
import simulator.nvml.miginstances
import simulator.nvml.processes
import simulator.nvml.sensors
import simulator.nvml.system  # noqa: F401 - importing a group registers its functions
from simulator.nvml import codes
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import FUNCTIONS, Body, Session
from simulator.simulation import Simulation

__all__ = ["FUNCTIONS", "SimulatedLibrary", "install_library"]

log = logging.getLogger(__name__)


class SimulatedLibrary:
    """NVML, simulated: one attribute per C function."""

    def __init__(self, simulation: Simulation) -> None:
        self._session = Session(simulation)
        for name, body in FUNCTIONS.items():
            setattr(self, name, _function(name, body, self._session))


def _function(name: str, body: Body, session: Session) -> Callable[..., int | bytes]:
    def call(*arguments: Any) -> int | bytes:
        try:
            result = body(session, *arguments)
        except NvmlError as error:
            return error.code
        except (TypeError, AttributeError, ValueError, OverflowError):
            # The C library would read wrong arguments as garbage or crash; a code is the kinder answer.
            log.exception("simulated %s was called with arguments that it cannot take", name)
            return codes.INVALID_ARGUMENT
        return codes.SUCCESS if result is None else result

    call.__name__ = name
    return call


def install_library(simulation: Simulation) -> None:
    """Put the simulation behind pynvml until it closes. pynvml's module must not be in use with another library."""
    import pynvml

    before = pynvml.nvmlLib
    library = SimulatedLibrary(simulation)

    def put(new: Any) -> None:
        with pynvml.libLoadLock:
            pynvml.nvmlLib = new
            pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - pynvml has no other way to forget a library
            pynvml._nvmlLib_refcount = 0  # noqa: SLF001 - as above

    put(library)

    def restore() -> None:
        if pynvml.nvmlLib is library:
            put(before)

    simulation.on_close(restore)
