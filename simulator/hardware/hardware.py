"""The simulated hardware of one node: its whole state as frozen data, and every change as a pure function.

``apply(hardware, order, t)`` gives the next state and the notices that listeners are to get; the clock ``t`` (seconds
since the state was created or the machine booted) is handed in. The state survives the agent: the store writes it as
JSON.
"""

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from simulator.boards import faults, migstate, telemetry
from simulator.boards.boards import Product
from simulator.boards.loads import Load
from simulator.boards.migstate import MigState
from simulator.boards.products import PRODUCTS
from simulator.boards.telemetry import Meter
from simulator.fleet import orders
from simulator.fleet.fleet import GpuSpec, NodeSpec
from simulator.fleet.orders import Order

STATE_VERSION = 1

WHOLE_GPU = 0xFFFFFFFF
"""NVML's GPU (or compute) instance id of an event that hit the whole GPU."""

HISTORY = 16
"""The number of XIDs remembered for ``status``."""


class EccCounts(Struct, frozen=True):
    """ECC errors since the last reset (volatile) and ever (aggregate)."""

    volatile_corrected: int = 0
    volatile_uncorrected: int = 0
    aggregate_corrected: int = 0
    aggregate_uncorrected: int = 0


class RemappedRows(Struct, frozen=True):
    """Rows remapped (or, before Ampere, pages retired); ``pending`` ones need a reset, a ``failure`` a new board."""

    correctable: int = 0
    uncorrectable: int = 0
    pending: int = 0
    failure: bool = False


class LoggedXid(Struct, frozen=True):
    """An XID that the driver logged at ``t``."""

    t: float
    xid: int
    gi: int | None = None
    ci: int | None = None


class GpuState(Struct, frozen=True, kw_only=True):
    """One GPU. ``epoch`` grows with each reset, hot-add, driver load and reboot: handles of older epochs are dead."""

    uuid: str
    product: str
    links: int
    present: bool = True
    epoch: int = 1
    tool_resets: int = 0
    """Resets by nvidia-smi; those that a person orders of the simulation are not among them."""
    lost: bool = False
    recovery: int = faults.RECOVERY_NONE
    ecc: EccCounts = EccCounts()
    instance_ecc: dict[int, int] = {}
    remap: RemappedRows = RemappedRows()
    mig: MigState = MigState()
    compute_mode: int = 0
    persistence: bool = True
    returns: int = 0
    """The XID that each reset leaves; 0 for none."""
    power_limit_w: int | None = None
    links_down: tuple[int, ...] = ()
    nvlink_errors: int = 0
    slow: dict[str, float] = {}
    failing: dict[str, int] = {}
    loads: tuple[Load, ...] = ()
    meter: Meter = Meter()
    xids: tuple[LoggedXid, ...] = ()

    @property
    def board(self) -> Product:
        """The product's table entry."""
        return PRODUCTS[self.product]

    @property
    def limit_w(self) -> int:
        """The power limit in force, in watts."""
        return self.power_limit_w or self.board.power_w[2]

    def read_meter(self, t: float) -> Meter:
        """The energy and traffic counters at the time ``t``."""
        return telemetry.read_meter(self.meter, self.loads, self.board, self.limit_w, t)

    def activity(self, t: float) -> telemetry.Activity:
        """The activity of the whole board at the time ``t``."""
        return telemetry.activity(self.loads, self.board, self.limit_w, t)


class Hardware(Struct, frozen=True, kw_only=True):
    """One node's hardware. ``created`` is the wall-clock second that ``t`` counts from, ``done`` the ``t`` up to which
    the fleet's events have happened, ``identity`` and ``load_identity`` tell whether the fleet file still means this
    node.
    """

    version: int = STATE_VERSION
    node: str
    identity: str
    load_identity: str
    boot_id: str
    created: float
    done: float = -1.0
    driver_up: bool = True
    driver_version: str | None = None
    slow: dict[str, float] = {}
    failing: dict[str, int] = {}
    gpus: tuple[GpuState, ...] = ()


class Notice(Struct, frozen=True):
    """An NVML event for the sets that registered this GPU in this epoch. ``kind`` is nvmlEventType*."""

    gpu: int
    epoch: int
    kind: int
    data: int = 0
    gi: int = WHOLE_GPU
    ci: int = WHOLE_GPU


Outcome = tuple[Hardware, tuple[Notice, ...]]
Disturbed = TypeVar("Disturbed", GpuState, Hardware)
Value = TypeVar("Value", int, float)


class OrderError(ValueError):
    """An order that this hardware cannot follow; one line."""


def new_hardware(node: NodeSpec, *, identity: str, load_identity: str, boot_id: str, created: float) -> Hardware:
    """The hardware as the fleet describes it, just powered on."""
    return Hardware(
        node=node.name,
        identity=identity,
        load_identity=load_identity,
        boot_id=boot_id,
        created=created,
        gpus=tuple(_new_gpu(node, spec) for spec in node.gpus),
    )


def _new_gpu(node: NodeSpec, spec: GpuSpec) -> GpuState:
    mig = MigState()
    if spec.index in node.mig_enabled:
        mig = migstate.lay_out(spec.product, node.mig.get(spec.index, ()))
    return GpuState(
        uuid=spec.uuid,
        product=spec.product.name,
        links=len(spec.links),
        present=spec.present,
        mig=mig,
        loads=tuple(load for load in node.loads if load.gpu == spec.index),
    )


def with_gpu(hardware: Hardware, index: int, gpu: GpuState) -> Hardware:
    """The node with one GPU replaced."""
    gpus = list(hardware.gpus)
    gpus[index] = gpu
    return replace(hardware, gpus=tuple(gpus))


def with_loads(hardware: Hardware, loads: tuple[Load, ...], load_identity: str, t: float) -> Hardware:
    """The node with the loads of an edited fleet file from now on."""
    for i, gpu in enumerate(hardware.gpus):
        mine = tuple(load for load in loads if load.gpu == i)
        hardware = with_gpu(hardware, i, replace(gpu, meter=gpu.read_meter(t), loads=mine))
    return replace(hardware, load_identity=load_identity)


def reboot(hardware: Hardware, *, boot_id: str, created: float) -> Hardware:
    """The node after a reboot: a new clock, no faults but failed boards, no instances; Ampere keeps its MIG mode."""
    gpus = []
    for gpu in hardware.gpus:
        enabled = gpu.mig.pending and gpu.board.architecture.mig_mode_persists
        fresh = _after_reset(gpu, 0.0)
        gpus.append(
            replace(
                fresh,
                mig=MigState(enabled=enabled, pending=enabled, serial=gpu.mig.serial),
                compute_mode=0,
                power_limit_w=None,
                xids=(),
            )
        )
    return replace(
        hardware,
        gpus=tuple(gpus),
        boot_id=boot_id,
        created=created,
        done=-1.0,
        driver_up=True,
        slow={},
        failing={},
    )


def apply(hardware: Hardware, order: Order, t: float) -> Outcome:
    """The state after an order, and its notices. The caller handles Reboot, since it takes a wall clock and a new id.
    Raises OrderError.
    """
    match order:
        case orders.Driver():
            return _driver(hardware, order, t), ()
        case orders.Slow(gpu=None) | orders.Fail(gpu=None):
            return _disturbed(hardware, order), ()
        case orders.Status() | orders.Reboot():
            return hardware, ()
    index = order.gpu
    assert index is not None
    if not 0 <= index < len(hardware.gpus):
        raise OrderError(f"gpu: found {index}, expected an index from 0 to {len(hardware.gpus) - 1}")
    gpu = hardware.gpus[index]
    if not gpu.present and not isinstance(order, orders.Add):
        raise OrderError(f"gpu: found {index}, expected a GPU that is not removed")
    gpu, notices = _apply_gpu(gpu, order, t)
    return with_gpu(hardware, index, gpu), tuple(replace(notice, gpu=index) for notice in notices)


def _apply_gpu(gpu: GpuState, order: Order, t: float) -> tuple[GpuState, tuple[Notice, ...]]:
    match order:
        case orders.Xid() | orders.Ecc():
            return _xid(gpu, order, t) if isinstance(order, orders.Xid) else _ecc(gpu, order)
        case orders.Lost():
            return replace(gpu, lost=True), ()
        case orders.Remove():
            return replace(gpu, present=False), ()
        case orders.Add():
            return _added(gpu, t), ()
        case orders.Reset():
            gpu = _after_reset(gpu, t)
            mig = replace(gpu.mig, instances=()) if order.destroy_mig else gpu.mig
            return replace(gpu, mig=mig), ()
        case orders.GpuReset() | orders.Returns() | orders.Persistence():
            return _by_tool(gpu, order, t)
        case orders.RemapFailure():
            return replace(gpu, remap=replace(gpu.remap, failure=True)), ()
        case orders.NvLinkDown():
            return _links_down(gpu, order), ()
        case orders.Slow() | orders.Fail():
            return _disturbed(gpu, order), ()
        case orders.SetLoad():
            return _loaded(gpu, order, t), ()
        case orders.End():
            left = tuple(load for load in gpu.loads if load.pid != order.pid)
            return replace(gpu, meter=gpu.read_meter(t), loads=left), ()
    raise AssertionError(f"{order} is no order for a GPU")


def _by_tool(
    gpu: GpuState, order: orders.GpuReset | orders.Returns | orders.Persistence, t: float
) -> tuple[GpuState, tuple[Notice, ...]]:
    """What nvidia-smi does to the GPU, or will find. Raises OrderError."""
    match order:
        case orders.Returns():
            return replace(gpu, returns=order.xid), ()
        case orders.Persistence():
            return replace(gpu, persistence=order.on), ()
    return _reset_by_tool(gpu, t)


def _reset_by_tool(gpu: GpuState, t: float) -> tuple[GpuState, tuple[Notice, ...]]:
    """The GPU after ``nvidia-smi --gpu-reset``: MIG instances, compute mode and power limit are gone as well. Raises
    OrderError where the tool refuses, or was ordered to fail.
    """
    if gpu.lost:
        raise OrderError(f"Unable to determine the device handle for GPU {gpu.uuid}: GPU is lost")
    pids = [load.pid for load in gpu.loads if load.pid is not None]
    if pids or gpu.persistence:
        who = ", ".join(f"process {pid}" for pid in pids) or "persistence mode"
        raise OrderError(f"GPU {gpu.uuid} is currently in use by one or more other processes ({who})")
    if code := gpu.failing.get(orders.RESET_CALL):
        raise OrderError(f"GPU {gpu.uuid} could not be reset: error {code}")
    fresh = _after_reset(gpu, t)
    cut = replace(fresh.mig, instances=())
    fresh = replace(fresh, mig=cut, compute_mode=0, power_limit_w=None, tool_resets=gpu.tool_resets + 1)
    return (fresh, ()) if not gpu.returns else _xid(fresh, orders.Xid(gpu=0, xid=gpu.returns), t)


def _disturbed(of: Disturbed, order: orders.Slow | orders.Fail) -> Disturbed:
    """The node or the GPU with a call that is slow or fails from now on, or no longer."""
    if isinstance(order, orders.Slow):
        return replace(of, slow=_entered(of.slow, order.call, order.seconds))
    return replace(of, failing=_entered(of.failing, order.call, order.code))


def _entered(table: dict[str, Value], call: str, value: Value) -> dict[str, Value]:
    others = {name: each for name, each in table.items() if name != call}
    return {**others, call: value} if value else others


def _driver(hardware: Hardware, order: orders.Driver, t: float) -> Hardware:
    version = order.version or hardware.driver_version
    if not order.up:
        return replace(hardware, driver_up=False, driver_version=version)
    if hardware.driver_up and order.version is None:
        return hardware
    # A load of the module is a reset for every board: no handle survives it.
    gpus = tuple(gpu if gpu.lost or not gpu.present else _after_reset(gpu, t) for gpu in hardware.gpus)
    return replace(hardware, driver_up=True, driver_version=version, gpus=gpus)


def _after_reset(gpu: GpuState, t: float) -> GpuState:
    """The GPU after a reset, which ends every fault but a failed row remapping, and puts pending changes into force."""
    enabled = gpu.mig.pending
    return replace(
        gpu,
        epoch=gpu.epoch + 1,
        lost=False,
        recovery=faults.RECOVERY_NONE,
        ecc=replace(gpu.ecc, volatile_corrected=0, volatile_uncorrected=0),
        instance_ecc={},
        remap=replace(gpu.remap, uncorrectable=gpu.remap.uncorrectable + gpu.remap.pending, pending=0),
        mig=replace(gpu.mig, enabled=enabled, instances=gpu.mig.instances if enabled else ()),
        links_down=(),
        nvlink_errors=0,
        slow={},
        failing={},
        meter=Meter(at=t, read_at=t),
    )


def _added(gpu: GpuState, t: float) -> GpuState:
    """The board in the slot: unchanged while it was never removed, else one without history."""
    if gpu.present:
        return gpu
    return GpuState(
        uuid=gpu.uuid,
        product=gpu.product,
        links=gpu.links,
        epoch=gpu.epoch + 1,
        tool_resets=gpu.tool_resets,
        meter=Meter(at=t, read_at=t),
        mig=MigState(serial=gpu.mig.serial),
        loads=gpu.loads,
    )


def _xid(gpu: GpuState, order: orders.Xid, t: float) -> tuple[GpuState, tuple[Notice, ...]]:
    """Log the XID, notify, and leave its consequence. An XID of one GPU instance leaves the board as a whole alone."""
    gi = WHOLE_GPU if order.gi is None else order.gi
    ci = WHOLE_GPU if order.ci is None else order.ci
    left = faults.CONSEQUENCES.get(order.xid, faults.Consequence())
    logged = LoggedXid(t=t, xid=order.xid, gi=order.gi, ci=order.ci)
    scope = (0, gpu.epoch)
    notices = [Notice(*scope, kind=faults.EVENT_XID, data=order.xid, gi=gi, ci=ci)]
    if left.uncorrected:
        notices.append(Notice(*scope, kind=faults.EVENT_DOUBLE_BIT_ECC, gi=gi, ci=ci))
    gpu = _count_ecc(gpu, order.gi, uncorrected=left.uncorrected, corrected=0)
    remap = replace(
        gpu.remap,
        pending=gpu.remap.pending + left.remap_pending,
        failure=gpu.remap.failure or left.remap_failure,
    )
    whole = order.gi is None or left.lost
    gpu = replace(
        gpu,
        remap=remap,
        recovery=max(gpu.recovery, left.recovery) if whole else gpu.recovery,
        lost=gpu.lost or left.lost,
        nvlink_errors=gpu.nvlink_errors + left.nvlink_error,
        xids=(*gpu.xids, logged)[-HISTORY:],
    )
    return gpu, tuple(notices)


def _ecc(gpu: GpuState, order: orders.Ecc) -> tuple[GpuState, tuple[Notice, ...]]:
    gi = WHOLE_GPU if order.gi is None else order.gi
    notices = []
    if order.corrected:
        notices.append(Notice(0, gpu.epoch, kind=faults.EVENT_SINGLE_BIT_ECC, gi=gi))
    if order.uncorrected:
        notices.append(Notice(0, gpu.epoch, kind=faults.EVENT_DOUBLE_BIT_ECC, gi=gi))
    return _count_ecc(gpu, order.gi, uncorrected=order.uncorrected, corrected=order.corrected), tuple(notices)


def _count_ecc(gpu: GpuState, gi: int | None, *, uncorrected: int, corrected: int) -> GpuState:
    ecc = gpu.ecc
    if gi is not None:
        counts = {**gpu.instance_ecc, gi: gpu.instance_ecc.get(gi, 0) + uncorrected}
        gpu = replace(gpu, instance_ecc={key: count for key, count in counts.items() if count})
        uncorrected = 0
    return replace(
        gpu,
        ecc=EccCounts(
            volatile_corrected=ecc.volatile_corrected + corrected,
            volatile_uncorrected=ecc.volatile_uncorrected + uncorrected,
            aggregate_corrected=ecc.aggregate_corrected + corrected,
            aggregate_uncorrected=ecc.aggregate_uncorrected + uncorrected,
        ),
    )


def _links_down(gpu: GpuState, order: orders.NvLinkDown) -> GpuState:
    if any(link >= gpu.links for link in order.links):
        expected = f"links from 0 to {gpu.links - 1}" if gpu.links else "none: the GPU has no NVLink"
        raise OrderError(f"nvlinkDown: found {list(order.links)}, expected {expected}")
    return replace(gpu, links_down=order.links)


def _loaded(gpu: GpuState, order: orders.SetLoad, t: float) -> GpuState:
    others: tuple[Load, ...] = ()
    load = order.load
    if load is not None:
        others = tuple(other for other in gpu.loads if other.key != load.key)
    return replace(gpu, meter=gpu.read_meter(t), loads=(*others, load) if load is not None else ())


def validate(hardware: Hardware) -> None:
    """Recompute the invariants; AssertionError tells which broke."""
    for gpu in hardware.gpus:
        migstate.validate(gpu.mig, gpu.board)
        assert gpu.epoch > gpu.tool_resets >= 0, "an epoch before the first, or a reset without one"
        assert gpu.ecc.volatile_uncorrected <= gpu.ecc.aggregate_uncorrected, "volatile over aggregate"
        assert gpu.ecc.volatile_corrected <= gpu.ecc.aggregate_corrected, "volatile over aggregate"
        assert all(link < gpu.links for link in gpu.links_down), "a link that does not exist is down"
        assert gpu.meter.at <= gpu.meter.read_at, "a meter read before it started"
        assert len(gpu.xids) <= HISTORY, "too long a history"
