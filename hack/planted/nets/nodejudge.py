"""What a node's nets know to be wrong, from outside: what a kubelet was told and gave, and what the GPUs are. Pure."""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from history.judge import judged
from history.record import read

HEALTHY: Final = "Healthy"
MARK: Final = "::"
"""Between a device's UUID and the number of one of its shares (docs/audit.md)."""
_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_LIMIT: Final = re.compile(r"0=(\d+)M")
_REST_S: Final = 20.0
"""Longer than any state of a device may last that the judge of histories passes over."""

Json = dict[str, Any]


class Finding(NamedTuple):
    net: str
    message: str


class Hand(NamedTuple):
    """A device that a pod was given of a resource."""

    pod: str
    resource: str
    device: str


class Told(NamedTuple):
    """What the kubelet knows at ``t``: of each resource the health of each device, and what pods have."""

    t: float
    devices: Mapping[str, Mapping[str, str]]
    hands: tuple[Hand, ...] = ()

    def healthy(self) -> Iterator[tuple[str, str]]:
        """Resource and device of each that may be given."""
        for resource, devices in self.devices.items():
            yield from ((resource, device) for device, health in devices.items() if health == HEALTHY)

    def is_healthy(self, device: str) -> bool:
        return any(each == device for _, each in self.healthy())


class Container(NamedTuple):
    """What a container with parts of one GPU was given; ``memory_mib``: of that whole GPU."""

    name: str
    percent: int
    memory_mib: int
    envs: Mapping[str, str]
    mounts: Sequence[str]


def unit_of(device: str) -> str:
    return device.partition(MARK)[0]


def two_shapes(told: Iterable[Told], parents: Mapping[str, str]) -> list[Finding]:
    """A GPU or instance that a pod has in one shape is offered in another. ``parents``: the GPU of each instance."""
    clashes = dict[str, None]()
    for each in told:
        for hand in each.hands:
            for resource, device in each.healthy():
                if _clash(hand, resource, device, parents):
                    clashes[f"{hand.pod} has {hand.device} of {hand.resource}, and {resource} offers {device}"] = None
    return [Finding("kubelet", text) for text in clashes]


def _clash(hand: Hand, resource: str, device: str, parents: Mapping[str, str]) -> bool:
    mine, other = unit_of(hand.device), unit_of(device)
    if mine == other:
        return (hand.resource, MARK in hand.device) != (resource, MARK in device)
    return mine == parents.get(other) or other == parents.get(mine)


def wrong_counts(devices: Mapping[str, Mapping[str, str]], wanted: Mapping[str, int]) -> list[Finding]:
    """``wanted``: how many devices of each resource the layout asks for."""
    counts = {resource: len(devices.get(resource, ())) for resource in wanted}
    return [
        Finding("kubelet", f"{resource}: the kubelet was told of {counts[resource]} devices, the layout has {count}")
        for resource, count in wanted.items()
        if counts[resource] != count
    ]


def half_made(
    offered: Iterable[str], uuid: str, instances: Sequence[tuple[str, str]], wanted: Sequence[str]
) -> list[Finding]:
    """Devices of a GPU are offered whose instances are not those of the layout. ``instances``: UUID and profile."""
    profiles = sorted(profile for _, profile in instances)
    mine = sorted({uuid, *(each for each, _ in instances)} & set(map(unit_of, offered)))
    if profiles == sorted(wanted) or not mine:
        return []
    there = ", ".join(profiles) or "no instance"
    text = f"{', '.join(mine)} offered while {uuid} has {there} and the layout is {', '.join(wanted)}"
    return [Finding("hardware", text)]


def destroyed(held: Iterable[str], there: Iterable[str]) -> list[Finding]:
    """Instances that pods have and the GPUs do not."""
    return [Finding("hardware", f"{each} is destroyed and a pod has it") for each in sorted({*held} - {*there})]


def too_early(told: Sequence[Told], device: str, failed_s: float, reset_s: float, probation_s: float) -> list[Finding]:
    """A GPU whose fault only a reset ends. ``failed_s``: when the kubelet had been told; ``reset_s``: just before the
    reset. Until the reset and its probation it is not to be given.
    """
    again = [each.t for each in told if each.t > failed_s and each.is_healthy(device)]
    if not again:
        return []
    if again[0] < reset_s:
        return [Finding("kubelet", f"{device} has a fault, was not reset, and is offered")]
    after_s = again[0] - reset_s
    if after_s >= probation_s:
        return []
    return [Finding("kubelet", f"{device} is offered {after_s:.1f} s after its reset, probation is {probation_s:g} s")]


def unlimited(containers: Iterable[Container]) -> list[Finding]:
    """Containers without the limits of their part of a GPU."""
    return [Finding("kubelet", f"{each.name}: {why}") for each in containers for why in _unlimited(each)]


def _unlimited(container: Container) -> Iterator[str]:
    threads, memory = container.envs.get(_THREADS), container.envs.get(_MEMORY, "")
    if threads != str(container.percent):
        yield f"it asked for {container.percent} percent and has {threads or 'all'} of the threads"
    limit, most = _LIMIT.fullmatch(memory), container.memory_mib * container.percent // 100
    if limit is None or not most * 0.9 <= int(limit[1]) <= most:
        yield f"it asked for {container.percent} percent and has {memory or 'all'} of {container.memory_mib} MiB"
    if container.envs.get(_PIPE) not in container.mounts:
        yield "it has no way to the MPS daemon"


def left_specs(files: Iterable[str], live: Iterable[str]) -> list[Finding]:
    """CDI specs of claims that were given back; ``live``: uids of those that hold devices."""
    known = tuple(live)
    left = [name for name in files if not any(uid in name for uid in known)]
    return [Finding("kubelet", f"the CDI spec {name} is left of a claim that was given back") for name in left]


def by_history(lines: Sequence[Json], end_s: float) -> list[Finding]:
    """The judge of ``history/`` over a scene that has come to rest at ``end_s``: what is so then stays so."""
    rest = {"t": end_s + _REST_S, "source": "recorder", "type": "END"}
    written = "".join(json.dumps(each) + "\n" for each in (*lines, rest))
    findings = judged(read(io.BytesIO(written.encode()))).findings
    return [Finding("history", f"{each.rule}: {', '.join(each.objects)}: {each.message}") for each in findings]
