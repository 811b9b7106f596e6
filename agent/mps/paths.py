"""The places of MPS's files, on the host and inside a client's container.

Below the root (the setting ``flags.mpsRoot``, else ``<state-dir>/mps``) each device has a folder named by the UUID that
its containers get, the GPU's or the MIG instance's. Host and agent see the root under the same path: Allocate answers
name it to the container runtime. File names are the control daemon's own (NVIDIA, "Multi-Process Service", appendix).
"""

from pathlib import Path

from msgspec import Struct

PIPE_ENV = "CUDA_MPS_PIPE_DIRECTORY"
LOG_ENV = "CUDA_MPS_LOG_DIRECTORY"
THREADS_ENV = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_ENV = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
VISIBLE_ENV = "CUDA_VISIBLE_DEVICES"

CONTAINER_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - CUDA's default: a client finds it even with its environment emptied
CONTAINER_SHM = "/dev/shm"  # noqa: S108 - where the driver's shared memory segments are, in every container

CONTROL_SOCKET = "control"
PID_FILE = "nvidia-cuda-mps-control.pid"
CONTROL_LOG = "control.log"
SERVER_LOG = "server.log"

MAX_SOCKET_PATH = 107
"""The length in bytes of a Unix socket's address (sockaddr_un) without its final zero."""
LONGEST_DEVICE = 40
"""The length in characters of ``GPU-<uuid>`` and ``MIG-<uuid>``."""


class DevicePaths(Struct, frozen=True):
    """The folders of one device's control daemon. ``shm`` is a tmpfs that daemon and clients have at /dev/shm."""

    base: Path
    pipe: Path
    log: Path
    shm: Path

    @property
    def control(self) -> Path:
        return self.pipe / CONTROL_SOCKET

    @property
    def pid_file(self) -> Path:
        return self.pipe / PID_FILE

    @property
    def control_log(self) -> Path:
        return self.log / CONTROL_LOG


def device_paths(root: Path, device: str) -> DevicePaths:
    """The folders of the device with this physical id (``GPU-...`` or ``MIG-...``) below the MPS root."""
    base = root / device
    return DevicePaths(base=base, pipe=base / "pipe", log=base / "log", shm=base / "shm")


def root_problem(root: Path) -> str | None:
    """Why the daemons cannot have their sockets below ``root``, or None."""
    longest = device_paths(root, "x" * LONGEST_DEVICE).pipe / "control_privileged"
    over = len(str(longest).encode()) - MAX_SOCKET_PATH
    if over <= 0:
        return None
    return f"the MPS root {root} is {over} bytes too long: the sockets below it would pass {MAX_SOCKET_PATH} bytes"
