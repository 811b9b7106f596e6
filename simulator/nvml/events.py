"""Event sets: create, register, wait, free."""

from typing import Any

from simulator.hardware.eventsets import EventSet, FreedError
from simulator.nvml import codes
from simulator.nvml.arguments import Handle, HandleKind, as_pointer, number, put, put_fields, put_handle, target, unpack
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, Session, alias, on_device, on_system

SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x10
"""The supported events: single- and double-bit ECC, P-state, XID and clock events."""

MIG_CONFIG_CHANGE = 0x100


def _supported(device: Device) -> int:
    return SUPPORTED | (MIG_CONFIG_CHANGE if device.product.mig else 0)


def _set(session: Session, argument: Any) -> EventSet:
    handle = unpack(argument)
    events = session.event_sets.get(handle.serial) if handle.kind == HandleKind.EVENT_SET else None
    if events is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    return events


@on_system
def nvmlEventSetCreate(session: Session, handle: Any) -> None:
    serial = session.next_serial()
    events = EventSet()
    with session.lock:
        session.event_sets[serial] = events
        session.simulation.sets = session.simulation.sets | {events}
    put_handle(handle, Handle(HandleKind.EVENT_SET, serial=serial))


@on_device()
def nvmlDeviceGetSupportedEventTypes(device: Device, kinds: Any) -> None:
    put(kinds, _supported(device))


@on_device()
def nvmlDeviceRegisterEvents(device: Device, kinds: Any, events: Any) -> None:
    wanted = number(kinds)
    if wanted & ~_supported(device):
        raise NvmlError(codes.NOT_SUPPORTED)
    _set(device.session, events).register(device.index, device.state.epoch, wanted)


@on_system
def nvmlEventSetWait_v2(session: Session, argument: Any, data: Any, timeout_ms: Any) -> None:
    """The next event of the set; GPU_IS_LOST where one of its GPUs is lost and no other event is queued."""

    def lost(registration: tuple[int, int]) -> bool:
        session.check()
        gpu = session.simulation.told.gpus[registration[0]]
        return gpu.lost and gpu.epoch == registration[1]

    target(data)
    events = _set(session, argument)
    session.delay_wait("nvmlEventSetWait_v2", {gpu for gpu, _ in events.registrations()})
    try:
        notice = events.wait(number(timeout_ms) / 1000, lost)
    except LookupError:
        raise NvmlError(codes.GPU_IS_LOST) from None
    except FreedError:
        raise NvmlError(codes.UNINITIALIZED) from None
    if notice is None:
        raise NvmlError(codes.TIMEOUT)
    put_fields(
        data,
        eventType=notice.kind,
        eventData=notice.data,
        gpuInstanceId=notice.gi,
        computeInstanceId=notice.ci,
    )
    struct = target(data)
    struct.device = as_pointer(type(struct.device), Handle(HandleKind.GPU, notice.gpu, notice.epoch))


alias("nvmlEventSetWait", "nvmlEventSetWait_v2")


@on_system
def nvmlEventSetFree(session: Session, argument: Any) -> None:
    events = _set(session, argument)
    with session.lock:
        session.event_sets.pop(unpack(argument).serial, None)
        session.simulation.sets = session.simulation.sets - {events}
    events.free()
