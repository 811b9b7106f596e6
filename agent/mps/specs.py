"""The control daemons that a node needs, with their limits. Pure.

    node, layout, modes  ->  daemon_specs  ->  one DaemonSpec for each device that MPS clients share, or for several

Limits of equal shares are the daemon's own defaults: the device's memory and threads divided by the number of shares,
as NVIDIA's device plugin divides them. Uneven shares and fractions leave the daemon without limits; each client brings
its own (see ``clients``).
"""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, structs

from inventory.devices import Gpu, GpuUuid, NodeInventory
from inventory.layout.entries import Dra, Fractional, GpuMode, Mps
from inventory.layout.layout import Layout
from inventory.layout.sharing import SharingMode

CLIENTS_BEFORE_VOLTA = 16
CLIENTS = 48
CLIENTS_SINCE_CUDA_13_1 = 60
"""Client contexts of one device at a time. Source: NVIDIA, "Multi-Process Service", client-server connection limits."""
_VOLTA = (7, 0)
_CUDA_13_1 = (13, 1)
_WHOLE = 100


class DaemonSpec(Struct, frozen=True):
    """One device's control daemon. ``device`` is the GPU's UUID or the MIG instance's, ``name`` is its name for people.

    ``several`` are the GPUs of a daemon that serves more than one; ``device`` is then only its key. ``threads_percent``
    (1 to 100) and ``memory_mib`` are the limits of a client that brings none; None: no limit. ``refused`` is the reason
    why no daemon may run, one line; empty where one may.
    """

    device: str
    gpu: GpuUuid
    name: str
    clients: int
    threads_percent: int | None = None
    memory_mib: int | None = None
    exclusive: bool = True
    """Whether the GPU's compute mode is to be EXCLUSIVE_PROCESS, so that no program bypasses the daemon."""
    refused: str = ""
    several: tuple[GpuUuid, ...] = ()
    each_mib: tuple[int | None, ...] = ()
    """The memory limit of each device, in the order of ``devices``, where the limits differ."""

    @property
    def limits_mib(self) -> tuple[int | None, ...]:
        """The memory limit of each device."""
        return self.each_mib or (self.memory_mib,) * len(self.devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """The physical ids of the devices that the daemon serves."""
        return self.several or (self.device,)

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        return self.several or (self.gpu,)


def client_limit(compute_capability: tuple[int, int], cuda_version: tuple[int, int]) -> int:
    """The number of client contexts that a device serves at a time, by the GPU's compute capability and the driver's
    CUDA.
    """
    if (0, 0) < compute_capability < _VOLTA:
        return CLIENTS_BEFORE_VOLTA
    return CLIENTS_SINCE_CUDA_13_1 if cuda_version >= _CUDA_13_1 else CLIENTS


def daemon_specs(node: NodeInventory, layout: Layout, modes: Mapping[GpuUuid, GpuMode]) -> tuple[DaemonSpec, ...]:
    """The specs of the daemons, in the order of GPU index and MIG index; deterministic."""
    shared = [
        device
        for resource in layout.resources
        for device in resource.devices
        if device.share is not None and device.share.sharing is SharingMode.MPS
    ]
    replicas = Counter(device.physical_id for device in shared)
    together = {device.gpu: device.share.together for device in shared if device.share is not None and not device.mig}
    specs: list[DaemonSpec] = []
    for gpu in node.gpus:
        mode = modes.get(gpu.uuid)
        if isinstance(mode, Fractional):
            spec = _spec(node, gpu, clients=_WHOLE // mode.granularity, equal=False, counted=False)
            _join(specs, spec, mode.together)
        elif isinstance(mode, Dra):
            if mode.shares is not None:
                specs.append(_spec(node, gpu, clients=_WHOLE // mode.shares, equal=False, counted=False))
        elif isinstance(mode, Mps):
            specs.append(_spec(node, gpu, clients=len(mode.clients), equal=mode.equal))
        elif replicas[gpu.uuid]:
            _join(specs, _spec(node, gpu, clients=replicas[gpu.uuid], equal=True), together[gpu.uuid])
        specs += [
            _instance_spec(node, gpu, index, clients=replicas[mig.uuid])
            for index, mig in enumerate(gpu.mig_instances)
            if replicas[mig.uuid]
        ]
    return tuple(specs)


def _spec(node: NodeInventory, gpu: Gpu, *, clients: int, equal: bool, counted: bool = True) -> DaemonSpec:
    """The spec of a whole GPU. ``counted``: ``clients`` is checked against what the device can serve at a time.

    Fractions are not counted: one container may take several.
    """
    name = f"GPU {gpu.index}"
    return DaemonSpec(
        device=gpu.uuid,
        gpu=gpu.uuid,
        name=name,
        clients=clients,
        threads_percent=max(1, _WHOLE // clients) if equal else None,
        memory_mib=gpu.memory_mib // clients if equal and gpu.memory_mib else None,
        # A GPU in MIG mode has no exclusive compute mode, and a whole GPU has nothing for MPS to serve.
        exclusive=not gpu.mig_enabled,
        refused="MIG mode is on" if gpu.mig_enabled else _refused(node, gpu, clients if counted else 1),
    )


def _join(found: list[DaemonSpec], spec: DaemonSpec, together: tuple[GpuUuid, ...]) -> None:
    """Add a GPU's daemon; with ``together`` put the GPU into the one daemon of that group, which is filed under the
    first of the group's GPUs, there or not: containers know the daemon's folder by that.
    """
    if not together:
        found.append(spec)
        return
    at = next((at for at, other in enumerate(found) if other.several and other.device == together[0]), None)
    if at is None:
        found.append(structs.replace(spec, device=together[0], several=(spec.gpu,)))
        return
    known = found[at]
    limits = (*known.limits_mib, spec.memory_mib)
    threads = [each for each in (known.threads_percent, spec.threads_percent) if each is not None]
    found[at] = structs.replace(
        known,
        name=f"{known.name}, {spec.name.removeprefix('GPU ')}",
        several=(*known.several, spec.gpu),
        clients=max(known.clients, spec.clients),
        threads_percent=min(threads, default=None),
        each_mib=limits if len(set(limits)) > 1 else (),
        refused=known.refused or spec.refused,
        exclusive=known.exclusive and spec.exclusive,
    )


def _instance_spec(node: NodeInventory, gpu: Gpu, index: int, *, clients: int) -> DaemonSpec:
    mig = gpu.mig_instances[index]
    return DaemonSpec(
        device=mig.uuid,
        gpu=gpu.uuid,
        name=f"GPU {gpu.index} MIG {mig.index} ({mig.profile})",
        clients=clients,
        threads_percent=max(1, _WHOLE // clients),
        memory_mib=mig.memory_mib // clients if mig.memory_mib else None,
        exclusive=False,
        refused=_refused(node, gpu, clients),
    )


def _refused(node: NodeInventory, gpu: Gpu, clients: int) -> str:
    most = client_limit(gpu.compute_capability, node.cuda_version)
    if clients <= most:
        return ""
    return f"found {clients} MPS clients, expected {most} at most on {gpu.product} with this driver"
