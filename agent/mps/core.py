"""The state machine of every MPS control daemon: it takes wanted daemons and events, and gives the work to do next.

    wanted(specs), held(devices), done/failed/exited/reset(device), tick  ->  tuple of Do

A daemon goes Starting -> Testing -> Ready, and from anywhere through Waiting (a growing pause) back to Starting. It is
Ready only after its limits were set, read back, and a client got through. One thing is done for a device at a time:
every Do is answered by ``done`` or ``failed``. A daemon that is no longer wanted runs on while its clients' pods hold
the device, then it is stopped. The core is synchronous, without I/O; times are seconds of a clock that never jumps.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from agent.mps.specs import DaemonSpec

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
STEADY_S = 120.0
"""The seconds as Ready after which a daemon starts with the shortest pause again."""
FAILED_PROBES = 3
"""The number of failed answers in a row after which a Ready daemon counts as hung."""


class Phase(StrEnum):
    """The phase of a daemon."""

    STARTING = "Starting"
    TESTING = "Testing"
    READY = "Ready"
    WAITING = "Waiting"
    STOPPING = "Stopping"
    REFUSED = "Refused"


class Work(StrEnum):
    """A kind of work for a device."""

    START = "start"
    """Take over the daemon that runs, else make folders, compute mode and process; then set limits and read
    them back.
    """
    TEST = "test"
    """Send one client through, as a pod's would be."""
    LIMIT = "limit"
    """Set other limits on a daemon that goes on running."""
    PROBE = "probe"
    """Ask whether the daemon answers."""
    KILL = "kill"
    """End what is left of the daemon, at once; folders and compute mode stay."""
    STOP = "stop"
    """End the daemon in good order, give back compute mode and folders."""


class Do(Struct, frozen=True):
    """One piece of work, answered by ``done`` or ``failed`` with the same work and device."""

    work: Work
    spec: DaemonSpec


class Lost(Struct, frozen=True):
    """A Ready daemon has failed: its clients should be told."""

    spec: DaemonSpec
    reason: str
    restarts: int


class DaemonState(Struct, frozen=True):
    """One daemon as people see it. ``since_s`` is when the phase began."""

    device: str
    name: str
    phase: Phase
    reason: str
    since_s: float
    restarts: int
    wanted: bool
    devices: tuple[str, ...] = ()
    """The physical ids of the devices that the daemon serves."""


class _Daemon:
    def __init__(self, spec: DaemonSpec, now_s: float) -> None:
        self.spec = spec
        self.wanted = True
        self.phase = Phase.STARTING
        self.reason = "the MPS daemon is being started"
        self.since_s = now_s
        self.work: Work | None = None
        self.then: Work | None = None
        """The work to do as soon as the present work has been answered."""
        self.applied: DaemonSpec | None = None
        """The spec whose limits the process has; None while there is no process to rely on."""
        self.pause_s = FIRST_PAUSE_S
        self.next_s = 0.0
        """The time at which the pause is over (Waiting), or the next probe is due (Ready)."""
        self.misses = 0
        self.restarts = 0
        self.has: frozenset[str] = frozenset()
        """The devices that were set up for the daemon and not given back: no other daemon may start on them."""

    @property
    def outgrown(self) -> bool:
        """Whether the daemon was started for other devices than it is to serve."""
        devices = self.spec.devices
        return (bool(self.has) and self.has != set(devices)) or (
            self.applied is not None and self.applied.devices != devices
        )

    def enter(self, phase: Phase, reason: str, now_s: float) -> None:
        if phase is not self.phase:
            self.since_s = now_s
        self.phase, self.reason = phase, reason

    def change(self, spec: DaemonSpec, now_s: float) -> None:
        """Take other settings: they end a pause and a refusal, whatever work is under way."""
        self.spec = spec
        if self.phase is Phase.WAITING:
            self.next_s = now_s
        elif self.phase is Phase.REFUSED and not spec.refused:
            self.start_again(now_s)

    def start_again(self, now_s: float) -> None:
        self.enter(Phase.STARTING, f"the MPS daemon is being started after: {self.reason}"[:200], now_s)


class DaemonCore:
    """All daemons of a node. ``probe_interval_s`` is the time between two probes of a Ready one.

    A daemon's ``work`` is the one piece that was asked for and not answered yet, or None. While ``then`` is set the
    answer of that work no longer counts, and ``then`` comes next. ``applied`` is None while there is no process to rely
    on. ``reason`` is empty exactly while the daemon is Ready. No device is in the ``has`` of two daemons: one whose
    devices another still has waits for that one's end, and one that is to serve other devices than before is ended
    first, once no pod holds any of them. ``validate`` holds these.
    """

    def __init__(self, probe_interval_s: float = 10.0) -> None:
        self.probe_interval_s = probe_interval_s
        self._daemons: dict[str, _Daemon] = {}
        self._held: frozenset[str] | None = None
        """The devices that pods hold; None until the kubelet was asked, and until then every device counts as held."""
        self._lost: list[Lost] = []

    # -- queries -----------------------------------------------------------------------------------------------------

    def unready(self) -> Mapping[str, str]:
        """The reasons why wanted devices cannot serve clients now, by device; ready devices are not in it."""
        reasons: dict[str, str] = {}
        for daemon in self._daemons.values():
            applied = daemon.applied if daemon.wanted and daemon.phase is Phase.READY else None
            for device in daemon.spec.devices if daemon.wanted else ():
                if applied is None:
                    reasons[device] = daemon.reason
                elif device not in applied.devices:
                    reasons[device] = "its MPS daemon is started anew with it when no pod holds a device of that daemon"
        return reasons

    def is_held(self, device: str) -> bool:
        """Whether pods hold a device of the daemon that is filed under ``device``, or may hold one while that is not
        known.
        """
        daemon = self._daemons.get(device)
        return daemon is not None and self._is_held(daemon)

    def states(self) -> tuple[DaemonState, ...]:
        return tuple(
            DaemonState(
                device,
                daemon.spec.name,
                daemon.phase,
                daemon.reason,
                daemon.since_s,
                daemon.restarts,
                daemon.wanted,
                daemon.spec.devices,
            )
            for device, daemon in self._daemons.items()
        )

    def next_deadline_s(self) -> float | None:
        """The time at which ``tick`` has something to do, unless an event comes before."""
        due = [
            daemon.next_s
            for daemon in self._daemons.values()
            if daemon.work is None and daemon.phase in (Phase.WAITING, Phase.READY)
        ]
        return min(due, default=None)

    def take_lost(self) -> tuple[Lost, ...]:
        """The daemons lost since the last call."""
        lost, self._lost = tuple(self._lost), []
        return lost

    # -- events ------------------------------------------------------------------------------------------------------

    def want(self, specs: Iterable[DaemonSpec], now_s: float, leftover: Iterable[DaemonSpec] = ()) -> tuple[Do, ...]:
        """Want these daemons and no others from now on. ``leftover``: daemons of an earlier agent, taken over where
        they are wanted or held, else stopped.
        """
        before = {spec.device: spec for spec in leftover}
        had = {device for daemon in self._daemons.values() for device in daemon.has}
        for device, spec in before.items():
            earlier = self._daemons.setdefault(device, _Daemon(spec, now_s))
            # Another daemon's folder says more of a device than a note that this one was once set up for it.
            earlier.has |= {found for found in spec.devices if found == device or found not in before} - had
            had |= earlier.has
        wanted = {spec.device: spec for spec in specs}
        for device, daemon in self._daemons.items():
            daemon.wanted = device in wanted
        for device, spec in wanted.items():
            known = self._daemons.get(device)
            if known is None:
                self._daemons[device] = _Daemon(spec, now_s)
            elif known.spec != spec:
                known.change(spec, now_s)
        return self._next(now_s)

    def hold(self, devices: Iterable[str], now_s: float) -> tuple[Do, ...]:
        """Take the devices that pods hold now."""
        self._held = frozenset(devices)
        return self._next(now_s)

    def done(self, device: str, work: Work, spec: DaemonSpec, now_s: float, *, proven: bool = False) -> tuple[Do, ...]:
        """Record that the work succeeded, with this spec. ``proven``: the daemon was taken over while it served
        clients.
        """
        daemon = self._answered(device, work)
        if daemon is None:
            return self._next(now_s)
        if daemon.then is not None:
            pass  # the daemon ended meanwhile: the result of this work no longer counts
        elif work is Work.START:
            daemon.applied = spec
            if proven:
                # A test client would wait for the connected clients, if they are another user's.
                self._ready(daemon, now_s)
            else:
                daemon.enter(Phase.TESTING, "the MPS daemon is being tried with a client", now_s)
        elif work is Work.TEST:
            self._ready(daemon, now_s)
        elif work is Work.LIMIT:
            daemon.applied = spec
        elif work is Work.PROBE:
            daemon.misses, daemon.next_s = 0, now_s + self.probe_interval_s
        elif work is Work.STOP:
            self._stopped(daemon, now_s)
        return self._next(now_s)

    def failed(self, device: str, work: Work, reason: str, now_s: float) -> tuple[Do, ...]:
        """Record that the work did not succeed; ``reason`` is one line."""
        daemon = self._answered(device, work)
        if daemon is None or daemon.then is not None:
            return self._next(now_s)
        if work is Work.PROBE:
            daemon.misses, daemon.next_s = daemon.misses + 1, now_s + min(1.0, self.probe_interval_s)
            if daemon.misses >= FAILED_PROBES:
                self._fall(daemon, f"the MPS daemon does not answer: {reason}", now_s)
        elif work is Work.STOP:
            self._stopped(daemon, now_s)
        elif work is not Work.KILL:
            # After a failed limit the limits are unknown: the daemon is as good as gone.
            self._fall(daemon, reason, now_s)
        return self._next(now_s)

    def exited(self, device: str, reason: str, now_s: float) -> tuple[Do, ...]:
        """Record that the daemon's process has ended, unasked."""
        daemon = self._daemons.get(device)
        if daemon is not None and daemon.applied is not None and daemon.phase is not Phase.STOPPING:
            # The servers that the daemon started may outlive it.
            self._fall(daemon, reason, now_s)
        return self._next(now_s)

    def reset(self, gpu: str, now_s: float) -> tuple[Do, ...]:
        """Record that the GPU was reset: a server that ran before has lost its context."""
        for daemon in self._daemons.values():
            if gpu in daemon.spec.gpus and daemon.applied is not None and daemon.phase is not Phase.STOPPING:
                self._fall(daemon, "the GPU was reset", now_s)
        return self._next(now_s)

    def tick(self, now_s: float) -> tuple[Do, ...]:
        return self._next(now_s)

    def validate(self) -> None:
        """Check the invariants of every daemon."""
        for device, daemon in self._daemons.items():
            assert daemon.spec.device == device, f"{device} is filed under another name"
            assert FIRST_PAUSE_S <= daemon.pause_s <= LONGEST_PAUSE_S, "a pause out of bounds"
            assert 0 <= daemon.misses <= FAILED_PROBES, "misses out of bounds"
            ready = daemon.phase is Phase.READY
            assert not ready or daemon.applied is not None, "ready without a process"
            assert not ready or not daemon.reason, "ready with an excuse"
            assert ready or daemon.reason, f"{daemon.phase} without a reason"
            assert daemon.phase is not Phase.WAITING or daemon.applied is None, "waiting beside a process"
            assert daemon.phase is not Phase.REFUSED or daemon.spec.refused, "refused without a reason"
            held = self._is_held(daemon)
            assert daemon.wanted or held or daemon.work is not None, "a daemon without a use goes on"
            assert daemon.applied is None or set(daemon.applied.devices) <= daemon.has, "a device that was not set up"
        had = [device for daemon in self._daemons.values() for device in daemon.has]
        assert len(had) == len(set(had)), "two daemons have one device"
        unready = self.unready()
        for daemon in self._daemons.values():
            are_unready = [device in unready for device in daemon.spec.devices]
            assert not daemon.wanted or all(are_unready) or daemon.phase is Phase.READY, "readiness told wrongly"
            same = daemon.applied is not None and daemon.applied.devices == daemon.spec.devices
            ready = same and daemon.phase is Phase.READY
            assert not daemon.wanted or not ready or not any(are_unready), "readiness told wrongly"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _answered(self, device: str, work: Work) -> _Daemon | None:
        daemon = self._daemons.get(device)
        if daemon is None or daemon.work is not work:
            return None
        daemon.work = None
        return daemon

    def _ready(self, daemon: _Daemon, now_s: float) -> None:
        daemon.enter(Phase.READY, "", now_s)
        daemon.misses, daemon.next_s = 0, now_s + self.probe_interval_s

    def _fall(self, daemon: _Daemon, reason: str, now_s: float) -> None:
        """Begin a back-off pause, with a new start after it."""
        if daemon.phase is Phase.READY:
            if now_s - daemon.since_s >= STEADY_S:
                daemon.pause_s = FIRST_PAUSE_S
            self._lost.append(Lost(daemon.spec, reason, daemon.restarts))
        daemon.restarts += 1
        daemon.applied = None
        daemon.misses = 0
        daemon.enter(Phase.WAITING, reason, now_s)
        daemon.next_s = now_s + daemon.pause_s
        daemon.pause_s = min(LONGEST_PAUSE_S, daemon.pause_s * 2)
        daemon.then = Work.KILL

    def _stopped(self, daemon: _Daemon, now_s: float) -> None:
        """Drop a daemon that has ended. One that is wanted again meanwhile begins at Starting."""
        del self._daemons[daemon.spec.device]
        if daemon.wanted:
            self._daemons[daemon.spec.device] = _Daemon(daemon.spec, now_s)

    def _next(self, now_s: float) -> tuple[Do, ...]:
        due = []
        for daemon in list(self._daemons.values()):
            if daemon.work is not None:
                continue
            work, daemon.then = daemon.then or self._choose(daemon, now_s), None
            if work is not None:
                daemon.work = work
                if work is Work.START:
                    daemon.has |= set(daemon.spec.devices)
                due.append(Do(work, daemon.spec))
        return tuple(due)

    def _choose(self, daemon: _Daemon, now_s: float) -> Work | None:
        held = self._is_held(daemon)
        if daemon.phase is Phase.STOPPING or not (held or (daemon.wanted and not daemon.outgrown)):
            daemon.applied = None
            daemon.enter(Phase.STOPPING, "the MPS daemon is being stopped", now_s)
            return Work.STOP
        if daemon.spec.refused:
            return self._refuse(daemon, now_s, held=held)
        if not daemon.wanted and self._held is None and daemon.applied is None:
            return None
        if daemon.phase is Phase.WAITING and now_s >= daemon.next_s:
            daemon.start_again(now_s)
        if daemon.phase is Phase.STARTING:
            return None if self._waits(daemon, now_s) else Work.START
        if daemon.phase is Phase.TESTING:
            return Work.TEST
        if daemon.phase is Phase.READY and daemon.applied != daemon.spec and not daemon.outgrown:
            return Work.LIMIT
        return Work.PROBE if daemon.phase is Phase.READY and now_s >= daemon.next_s else None

    def _is_held(self, daemon: _Daemon) -> bool:
        return self._held is None or not self._held.isdisjoint(daemon.has or daemon.spec.devices)

    def _waits(self, daemon: _Daemon, now_s: float) -> bool:
        """Whether another daemon still has one of its devices."""
        for other in self._daemons.values():
            if other is not daemon and not other.has.isdisjoint(daemon.spec.devices):
                daemon.enter(Phase.STARTING, f"the MPS daemon of {other.spec.name} has to end first", now_s)
                return True
        return False

    @staticmethod
    def _refuse(daemon: _Daemon, now_s: float, *, held: bool) -> Work | None:
        """Refuse settings that cannot hold: no new client is admitted, and the running ones may end."""
        daemon.enter(Phase.REFUSED, f"no MPS daemon: {daemon.spec.refused}", now_s)
        if daemon.applied is None or held:
            return None
        daemon.applied = None
        return Work.KILL
