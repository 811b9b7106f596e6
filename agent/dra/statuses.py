"""The state of a prepared claim's devices, as its ``status.devices`` shows it. Pure.

    claim of the ledger, units, ailments -> statuses_of(...) -> DeviceStatus each; timed(wanted, before, now)

An entry has one condition, ``Ready``, and in ``data`` the device as NVML knows it. It shows nothing that changes by the
minute: each change is a write.
Source: KEP-4817; resource.k8s.io/v1 ``AllocatedDeviceStatus``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import structs

from agent.dra.claim import Condition, DeviceStatus
from agent.dra.ledger import GivenDevice, Prepared, Stage
from agent.dra.publishing.partitions import instance
from agent.words import node as words
from inventory.devices import NodeInventory
from kube.objects import timestamp

READY: Final = "Ready"
PREPARED: Final = "Prepared"
UNHEALTHY: Final = "Unhealthy"
ABSENT: Final = "NotThere"
MAX_MESSAGE: Final = 1024


def statuses_of(
    claims: Iterable[Prepared], driver: str, node: NodeInventory, ailment: Callable[[GivenDevice], str]
) -> dict[str, tuple[Prepared, tuple[DeviceStatus, ...]]]:
    """The statuses of each claim whose answer stands, by the claim's UID; without times. ``ailment`` gives the fault of
    a device in words, empty for none.
    """
    return {
        claim.uid: (claim, tuple(_each_once(claim, driver, node, ailment)))
        for claim in claims
        if claim.stage is Stage.COMPLETED
    }


def timed(wanted: Sequence[DeviceStatus], before: Sequence[DeviceStatus], now_s: float) -> tuple[DeviceStatus, ...]:
    """``wanted`` with the time since which each condition is as it is; ``before`` are the statuses that the claim has
    so far.
    """
    times = {
        (status.key, each.type, each.status): each.last_transition_time for status in before for each in _of(status)
    }
    now = timestamp(now_s)
    return tuple(
        structs.replace(
            status,
            conditions=tuple(
                structs.replace(each, last_transition_time=times.get((status.key, each.type, each.status)) or now)
                for each in _of(status)
            ),
        )
        for status in wanted
    )


def same(wanted: Sequence[DeviceStatus], there: Sequence[DeviceStatus]) -> bool:
    """Whether the two are equal, times aside."""
    return _timeless(wanted) == _timeless(there)


def _timeless(found: Sequence[DeviceStatus]) -> dict[tuple[str, ...], DeviceStatus]:
    return {
        status.key: structs.replace(
            status, conditions=tuple(structs.replace(each, last_transition_time="") for each in _of(status))
        )
        for status in found
    }


def _of(status: DeviceStatus) -> tuple[Condition, ...]:
    return status.conditions or ()


def _each_once(
    claim: Prepared, driver: str, node: NodeInventory, ailment: Callable[[GivenDevice], str]
) -> Iterable[DeviceStatus]:
    """The statuses of a claim's devices, each device once: with admin access a device may stand for several
    requests.
    """
    for device in {(each.device, each.share_id): each for each in claim.devices}.values():
        data = _data(device, node)
        reason, message = PREPARED, ""
        if data is None:
            reason, message = ABSENT, words.device_absent()
        elif wrong := ailment(device):
            reason, message = UNHEALTHY, wrong[:MAX_MESSAGE]
        ready = Condition(READY, "True" if reason is PREPARED else "False", reason, message)
        yield DeviceStatus(driver, device.pool, device.device, device.share_id, (ready,), data)


def _data(device: GivenDevice, node: NodeInventory) -> Mapping[str, Any] | None:
    """``data``: the device as NVML knows it; None while it does not exist."""
    gpu = node.gpu(device.gpu)
    if gpu is None:
        return None
    if device.slot is None:
        return {"uuid": gpu.uuid, "minor": gpu.minor}
    mig = instance(gpu, device.slot)
    if mig is None:
        return None
    return {
        "uuid": mig.uuid,
        "parentUUID": gpu.uuid,
        "minor": gpu.minor,
        "gpuInstanceId": mig.gi_id,
        "computeInstanceId": mig.ci_id,
    }
