"""Targets of the agent: its configuration, what the kubelet and the API server send, files of the host, NVML."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hack.fuzz import nvml
from hack.fuzz.common import Made, as_json, by_file, files, manifests
from hack.fuzz.nodeseeds import (
    CGROUPS,
    CHECKPOINT,
    CLAIM,
    DRIVER,
    JOURNAL,
    LEDGER,
    OPAQUE,
    POD,
    allocate_messages,
    pod_messages,
    prepare_messages,
)
from hack.fuzz.target import Shape, Target


def _config() -> Made:
    from agent.config.load import load
    from yamlfile import ConfigError

    return by_file(lambda path: load(path, {}, {})), (ConfigError,)


def _gpu_layout() -> Made:
    from agent.cluster.gpulayouts import choose, read
    from kube.errors import KubeError

    # As nodewatch hears them: what is no GpuLayout at all is told to the watch.
    return lambda raw: choose([read(raw)], {"pool": "a"}), (msgspec.MsgspecError, KubeError)


def _pod() -> Made:
    from agent.kubelet.podwatch import see

    # The reflector tells any error of its decoder once, and goes on without the object.
    return see, (msgspec.MsgspecError, UnicodeError, RecursionError)


def _claim() -> Made:
    from agent.dra.claim import ClaimError, Ref, read, taken
    from agent.dra.configs import clients_of

    def parse(raw: bytes) -> object:
        claim = read(raw)
        meta = claim.metadata
        part = taken(Ref(meta.namespace, meta.name, meta.uid), claim, DRIVER)
        return clients_of(part, {})

    return parse, (ClaimError, msgspec.MsgspecError)


def _opaque() -> Made:
    from agent.dra.claim import ClaimError, Config, Opaque
    from agent.dra.configs import mps_of

    def parse(raw: bytes) -> object:
        config = Config(opaque=Opaque(DRIVER, msgspec.Raw(raw)))
        return mps_of([config], mig=len(raw) % 2 == 1)

    return parse, (ClaimError,)


def _checkpoint() -> Made:
    from agent.health.checkpoint import thaw, validate
    from agent.persistence.statefiles import Checkpoint, read_state

    def read(path: Path) -> object:
        restored = read_state(path, Checkpoint, lambda checkpoint: checkpoint.node.validate())
        if restored is not None:
            for gpu in restored.health.gpus:
                record = thaw(gpu)
                try:
                    validate(record)
                except AssertionError:
                    continue  # the health core begins anew with such a GPU
        return restored

    return by_file(read), ()


def _layout_state() -> Made:
    from agent.persistence.statefiles import LayoutState, read_state

    return by_file(lambda path: read_state(path, LayoutState, lambda _: None)), ()


def _ledger() -> Made:
    from agent.dra.files_shell import Kept
    from agent.dra.ledger import Ledger
    from agent.persistence.statefiles import read_state

    return by_file(lambda path: read_state(path, Kept, lambda kept: Ledger(kept.claims).validate())), ()


def _journal() -> Made:
    from agent.mig.journal import Journal
    from inventory.devices import GpuUuid

    class Here(Journal):
        """The one file that is written."""

        file = Path("/")

        def _path(self, gpu: GpuUuid) -> Path:  # noqa: ARG002 - whatever the GPU
            return self.file

    def read(path: Path) -> object:
        journal = Here(Path("/"))
        journal.file = path
        return journal.read(GpuUuid("GPU-1"))

    return by_file(read), ()


def _cgroup() -> Made:
    from agent.telemetry.owners import LONGEST, parse

    return lambda data: parse(data[:LONGEST].decode(errors="replace")), ()


def _mps() -> Made:
    from agent.mps.control import _pids, same_percentage, same_size

    def parse(data: bytes) -> object:
        said = data.decode(errors="replace").strip()
        return _pids(said), same_percentage(said, 25), same_size(said, 1024)

    return parse, ()


def _elf() -> Made:
    from agent.kubelet.elf import soname

    return by_file(soname), ()


def _vgpu() -> Made:
    from agent.hardware.vgpu import vendor_capabilities, vgpu_host

    return lambda data: [vgpu_host(each) for each in vendor_capabilities(data)], ()


def _pod_resources() -> Made:
    from google.protobuf.message import DecodeError

    from agent.kubelet.holders import holders_of, pod_names, sharers_of, shown
    from inventory.devices import DeviceId
    from kubeletapi import podresources_v1_pb2 as pb

    devices = {DeviceId("GPU-1"), DeviceId("GPU-2")}

    def claimed(driver: str, namespace: str, name: str, device: str) -> DeviceId | None:  # noqa: ARG001 - a claim's four names
        return DeviceId("GPU-1") if driver == DRIVER else None

    def parse(data: bytes) -> object:
        answer = pb.ListPodResourcesResponse.FromString(data)
        found = holders_of(answer, devices, claimed)
        assert found.keys() <= devices, "a device that is not ours has a holder"
        return shown(pod_names(found.values())), sharers_of(answer, claimed)

    return parse, (DecodeError,)


def _allocate() -> Made:
    from google.protobuf.message import DecodeError

    from deviceplugin.answer import AllocationError, answer, granted
    from deviceplugin.strategy import AllocationSpec, NodeAccess
    from inventory.devices import DeviceId, GpuUuid, ResourceName
    from inventory.layout.layout import LogicalDevice, Resource
    from kubeletapi import deviceplugin_v1beta1_pb2 as pb

    every = tuple(LogicalDevice(id=DeviceId(f"GPU-{n}"), gpu=GpuUuid(f"GPU-{n}")) for n in range(4))
    resource = Resource(ResourceName("nvidia.com/gpu"), every)
    by_id: dict[str, LogicalDevice] = {device.id: device for device in every}

    def parse(data: bytes) -> object:
        for container in pb.AllocateRequest.FromString(data).container_requests:
            given = granted(resource, by_id, {DeviceId("GPU-3"): "lost"}, container.devices_ids)
            assert {device.id for device in given} <= by_id.keys() - {"GPU-3"}, "a device is given that may not be"
            answer(AllocationSpec(), NodeAccess(), given, "00")
        return None

    return parse, (DecodeError, AllocationError)


def _preferred() -> Made:
    from google.protobuf.message import DecodeError

    from inventory.layout.fractions import gpus_asked
    from kubeletapi import deviceplugin_v1beta1_pb2 as pb
    from kubeletapi import dra_v1_pb2 as dra

    def parse(data: bytes) -> object:
        asked = dra.NodePrepareResourcesRequest.FromString(data)
        preferred = pb.PreferredAllocationRequest.FromString(data)
        return [claim.uid for claim in asked.claims], preferred, gpus_asked(data.decode(errors="replace"))

    return parse, (DecodeError,)


def _on_node(
    name: str,
    what: str,
    writer: str,
    make: Callable[[], Made],
    seeds: Callable[[], Sequence[bytes]],
    shape: Shape = Shape.JSON,
) -> Target:
    return Target(name=name, what=what, writer=writer, make=make, seeds=seeds, shape=shape)


TARGETS: Final = (
    _on_node(
        "agent-config",
        "the agent's configuration file",
        "administrators",
        _config,
        files("configs/*.yaml"),
        Shape.TEXT,
    ),
    _on_node(
        "gpu-layout",
        "GpuLayout objects, as the agent reads them",
        "administrators",
        _gpu_layout,
        lambda: as_json(manifests("layouts/*.yaml")),
    ),
    _on_node("pod-on-node", "pods, as the agent reads them", "anybody who makes pods", _pod, lambda: as_json((POD,))),
    _on_node("claim", "claims that the kubelet names", "anybody who makes claims", _claim, lambda: as_json((CLAIM,))),
    _on_node(
        "claim-config",
        "opaque configurations of claims",
        "anybody who makes claims",
        _opaque,
        lambda: as_json(OPAQUE),
    ),
    _on_node(
        "checkpoint", "the agent's checkpoint", "root of the node, a disk", _checkpoint, lambda: as_json((CHECKPOINT,))
    ),
    _on_node(
        "layout-state",
        "the agent's layout file",
        "root of the node, a disk",
        _layout_state,
        lambda: as_json(({"version": 1, "modes": {"GPU-1": "mig"}},)),
    ),
    _on_node(
        "mig-journal",
        "the journal of MIG changes",
        "root of the node, a disk",
        _journal,
        lambda: as_json((JOURNAL,)),
    ),
    _on_node(
        "claim-ledger",
        "the ledger of prepared claims",
        "root of the node, a disk",
        _ledger,
        lambda: as_json((LEDGER,)),
    ),
    _on_node(
        "cgroup",
        "/proc/PID/cgroup",
        "containers, by cgroups of their own",
        _cgroup,
        lambda: CGROUPS,
        Shape.TEXT,
    ),
    _on_node(
        "mps-answer",
        "answers of MPS control daemons",
        "the driver's programs",
        _mps,
        lambda: [b"12 13", b"25.0", b"1G"],
        Shape.TEXT,
    ),
    _on_node(
        "elf", "the driver's libraries", "the host's files", _elf, lambda: [b"\x7fELF\x02\x01" + bytes(58)], Shape.BYTES
    ),
    _on_node("pci-config", "PCI configuration space", "devices", _vgpu, lambda: [bytes(256)], Shape.BYTES),
    _on_node(
        "pod-resources",
        "the kubelet's pod resources",
        "the kubelet, by names that users chose",
        _pod_resources,
        pod_messages,
        Shape.BYTES,
    ),
    _on_node("allocate", "the kubelet's Allocate", "the kubelet", _allocate, allocate_messages, Shape.BYTES),
    _on_node("kubelet-calls", "the kubelet's other calls", "the kubelet", _preferred, prepare_messages, Shape.BYTES),
    _on_node(
        "nvml",
        "what each function of NVML fills in",
        "the driver, boards that fail",
        nvml.made,
        lambda: [bytes(64), bytes(2048), bytes(range(1, 200)) * 12],
        Shape.BYTES,
    ),
)
