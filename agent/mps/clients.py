"""Environment and mounts of an Allocate answer that make a container a client of one device's MPS daemon."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from agent.mps.paths import CONTAINER_PIPE, CONTAINER_SHM, MEMORY_ENV, PIPE_ENV, THREADS_ENV, device_paths
from deviceplugin.answer import Mount
from inventory.layout import fractions
from inventory.layout.layout import LogicalDevice
from inventory.layout.sharing import SharingMode


class ClientCaps(Struct, frozen=True):
    """The limits of one client. They only ever tighten the daemon's, and a client can undo them: they are cooperative.

    ``memory_mib`` is device memory in MiB, ``threads_percent`` the part of the device's threads, 1 to 100. None: no
    limit of its own, the daemon's default holds.
    """

    memory_mib: int | None = None
    threads_percent: int | None = None


class ClientSettings(Struct, frozen=True):
    """The part of a container's answer that makes it a client. It is merged whatever the device list strategy is: CDI
    specs know nothing of MPS.
    """

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...]


def client_settings(root: Path, daemon: str, caps: ClientCaps | None = None, devices: int = 1) -> ClientSettings:
    """The settings of a container that got (replicas of) devices of the daemon with this id, ``GPU-...`` or
    ``MIG-...``.

    A process speaks to one control daemon: a container cannot be a client of two. The container sees its devices as 0
    to ``devices - 1``, which is how the memory limit names them. The limit is equal on each device: they are alike.
    """
    paths = device_paths(root, daemon)
    envs = {PIPE_ENV: CONTAINER_PIPE}
    if caps is not None and caps.threads_percent is not None:
        envs[THREADS_ENV] = str(caps.threads_percent)
    if caps is not None and caps.memory_mib is not None:
        envs[MEMORY_ENV] = ",".join(f"{at}={caps.memory_mib}M" for at in range(devices))
    return ClientSettings(
        envs=envs,
        mounts=(Mount(CONTAINER_PIPE, str(paths.pipe)), Mount(CONTAINER_SHM, str(paths.shm))),
    )


def client_of(root: Path, devices: Sequence[LogicalDevice]) -> ClientSettings | None:
    """Environment and mounts for the MPS daemon of the devices, with the client's caps; None where no daemon shares
    them.
    """
    share = devices[0].share
    if share is None or not share.sharing.needs_mps:
        return None
    caps = ClientCaps(share.memory_mib, share.threads)
    gpus = len({device.gpu for device in devices})
    if share.sharing is SharingMode.FRACTIONAL:
        caps = ClientCaps(fractions.memory_mib(devices) // gpus, len(devices) // gpus)
    daemon = share.together[0] if share.together else devices[0].physical_id
    return client_settings(root, daemon, caps, gpus)
