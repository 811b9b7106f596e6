"""A running simulation: the hardware's state in memory, its clock, its timed events and its listeners.

Reads take no lock: the state is one immutable value that changes hands whole. A change takes the lock, makes the
next state, writes it to the store, shows it, and then tells the event sets. One daemon thread sleeps until the next
timed event of the fleet; nothing polls.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from simulator.control import ControlServer, read_request
from simulator.fleet import orders
from simulator.fleet.fleet import Fleet, NodeSpec
from simulator.fleet.fleetfile import load_fleet
from simulator.fleet.orders import Order, Status
from simulator.hardware import hardware as hw
from simulator.hardware import trees
from simulator.hardware.eventsets import EventSet
from simulator.hardware.hardware import GpuState, Hardware, Notice, OrderError
from simulator.hardware.status import describe
from simulator.hardware.store import Store

log = logging.getLogger(__name__)

LOCK_WAIT_S = 5.0
"""The seconds that a start waits for an agent that is still going down."""


class Simulation:
    """One node's simulated hardware, running in this process. ``simulator.install`` makes it.

    Threads read ``hardware`` without a lock: it is one immutable value. ``hardware``, ``told`` and the store are
    written under ``_changed`` alone, in the order store, ``hardware``, notices, ``told``: the stored state is never
    behind the visible one, nor that behind ``told``. ``sets``, the event sets that get notices, and ``opened``
    are replaced whole by calls in ``simulator.nvml``, under their session's lock.
    """

    def __init__(
        self,
        fleet: Fleet,
        node: NodeSpec,
        store: Store,
        *,
        sys_root: Path | None = None,
        proc_root: Path | None = None,
    ) -> None:
        """``store`` is owned by the simulation from here on, and closed with it."""
        self.fleet = replace(fleet, nodes=(node,))  # a fleet may hold thousands: the others need not stay in memory
        self.node = node
        self.sets: frozenset[EventSet] = frozenset()
        self.opened: frozenset[int] = frozenset()
        """The GPUs that NVML has open in this process."""
        self._store = store
        self._proc_root = proc_root
        self._changed = threading.Condition(threading.RLock())
        self._ended = threading.Event()
        self._closers: list[Callable[[], None]] = []
        self.hardware = self._open()
        self.told = self.hardware
        """The state up to which event sets have their notices: a wait must not find a GPU lost before it has been
        given the XID that lost it."""
        if sys_root is not None:
            trees.write_sys(sys_root, node.gpus)
        self._show_boot_id()
        self._show_instances(None, self.hardware)
        self.happen()
        self._events = threading.Thread(target=self._run_events, name="simulated-events", daemon=True)
        self._events.start()

    @property
    def node_name(self) -> str:
        """The simulated node's name in the fleet."""
        return self.node.name

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the fleet gives the node beside ``kubernetes.io/hostname``."""
        return dict(self.node.labels)

    @property
    def boot_id(self) -> str:
        """The content of ``/proc/sys/kernel/random/boot_id``."""
        return self.hardware.boot_id

    @property
    def driver_version(self) -> str:
        """The version of the driver that is loaded, or to be loaded."""
        return self.hardware.driver_version or self.fleet.driver

    def now(self) -> float:
        """The hardware's clock: seconds since it was created or booted, through all downtime of this process."""
        return max(0.0, time.time() - self.hardware.created)

    def serve(self, socket_path: Path) -> None:
        """Take orders on a Unix socket (0600) from a daemon thread."""
        server = ControlServer(socket_path, self._obey)
        self._closers.append(server.close)

    def _obey(self, line: bytes) -> dict[str, Any]:
        order = read_request(line, len(self.node.gpus))
        self.order(order)
        if isinstance(order, Status):
            return {"ok": True, "live": True, "status": describe(self.hardware, self.now())}
        return {"ok": True, "live": True}

    def on_close(self, closer: Callable[[], None]) -> None:
        """Call this when the simulation closes, last registered first."""
        self._closers.append(closer)

    def close(self) -> None:
        """End the threads and sockets, give the library and the lock back. The state file stays."""
        self._ended.set()
        with self._changed:
            self._changed.notify_all()
        self._events.join()
        while self._closers:
            self._closers.pop()()
        for events in self.sets:
            events.free()
        self._store.close()

    def pause(self, seconds: float) -> None:
        """Let a slow call take its time; closing the simulation ends it."""
        self._ended.wait(seconds)

    def order(self, order: Order) -> None:
        """Carry out an order now. Raises OrderError. A GPU that NVML has open in this process is not reset by the
        tool.
        """
        if isinstance(order, orders.Reboot):
            self._reboot()
            return
        if isinstance(order, orders.GpuReset) and order.gpu in self.opened:
            uuid = self.hardware.gpus[order.gpu].uuid
            raise OrderError(f"GPU {uuid} is currently in use by one or more other processes (the agent's own NVML)")
        self.change(lambda hardware, t: hw.apply(hardware, order, t))

    def change(self, step: Callable[[Hardware, float], hw.Outcome]) -> None:
        """Take the hardware one step further: the state is written to disk first, then seen by calls, then told to
        listeners.
        """
        with self._changed:
            after, notices = step(self.hardware, self.now())
            if after != self.hardware:
                self._store.save(after)
                self._show_instances(self.hardware, after)
                self.hardware = after
            self._tell(notices)

    def change_gpu(self, index: int, step: Callable[[GpuState, float], GpuState]) -> None:
        """Change one GPU, as ``change`` does; ``step`` may raise, and then nothing changed."""
        self.change(lambda h, t: (hw.with_gpu(h, index, step(h.gpus[index], t)), ()))

    def happen(self) -> float | None:
        """Apply the fleet's events that are due; return the clock's time of the next one, None when there is none."""
        with self._changed:
            t = self.now()
            due = [event for event in self.node.events if self.hardware.done < event.at <= t]
            for at, events in groupby(due, key=lambda event: event.at):
                self._apply_events(at, list(events))
            return next((event.at for event in self.node.events if event.at > max(t, self.hardware.done)), None)

    def _apply_events(self, at: float, events: list[orders.TimedOrders]) -> None:
        """Apply all events of one moment in one step: they happen all or, after a kill, are still to come."""

        def step(hardware: Hardware, _: float) -> hw.Outcome:
            all_notices: tuple[Notice, ...] = ()
            for order in (order for event in events for order in event.orders):
                try:
                    hardware, notices = hw.apply(hardware, order, at)
                    all_notices += notices
                except hw.OrderError as error:
                    log.warning("simulated event at %gs: %s", at, error)
            return replace(hardware, done=max(hardware.done, at)), all_notices

        self.change(step)

    def _run_events(self) -> None:
        with self._changed:
            while not self._ended.is_set():
                due = self.happen()
                left = None if due is None else min(max(0.0, due - self.now()), threading.TIMEOUT_MAX)
                self._changed.wait(left)

    def _tell(self, notices: tuple[Notice, ...]) -> None:
        for notice in notices:
            if self.node.stray_events:
                self._stray(notice)
                continue
            for events in self.sets:
                events.deliver(notice)
        self.told = self.hardware
        for events in self.sets:
            events.wake()

    def _stray(self, notice: Notice) -> None:
        """Deliver the notice to one set only: to that of another GPU where there is one."""

        def order(events: EventSet) -> tuple[bool, list[tuple[int, int]]]:
            heard = events.registrations()
            return any(gpu == notice.gpu for gpu, _ in heard), heard

        listening = sorted((events for events in self.sets if events.registrations()), key=order)
        for events in listening[:1]:
            events.stray(notice)

    def _reboot(self) -> None:
        with self._changed:
            fresh = hw.reboot(self.hardware, boot_id=str(uuid4()), created=time.time())
            self._store.save(fresh)
            self._show_instances(self.hardware, fresh)
            self.hardware = fresh
            self._show_boot_id()
            self._tell(())
            self._changed.notify_all()

    def _show_instances(self, before: Hardware | None, after: Hardware) -> None:
        if self._proc_root is None:
            return
        for i, gpu in enumerate(after.gpus):
            if before is None or before.gpus[i].mig != gpu.mig:
                trees.write_capabilities(self._proc_root, self.node.gpus[i], gpu.mig)

    def _show_boot_id(self) -> None:
        if self._proc_root is not None:
            trees.write_boot_id(self._proc_root, self.hardware.boot_id)

    def _open(self) -> Hardware:
        """The stored hardware, if the fleet file still means the same node; else new hardware."""
        identity = _digest([(g.uuid, g.product.name, len(g.links)) for g in self.node.gpus])
        loads = _digest(self.node.loads)
        stored = self._store.load()
        if stored is not None and (stored.node, stored.identity) == (self.node.name, identity):
            if stored.load_identity == loads:
                return stored
            t = max(0.0, time.time() - stored.created)
            after = hw.with_loads(stored, self.node.loads, loads, t)
        else:
            after = hw.new_hardware(
                self.node, identity=identity, load_identity=loads, boot_id=str(uuid4()), created=time.time()
            )
        self._store.save(after)
        return after


def _digest(value: object) -> str:
    return hashlib.blake2s(msgspec.json.encode(value), digest_size=16).hexdigest()


def open_simulation(
    fleet_path: Path,
    node_name: str | None,
    state_dir: Path,
    *,
    sys_root: Path | None = None,
    proc_root: Path | None = None,
) -> Simulation:
    """Read the fleet, lock and open (or create) the hardware's state, start its clock.

    Raises InputError for the fleet file, StoreError for the state.
    """
    fleet = load_fleet(fleet_path)
    node = fleet.node(node_name)
    store = Store(state_dir, wait_s=LOCK_WAIT_S)
    try:
        return Simulation(fleet, node, store, sys_root=sys_root, proc_root=proc_root)
    except BaseException:
        store.close()
        raise
