"""One process's use of NVML: initialised or not, its event sets and samples, and the view of a device in a call.

Functions are registered by their C name with one of four decorators, which make the checks that all NVML functions
make in the same order: initialised, driver loaded, handle valid, (slow calls take their time, failing ones fail), GPU
there and alive.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from simulator.boards import migstate, telemetry
from simulator.boards.boards import Product
from simulator.boards.loads import Load
from simulator.boards.migprofiles import MigProfile
from simulator.boards.migstate import ComputeInstance, GpuInstance
from simulator.fleet.fleet import GpuSpec
from simulator.fleet.orders import EVERY_CALL
from simulator.hardware.eventsets import EventSet
from simulator.hardware.hardware import GpuState, Hardware
from simulator.nvml import codes
from simulator.nvml.arguments import Handle, HandleKind, unpack
from simulator.nvml.codes import NvmlError
from simulator.simulation import Simulation


class Session:
    """One process's NVML session. Every method may be called from any thread.

    The calls in ``simulator.nvml`` write the fields, whole or under ``lock``:

    - ``initialised``: calls of nvmlInit without their nvmlShutdown; ``system`` writes it under ``lock``.
    - ``event_sets``: those not freed, by serial; ``events`` and, at the last shutdown, ``system`` write it under
      ``lock``, together with ``Simulation.sets``, which has the same sets of this session.
    - ``samples``: GPM samples not freed, by serial; ``gpm`` replaces one entry in one step, ``system`` clears it.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.lock = threading.Lock()
        self.initialised = 0
        self.event_sets: dict[int, EventSet] = {}
        self.samples: dict[int, Any] = {}
        self._serial = 0

    @property
    def hardware(self) -> Hardware:
        """The present state."""
        return self.simulation.hardware

    def next_serial(self) -> int:
        """A serial for an event set or a sample."""
        with self.lock:
            self._serial += 1
            return self._serial

    def check(self) -> None:
        """Make the checks that every call makes first."""
        if not self.initialised:
            raise NvmlError(codes.UNINITIALIZED)
        if not self.hardware.driver_up:
            raise NvmlError(codes.DRIVER_NOT_LOADED)

    def delay(self, call: str, gpu: int | None = None) -> None:
        """Take as long as an order said that the call takes, on that GPU or everywhere. Raises the code with which an
        order said that it fails.
        """
        hardware = self.hardware
        of_gpu = hardware.gpus[gpu] if gpu is not None and gpu < len(hardware.gpus) else None
        if hardware.slow or (of_gpu and of_gpu.slow):
            tables = (hardware.slow, of_gpu.slow if of_gpu else {})
            seconds = max(table.get(name, 0.0) for table in tables for name in (call, EVERY_CALL))
            if seconds > 0:
                self.simulation.pause(seconds)
        self._fail(call, gpu)

    def delay_wait(self, call: str, gpus: Iterable[int]) -> None:
        """Take as long as an order said for this very call on one of these GPUs: ``*`` is for calls with a handle."""
        seconds = max((self.hardware.gpus[gpu].slow.get(call, 0.0) for gpu in gpus), default=0.0)
        if seconds > 0:
            self.simulation.pause(seconds)

    def _fail(self, call: str, gpu: int | None) -> None:
        """Raise the code with which the call is to fail, if any. The state is read anew: a call may have begun to fail
        while it took its time.
        """
        hardware = self.hardware
        of_gpu = hardware.gpus[gpu].failing if gpu is not None and gpu < len(hardware.gpus) else {}
        if not hardware.failing and not of_gpu:
            return
        for table in (of_gpu, hardware.failing):
            for name in (call, EVERY_CALL):
                if name in table:
                    raise NvmlError(table[name])

    def present(self) -> list[int]:
        """The GPUs in NVML's index order."""
        return [i for i, gpu in enumerate(self.hardware.gpus) if gpu.present]

    def open_gpu(self, index: int) -> Handle:
        """A handle of the present epoch. Raises GPU_IS_LOST for a lost GPU."""
        gpu = self.hardware.gpus[index]
        if gpu.lost:
            raise NvmlError(codes.GPU_IS_LOST)
        with self.lock:
            # NVML opens the device file with the first handle, and closes it at the last shutdown alone.
            self.simulation.opened |= {index}
        return Handle(HandleKind.GPU, index, gpu.epoch)


class Device:
    """A device during one call: the GPU, or a part of it that the handle named. The state is one snapshot."""

    def __init__(self, session: Session, handle: Handle) -> None:
        """Raises GPU_IS_LOST for a lost or removed GPU and for a handle of an older epoch."""
        if handle.gpu >= len(session.hardware.gpus):
            raise NvmlError(codes.INVALID_ARGUMENT)
        self.session = session
        self.handle = handle
        self.spec: GpuSpec = session.simulation.node.gpus[handle.gpu]
        self.state: GpuState = session.hardware.gpus[handle.gpu]
        self.t = session.simulation.now()
        self._meter: telemetry.Meter | None = None
        self.gi: GpuInstance | None = None
        self.ci: ComputeInstance | None = None
        if not self.state.present or self.state.lost or self.state.epoch & 0xFFFFF != handle.epoch:
            raise NvmlError(codes.GPU_IS_LOST)
        if handle.kind != HandleKind.GPU:
            self._find_instance()

    def _find_instance(self) -> None:
        serial = self.handle.serial
        for gi in self.state.mig.instances:
            if self.handle.kind == HandleKind.GPU_INSTANCE:
                if gi.serial == serial:
                    self.gi = gi
                    return
                continue
            for ci in gi.computes:
                if ci.serial == serial:
                    self.gi, self.ci = gi, ci
                    return
        raise NvmlError(codes.NOT_FOUND if self.handle.kind == HandleKind.MIG_DEVICE else codes.INVALID_ARGUMENT)

    @property
    def index(self) -> int:
        """The GPU's index in the fleet (NVML's own index shifts when others are removed)."""
        return self.handle.gpu

    @property
    def product(self) -> Product:
        """The board's product."""
        return self.spec.product

    @property
    def is_mig(self) -> bool:
        """Whether the handle is a MIG device's."""
        return self.handle.kind == HandleKind.MIG_DEVICE

    @property
    def instance(self) -> tuple[GpuInstance, ComputeInstance]:
        """The MIG device's two instances. Raises INVALID_ARGUMENT for a GPU."""
        if self.gi is None or self.ci is None:
            raise NvmlError(codes.INVALID_ARGUMENT)
        return self.gi, self.ci

    @property
    def profile(self) -> MigProfile:
        """The profile of the GPU instance."""
        assert self.gi is not None
        return migstate.profile_of(self.product, self.gi)

    @property
    def gpu_handle(self) -> Handle:
        """The whole GPU's handle."""
        return Handle(HandleKind.GPU, self.index, self.state.epoch)

    def activity(self) -> telemetry.Activity:
        """The present activity of the GPU, or of the GPU instance behind the handle."""
        return telemetry.activity(self._loads(), self.product, self.state.limit_w, self.t)

    def memory_used_mib(self) -> float:
        """The used memory in MiB. It is read by itself: the whole activity would be most of what a probe costs."""
        return telemetry.memory_used_mib(self._loads(), self.t)

    def _loads(self) -> tuple[Load, ...]:
        if self.gi is None:
            return self.state.loads
        return tuple(load for load in self.state.loads if load.gi == self.gi.id)

    @property
    def meter(self) -> telemetry.Meter:
        """The GPU's counters at the moment of the call, read once: a call for field values asks for many of them."""
        if self._meter is None:
            self._meter = self.state.read_meter(self.t)
        return self._meter

    def mig_uuid(self, gi: GpuInstance, ci: ComputeInstance) -> str:
        """The UUID of one of the GPU's MIG devices."""
        return migstate.uuid(self.spec.uuid, gi.id, ci.id)

    def refuse_mig_mode(self) -> None:
        """Raise NOT_SUPPORTED while MIG mode is on: the driver does not give figures of the whole GPU then."""
        if self.state.mig.enabled:
            raise NvmlError(codes.NOT_SUPPORTED)

    def need(self, supported: object) -> None:
        """Raise NOT_SUPPORTED unless the board has the feature."""
        if not supported:
            raise NvmlError(codes.NOT_SUPPORTED)

    def change(self, step: Callable[[GpuState, float], GpuState]) -> None:
        """Change this GPU's state; refuses with RESET_REQUIRED while the GPU waits for a reset."""
        if self.state.recovery:
            raise NvmlError(codes.RESET_REQUIRED)
        self.session.simulation.change_gpu(self.index, step)


Body = Callable[..., bytes | None]

FUNCTIONS: dict[str, Body] = {}
"""Every simulated function by its C name; the first argument is the session."""

MigHandles = Literal["refuse", "parent", "own"]
"""A function's handling of a MIG device's handle: NOT_SUPPORTED, the parent's answer, or its own."""


def bare(function: Body) -> Body:
    """Register a function that makes its own checks: ``function(session, *arguments)``."""
    FUNCTIONS[function.__name__] = function
    return function


def on_system(function: Body) -> Body:
    """Register a function without a device: ``function(session, *arguments)``."""
    name = function.__name__

    def body(session: Session, *arguments: Any) -> bytes | None:
        session.delay(name)
        session.check()
        return function(session, *arguments)

    FUNCTIONS[name] = body
    return function


def _on_handle(function: Body, kinds: tuple[HandleKind, ...], mig: MigHandles) -> Body:
    name = function.__name__

    def body(session: Session, argument: Any, *arguments: Any) -> bytes | None:
        session.check()
        handle = unpack(argument)
        if handle.kind not in kinds:
            raise NvmlError(codes.INVALID_ARGUMENT)
        session.delay(name, handle.gpu)
        session.check()
        device = Device(session, handle)
        if handle.kind == HandleKind.MIG_DEVICE:
            if mig == "refuse":
                raise NvmlError(codes.NOT_SUPPORTED)
            if mig == "parent":
                device = Device(session, device.gpu_handle)
        return function(device, *arguments)

    FUNCTIONS[name] = body
    return function


def on_device(mig: MigHandles = "refuse") -> Callable[[Body], Body]:
    """Register a function of a device: ``function(device, *arguments)``."""
    return lambda function: _on_handle(function, (HandleKind.GPU, HandleKind.MIG_DEVICE), mig)


def on_gpu_instance(function: Body) -> Body:
    """Register a function of a GPU instance: ``function(device, *arguments)`` with ``device.gi`` set."""
    return _on_handle(function, (HandleKind.GPU_INSTANCE,), "own")


def on_compute_instance(function: Body) -> Body:
    """Register a function of a compute instance: ``function(device, *arguments)`` with ``gi`` and ``ci`` set."""
    return _on_handle(function, (HandleKind.COMPUTE_INSTANCE,), "own")


def alias(name: str, of: str) -> None:
    """Register a second C name of a function."""
    FUNCTIONS[name] = FUNCTIONS[of]
