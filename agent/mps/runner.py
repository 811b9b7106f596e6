"""Runs the control daemons: carries out what the core decides and reports each result to it.

One device's work never waits for another's. An Allocate never awaits anything here: ``unready`` says which devices may
not be given, and the node state reads it whenever ``changed`` is called.
"""

import asyncio
import contextlib
import logging
import shutil
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.config.settings import MpsSettings
from agent.hardware.computemode import ComputeMode, ComputeModes
from agent.hardware.query import NvmlError
from agent.mps import folders
from agent.mps.control import Control, MpsError, run
from agent.mps.core import DaemonCore, DaemonState, Do, Lost, Work
from agent.mps.folders import SharedMemory
from agent.mps.paths import LOG_ENV, PIPE_ENV, VISIBLE_ENV, DevicePaths, device_paths
from agent.mps.process import DaemonProcess, is_running, spawn
from agent.mps.specs import DaemonSpec
from failpoints import points
from failpoints.names import Failpoint
from inventory.devices import GpuUuid

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 20.0
ANSWER_POLL_S = 0.1
CANARY_TIMEOUT_S = 60.0
QUIT_WITHIN_S = 5
CLOSE_WITHIN_S = 1.0
KILL_WITHIN_S = 5.0
_HERE = Path(__file__).parent


class Programs(Struct, frozen=True):
    """Command lines: the control program, one CUDA client, and what is put before a daemon that gets a shm folder."""

    control: tuple[str, ...]
    canary: tuple[str, ...]
    launcher: tuple[str, ...] = ()
    shared_memory: SharedMemory = SharedMemory.NONE


def programs(settings: MpsSettings, *, simulated: bool) -> Programs:
    """The command lines for the driver's own program; for simulated GPUs those for the stand-in, which is run in the
    same way.
    """
    python = (sys.executable, "-IS")
    if simulated:
        import simulator

        folder = Path(simulator.__file__).parent / "mps"
        return Programs((*python, str(folder / "mpscontrol.py")), (*python, str(folder / "mpsclient.py")))
    control, canary = (str(settings.control_program),), (*python, str(_HERE / "canary.py"))
    if not settings.private_shm:
        return Programs(control, canary, shared_memory=SharedMemory.HOST)
    return Programs(control, canary, (*python, str(_HERE / "launcher.py")), SharedMemory.PRIVATE)


class MpsDaemons:
    """The daemons of a node, below ``root``. ``changed`` is called when ``unready`` differs, ``lost`` with each loss.

    ``clock`` gives seconds that never jump.

    All state is read and written on the event loop. The core asks for one piece of work a device at a time, so that no
    two tasks work on one device's process or folders; ``_unready`` is what ``changed`` was last called for.
    """

    def __init__(
        self,
        settings: MpsSettings,
        state_dir: Path,
        root: Path,
        commands: Programs,
        clock: Callable[[], float],
        changed: Callable[[], None],
        lost: Callable[[Lost], None],
    ) -> None:
        self.settings = settings
        self.root = root
        self._state_dir = state_dir
        self._programs = commands
        self._clock = clock
        self._changed = changed
        self._lost = lost
        self._core = DaemonCore(settings.probe_interval_s)
        self._modes = ComputeModes()
        self._processes: dict[str, DaemonProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._unready: Mapping[str, str] = {}
        self._acted = asyncio.Event()
        self._swept = False
        self._closing = False

    # -- queries -----------------------------------------------------------------------------------------------------

    def unready(self) -> Mapping[str, str]:
        """The reasons why devices cannot take clients now, by physical id; devices that can are not in it."""
        return self._core.unready()

    def states(self) -> tuple[DaemonState, ...]:
        return self._core.states()

    # -- changes -----------------------------------------------------------------------------------------------------

    def want(self, specs: Iterable[DaemonSpec], *, sweep: bool) -> None:
        """Want these daemons from now on. ``sweep``: no others are wanted, so daemons that an earlier agent left may be
        ended.

        ``sweep`` is given once, when the node's GPUs are known: before that an agent wants no daemon and would end all.
        """
        leftover: list[DaemonSpec] = []
        if sweep and not self._swept:
            self._swept = True
            leftover += [_nameless(device, self.root) for device in folders.leftovers(self.root)]
        self._act(self._core.want(specs, self._clock(), leftover))

    def hold(self, devices: Iterable[str]) -> None:
        """Take the devices that pods hold now."""
        self._act(self._core.hold(devices, self._clock()))

    def reset(self, gpu: str) -> None:
        """Take in that the GPU was reset."""
        self._act(self._core.reset(gpu, self._clock()))

    async def ended(self, devices: Collection[str]) -> None:
        """Return once none of these devices has a daemon. The caller sets the deadline: a daemon that pods hold runs
        on.
        """
        while any(device in devices for state in self._core.states() for device in state.devices):
            self._acted.clear()
            await self._acted.wait()

    async def ready(self, devices: Collection[str], within_s: float) -> str:
        """Wait until all of these devices can take clients. Returns empty then, else one line why they cannot."""
        reason = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    wanted = {device for state in self._core.states() if state.wanted for device in state.devices}
                    unready = self._core.unready()
                    if wanted.issuperset(devices) and unready.keys().isdisjoint(devices):
                        return ""
                    reason = next((unready[device] for device in devices if device in unready), reason)
                    self._acted.clear()
                    await self._acted.wait()
        return reason or f"the MPS daemon was not ready in {within_s:g} s"

    async def close(self, claimed: Collection[str] = ()) -> None:
        """Leave daemons running for the next agent whose devices are held by pods, or by claims (``claimed``): a
        container has the daemon's folder mounted, with or without a client now. End the others and give their GPUs
        back.
        """
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close_one(state, claimed) for state in self._core.states()))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _act(self, work: Iterable[Do]) -> None:
        for do in work:
            task = asyncio.create_task(self._carry_out(do), name=f"mps {do.work} {do.spec.device}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for lost in self._core.take_lost():
            log.warning("MPS daemon lost", extra={"device": lost.spec.device, "reason": lost.reason})
            self._lost(lost)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_s = self._core.next_deadline_s()
        if deadline_s is not None and not self._closing:
            delay_s = max(0.0, deadline_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)
        self._acted.set()
        unready = dict(self._core.unready())
        if unready != self._unready:
            self._unready = unready
            self._changed()

    def _tick(self) -> None:
        self._act(self._core.tick(self._clock()))

    async def _carry_out(self, do: Do) -> None:
        spec = do.spec
        work: Mapping[Work, Callable[[DaemonSpec], Coroutine[Any, Any, bool]]] = {
            Work.START: self._start,
            Work.TEST: self._test,
            Work.LIMIT: self._limit,
            Work.PROBE: self._probe,
            Work.KILL: self._kill,
            Work.STOP: self._stop,
        }
        try:
            proven = await work[do.work](spec)
        except (MpsError, NvmlError, OSError) as failed:
            level = logging.INFO if do.work is Work.PROBE else logging.WARNING
            log.log(
                level,
                "MPS daemon",
                extra={"of": spec.name, "device": spec.device, "failed": do.work.value, "error": str(failed)},
            )
            self._act(self._core.failed(spec.device, do.work, str(failed), self._clock()))
            return
        if do.work is not Work.PROBE:
            log.info("MPS daemon", extra={"of": spec.name, "device": spec.device, "done": do.work.value})
        self._act(self._core.done(spec.device, do.work, spec, self._clock(), proven=proven))

    async def _start(self, spec: DaemonSpec) -> bool:
        program = self._programs.control[0]
        if shutil.which(program) is None:
            raise MpsError(f"{program} is not there: see mps.controlProgram")
        folders.open_up(self._state_dir, self.root)
        paths = folders.make(self.root, spec.device, self._programs.shared_memory, self.settings.shm_size_mib)
        control = self._control(spec.device)
        if _is_of(spec, paths) and await self._take_over(spec, paths, control):
            await control.limit(spec.threads_percent, spec.limits_mib, await control.servers())
            return bool(await control.clients())
        await self._kill(spec)
        for gpu in spec.gpus if spec.exclusive else ():
            # Remembered first: an agent that is killed between the two would take its own mode for the one from before.
            folders.remember_mode(paths, gpu, await self._modes.read(gpu))
            await self._modes.set(gpu, ComputeMode.EXCLUSIVE_PROCESS)
        mode = ["-M"] if self.settings.multi_user else []
        launcher = [*self._programs.launcher, str(paths.shm)] if self._programs.launcher else []
        pid = spawn([*launcher, *self._programs.control, "-f", *mode], self._env(spec), paths.log / folders.OUTPUT_LOG)
        process = self._watch(spec.device, pid)
        await self._await_answer(control, process, paths)
        await control.limit(spec.threads_percent, spec.limits_mib, ())
        return False

    async def _take_over(self, spec: DaemonSpec, paths: DevicePaths, control: Control) -> bool:
        """Take over the daemon of an earlier agent: True where it runs and answers."""
        if spec.device in self._processes:
            return True
        pid = folders.read_pid(paths)
        if pid is None or not is_running(pid, PIPE_ENV, paths.pipe):
            return False
        try:
            await control.ask("get_server_list")
            self._watch(spec.device, pid)
        except (MpsError, OSError):
            return False
        return True

    def _watch(self, device: str, pid: int) -> DaemonProcess:
        process = DaemonProcess(pid, lambda ended, how: self._exited(device, ended, how))
        self._processes[device] = process
        return process

    def _exited(self, device: str, process: DaemonProcess, how: str) -> None:
        # A server that outlives its daemon holds the GPU and would admit no client.
        process.kill_group()
        if self._processes.get(device) is process:
            del self._processes[device]
            if not self._closing:
                self._act(self._core.exited(device, how, self._clock()))

    async def _await_answer(self, control: Control, process: DaemonProcess, paths: DevicePaths) -> None:
        deadline_s = self._clock() + ANSWER_WITHIN_S
        while True:
            try:
                await control.ask("get_server_list")
            except MpsError as silent:
                if process.ended.is_set():
                    raise MpsError(f"the MPS daemon ended at once: {last_line(paths) or silent}") from None
                if self._clock() >= deadline_s:
                    raise MpsError(f"the MPS daemon did not answer within {ANSWER_WITHIN_S:g} s: {silent}") from None
                await process.wait(ANSWER_POLL_S)
            else:
                return

    async def _test(self, spec: DaemonSpec) -> bool:
        if self.settings.canary:
            await run(self._programs.canary, self._env(spec), timeout_s=CANARY_TIMEOUT_S)
        return False

    async def _limit(self, spec: DaemonSpec) -> bool:
        control = self._control(spec.device)
        await control.limit(spec.threads_percent, spec.limits_mib, await control.servers())
        return False

    async def _probe(self, spec: DaemonSpec) -> bool:
        folders.trim_logs(device_paths(self.root, spec.device))
        await self._control(spec.device).ask("get_server_list")
        return False

    async def _kill(self, spec: DaemonSpec) -> bool:
        process = self._processes.pop(spec.device, None)
        if process is None:
            # The daemon hangs, or a killed agent left it.
            pid = folders.read_pid(device_paths(self.root, spec.device))
            if pid is None or not is_running(pid, PIPE_ENV, device_paths(self.root, spec.device).pipe):
                return False
            with contextlib.suppress(OSError):
                process = DaemonProcess(pid, lambda *_: None)
        if process is not None:
            process.kill_group()
            if not await process.wait(KILL_WITHIN_S):
                process.release()
                raise MpsError(f"the MPS daemon (pid {process.pid}) cannot be killed")
        return False

    async def _stop(self, spec: DaemonSpec) -> bool:
        await self._end(spec.device, QUIT_WITHIN_S)
        return False

    async def _end(self, device: str, within_s: float) -> None:
        """Ask the daemon to quit, then kill it; restore compute mode and folders. Raises MpsError."""
        paths = device_paths(self.root, device)
        spec = _nameless(device, self.root)
        if device not in self._processes:
            await self._take_over(spec, paths, self._control(device))
        process = self._processes.get(device)
        if process is not None:
            points.before(Failpoint.MPS_ENDED)
            with contextlib.suppress(MpsError):
                await self._control(device).ask(f"quit -t {int(within_s)}", within_s + 1)
            points.after(Failpoint.MPS_ENDED)
            await process.wait(within_s)
        await self._kill(spec)
        for gpu, mode in folders.remembered_modes(paths).items():
            try:
                await self._modes.set(GpuUuid(gpu), mode)
            except NvmlError as failed:
                # The GPU is in MIG mode, or lost: it has no compute mode to give back.
                log.warning("MPS daemon", extra={"device": gpu, "failed": "compute mode", "error": str(failed)})
        folders.remove(paths)

    async def _close_one(self, state: DaemonState, claimed: Collection[str]) -> None:
        device, process = state.device, self._processes.get(state.device)
        held = self._core.is_held(device) or any(each in claimed for each in state.devices)
        if process is not None and not held:
            with contextlib.suppress(MpsError):
                held = bool(await self._control(device).clients())
        if held:
            if process is not None:
                process.release()
            return
        try:
            await self._end(device, CLOSE_WITHIN_S)
        except (MpsError, OSError) as failed:
            log.warning("MPS left as it is", extra={"device": device, "error": str(failed)})

    def _control(self, device: str) -> Control:
        return Control(self._programs.control, self._env(_nameless(device)))

    def _env(self, spec: DaemonSpec) -> dict[str, str]:
        paths = device_paths(self.root, spec.device)
        return {PIPE_ENV: str(paths.pipe), LOG_ENV: str(paths.log), VISIBLE_ENV: ",".join(spec.devices)}


def last_line(paths: DevicePaths) -> str:
    """The last line of a daemon's log."""
    for path in (paths.log / folders.OUTPUT_LOG, paths.control_log):
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1][-200:]
    return ""


def _is_of(spec: DaemonSpec, paths: DevicePaths) -> bool:
    """Whether a daemon of an earlier agent serves the devices of ``spec``; a daemon of one device always does."""
    pid = folders.read_pid(paths) if spec.several else None
    return pid is None or is_running(pid, VISIBLE_ENV, ",".join(spec.devices))


def _nameless(device: str, root: Path | None = None) -> DaemonSpec:
    """The spec of a daemon that is known by its folder alone; with ``root`` its other GPUs are looked up there."""
    devices = folders.members(device_paths(root, device)) if root is not None else (device,)
    several = tuple(map(GpuUuid, devices)) if len(devices) > 1 else ()
    return DaemonSpec(device=device, gpu=GpuUuid(device), name=device, clients=0, several=several)
