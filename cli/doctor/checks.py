"""The checks of a node, each of which reports one line a fault. ``tessera doctor`` runs them all.

A check reads files, sockets and processes and changes nothing. A check that cannot find out reports nothing: a guess is
worse than no finding.
"""

import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from msgspec import Struct

from agent.config.settings import Settings
from agent.hardware.computemode import ComputeMode, read_compute_modes
from agent.mps import folders
from agent.mps.core import Phase
from agent.mps.paths import PIPE_ENV, device_paths, root_problem
from agent.mps.process import is_running
from agent.report import NodeReport
from cli.words import doctor as say
from inventory.layout.entries import mode_of, needs_mps
from inventory.layout.sharing import SharingMode

OK, WARNING, ERROR = "ok", "warning", "error"
_CONTAINERD = Path("/etc/containerd/config.toml")
_TAIL_BYTES = 256 << 10
_ASK_TIMEOUT_S = 10.0


class Finding(Struct, frozen=True):
    """One line about one fact. ``advice`` is the next step, empty where there is no fault."""

    check: str
    level: str
    text: str
    advice: str = ""


class Patient(Struct, frozen=True):
    """The node that is examined. ``report`` is the running agent's own; ``silence`` is why there is none. Tests set the
    roots.
    """

    settings: Settings
    report: NodeReport | None
    silence: str = ""
    control: tuple[str, ...] = ("nvidia-cuda-mps-control",)
    containerd: Path = _CONTAINERD
    default_pipe: Path = Path("/tmp/nvidia-mps")  # noqa: S108 - CUDA's own default

    @property
    def simulated(self) -> bool:
        return self.settings.simulate is not None

    @property
    def wants_mps(self) -> bool:
        replication = self.settings.layout.replication
        if replication is not None and replication.mode is SharingMode.MPS:
            return True
        return any(needs_mps(mode_of(entry)) for entry in self.settings.gpu_layout.entries) or bool(
            self.report and self.report.mps
        )


Check = Callable[[Patient], Iterator[Finding]]


def agent(patient: Patient) -> Iterator[Finding]:
    """Whether the agent runs, and the faults that it reports."""
    report = patient.report
    if report is None:
        yield Finding("agent", ERROR, say.silent(patient.silence), say.start_agent())
        return
    yield Finding("agent", OK, say.runs(report.version))
    for problem in report.problems:
        yield Finding("agent", WARNING, problem, say.own_word())
    for server in report.servers:
        if not server.registered:
            text = say.not_registered(server.resource, server.last_error or "")
            yield Finding("kubelet", ERROR, text, say.see_kubelet())


def driver(patient: Patient) -> Iterator[Finding]:
    """Whether NVML answers."""
    if patient.report is not None and patient.report.driver_up:
        node = patient.report.node
        yield Finding("driver", OK, say.driver_answers(node.driver_version, len(node.gpus)))
    elif not patient.simulated and not Path("/dev/nvidiactl").exists():
        yield Finding("driver", ERROR, say.no_driver(), say.load_driver())
    elif patient.report is not None:
        yield Finding("driver", ERROR, say.no_session(), say.ask_nvidia_smi())


def kubelet(patient: Patient) -> Iterator[Finding]:
    """Whether the kubelet's sockets are there, and whether another device plugin serves GPUs to it."""
    folder = patient.settings.device_plugins_dir
    registration = patient.settings.registration_socket
    if registration is not None:
        if _listens(registration):
            yield Finding("kubelet", OK, say.answers(registration))
        else:
            yield Finding("kubelet", ERROR, say.nothing_listens(registration), say.start_kubelet())
    pods = patient.settings.kubelet_dir / "pod-resources/kubelet.sock"
    if not _listens(pods):
        yield Finding("kubelet", WARNING, say.nothing_listens(pods), say.holders_unknown())
    others = sorted(path for path in folder.glob("nvidia*.sock") if _listens(path))
    for path in others:
        yield Finding("device plugins", ERROR, say.another_plugin(path.name), say.remove_plugin())
    if patient.report is not None:
        ours = {Path(server.socket).name for server in patient.report.servers}
        for path in sorted(folder.glob("tessera-*.sock")):
            if path.name not in ours and _listens(path):
                yield Finding("device plugins", ERROR, say.another_agent(path.name), say.one_agent())


def runtime(patient: Patient) -> Iterator[Finding]:
    """Whether containerd reads the CDI specs that the answers name."""
    if not patient.settings.allocation.uses_cdi:
        return
    try:
        config = patient.containerd.read_text()
    except OSError:
        return
    lines = [line.partition("#")[0] for line in config.splitlines()]
    said = [found[1] for line in lines if (found := re.search(r"enable_cdi\s*=\s*(true|false)", line))]
    old = any(re.match(r"\s*version\s*=\s*[12]\s*$", line) for line in lines)
    if (said and said[-1] == "false") or (not said and old):
        yield Finding("cdi", ERROR, say.no_cdi(patient.containerd), say.enable_cdi())
    else:
        yield Finding("cdi", OK, say.reads_cdi())


def compute_modes(patient: Patient) -> Iterator[Finding]:
    """Whether a GPU keeps an exclusive compute mode that no daemon of ours needs, or lacks one that ours does."""
    if patient.simulated:
        return  # the compute modes of simulated GPUs are in the agent's own process
    exclusive = {state.device for state in patient.report.mps if state.phase is Phase.READY} if patient.report else None
    for uuid, mode in read_compute_modes():
        if mode == ComputeMode.DEFAULT and exclusive is not None and uuid in exclusive:
            yield Finding("compute mode", WARNING, say.passes_daemon(uuid), say.set_mode(uuid, 3))
        elif mode != ComputeMode.DEFAULT and uuid not in (exclusive or ()):
            level = WARNING if exclusive is None else ERROR
            yield Finding("compute mode", level, say.exclusive(uuid, ComputeMode(mode).name), say.set_mode(uuid, 0))


def mps_programs(patient: Patient) -> Iterator[Finding]:
    """Whether MPS can be started at all."""
    if not patient.wants_mps or patient.simulated:
        return
    program = str(patient.settings.mps.control_program)
    if shutil.which(program) is None:
        yield Finding("mps", ERROR, say.no_program(program), say.install_tools())
    elif shutil.which("nvidia-cuda-mps-server", path=str(Path(shutil.which(program) or "/").parent)) is None:
        yield Finding("mps", ERROR, say.no_server(program), say.install_driver())


def mps_folders(patient: Patient) -> Iterator[Finding]:
    """Whether servers and clients of any user can reach their folders."""
    if not patient.wants_mps:
        return
    problem = root_problem(patient.settings.mps_dir)
    if problem is not None:
        yield Finding("mps", ERROR, problem, say.shorter_folder())
    closed = folders.closed_folder(patient.settings.mps_dir)
    runs = patient.report is not None and bool(patient.report.mps)
    # The agent itself opens the state folder, with its first daemon.
    if closed is not None and (runs or closed != patient.settings.state_dir):
        yield Finding("mps", ERROR, say.closed_folder(closed), say.open_folder(closed))
    shm = Path("/dev/shm")  # noqa: S108 - where it is
    if not patient.settings.mps.private_shm and not shm.is_mount():
        yield Finding("mps", ERROR, say.shared_shm(shm), say.mount_shm())


def mps_daemons(patient: Patient) -> Iterator[Finding]:
    """The state of each daemon, the users that it serves and those that wait."""
    states = patient.report.mps if patient.report is not None else ()
    for state in states:
        if state.phase is Phase.READY:
            yield Finding("mps", OK, say.daemon_ready(state.name, state.restarts))
        else:
            yield Finding("mps", ERROR, say.daemon_fails(state.name, state.reason), say.see_mps_logs())
    known = {state.device for state in states}
    for device in folders.leftovers(patient.settings.mps_dir):
        paths = device_paths(patient.settings.mps_dir, device)
        pid = folders.read_pid(paths)
        alive = pid is not None and is_running(pid, PIPE_ENV, paths.pipe)
        if device not in known:
            text = say.daemon_left(pid, device) if alive else say.folder_left(device)
            yield Finding("mps", WARNING, text, say.tidied_up())
        elif alive:
            yield from _users(patient, device)
    pid = _pid_in(patient.default_pipe)
    if pid is not None and psutil.pid_exists(pid):
        folder = patient.default_pipe
        yield Finding("mps", WARNING, say.strange_daemon(pid, folder), say.end_strange_daemon(folder))


def _users(patient: Patient, device: str) -> Iterator[Finding]:
    """Report waiting users: one server serves one user at a time; clients of other users wait without an error."""
    paths = device_paths(patient.settings.mps_dir, device)
    uids = {uid for pid in _servers(patient, paths.pipe) if (uid := uid_of(pid)) is not None}
    waiting = waiting_user(_tail(paths.control_log))
    if uids and waiting is not None and waiting not in uids:
        yield Finding("mps", WARNING, say.user_waits(device, min(uids), waiting), say.one_user())


def _servers(patient: Patient, pipe: Path) -> list[int]:
    try:
        done = subprocess.run(
            patient.control,
            input="get_server_list\n",
            env={PIPE_ENV: str(pipe), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [int(word) for word in done.stdout.split() if word.isdigit()] if done.returncode == 0 else []


def waiting_user(log: str) -> int | None:
    """The user whose client waits for a server, by the end of a control log; None where no client waits."""
    waiting: int | None = None
    for line in log.splitlines():
        pending = re.search(r"NEW CLIENT \d+ from user (\d+): Server is not ready", line)
        if pending is not None:
            waiting = int(pending[1])
        elif "NEW SERVER" in line and waiting is not None:
            waiting = None
    return waiting


def uid_of(pid: int) -> int | None:
    """The user that a process runs as; None where it has ended."""
    try:
        return int(psutil.Process(pid).uids().real)
    except psutil.Error:
        return None


def _pid_in(pipe: Path) -> int | None:
    try:
        return int((pipe / "nvidia-cuda-mps-control.pid").read_text().strip())
    except (OSError, ValueError):
        return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


CHECKS: tuple[Check, ...] = (agent, driver, kubelet, runtime, compute_modes, mps_programs, mps_folders, mps_daemons)


def examine(patient: Patient) -> tuple[Finding, ...]:
    """All findings, in the order of the checks."""
    return tuple(finding for check in CHECKS for finding in check(patient))
