"""Simulated GPUs: NVML's C functions in Python behind ``pynvml``, driven by a fleet file.

``install`` puts a node of a fleet in place of the loaded C library, so that all of pynvml's own code runs and the
agent cannot tell. The hardware's state is a locked file that outlives the process; orders (faults, loads, reboot)
come from the fleet's timed events and, through ``simulator.client``, from people. Data flows one way:
fleet -> hardware (pure state) -> simulation (clock, store, listeners) -> nvml (the functions).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.hardware.store import StoreError
from simulator.reading import InputError

if TYPE_CHECKING:
    from simulator.simulation import Simulation

__all__ = ["InputError", "StoreError", "install"]


def install(
    fleet_path: Path,
    node_name: str | None,
    state_dir: Path,
    sys_root: Path | None = None,
    proc_root: Path | None = None,
) -> "Simulation":
    """Simulate one node of a fleet behind pynvml, in this process, until the simulation is closed.

    The node is the named one, or the fleet's only one. The state is kept in ``state_dir``; below ``sys_root`` and
    ``proc_root`` the files that an agent reads about GPUs and the boot id are written. Raises InputError (one line)
    for a bad fleet and StoreError when the state is another process's.
    """
    from simulator.nvml.library import install_library
    from simulator.simulation import open_simulation

    simulation = open_simulation(fleet_path, node_name, state_dir, sys_root=sys_root, proc_root=proc_root)
    install_library(simulation)
    return simulation
