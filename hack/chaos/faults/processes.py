"""Faults of processes and of what they stand on: killed, stopped, out of memory, another time, a bad disk.

Each begins a fault and returns what ends it. An end finds whatever the fault, or another, made of the process.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hack.chaos.api import AwayError
from hack.chaos.faults.kinds import CLOCK_STEPS_S
from hack.chaos.invariants import JobUid
from hack.chaos.members import ChaosAgent, Replica
from hack.chaos.schedule import Act
from hack.chaos.world import UP_S, World, inside_keeper, signal_all
from hack.cluster import processes, waiting
from hack.cluster.processes import Identity

Heal = Callable[[], None]
GARBAGE: Final = (b"", b"{", b"\0" * 512, b'{"version": 99}', b"\xff\xfe nonsense", b"[1e999]")
_OOM_BYTES: Final = 1 << 20


def nothing() -> None:
    """The end of a fault that ends by itself."""


def kill_agent(world: World, _: Act) -> Heal:
    _kill_agent(world)
    return lambda: _start_agent(world)


def _kill_agent(world: World) -> None:
    if world.agent.lives:
        world.kills += world.agent.listens
        world.agent.kill()


def _start_agent(world: World) -> None:
    if not world.agent.lives:
        world.agent.start()


def kill_leader(world: World, _: Act) -> Heal:
    leader = world.leader
    _kill_replica(world, leader)
    return lambda: _start(leader)


def _kill_replica(world: World, replica: Replica) -> None:
    if replica.runs:
        world.kills += replica.listens
        replica.kill()


def _start(*replicas: Replica) -> None:
    for replica in replicas:
        if not replica.runs:
            replica.start()


def kill_controllers(world: World, _: Act) -> Heal:
    for replica in world.replicas:
        _kill_replica(world, replica)
    return lambda: _start(*world.replicas)


def kill_kubelet(world: World, _: Act) -> Heal:
    world.kill(*world.host.running("kubelet"))
    return world.host.start_kubelet


def kill_containerd(world: World, _: Act) -> Heal:
    world.kill(*world.host.running("containerd"))
    return lambda: _start_containerd(world)


def _start_containerd(world: World) -> None:
    if not world.host.running("containerd"):
        world.host.start_containerd()


def kill_apiserver(world: World, _: Act) -> Heal:
    world.kill(world.mains["apiserver"])
    return lambda: _start_mains(world)


def kill_etcd(world: World, _: Act) -> Heal:
    """What was there before and is not after, etcd lost: the runner asks before and after, and says which."""
    before: dict[str, str] = {}
    with contextlib.suppress(AwayError):
        before = world.jobs()
    world.kill(world.mains["etcd"])

    def heal() -> None:
        _start_mains(world)
        after = world.jobs()
        gone = {uid for uid in before if uid not in after}
        world.forgotten |= gone
        world.load.forget({JobUid(uid) for uid in gone})

    return heal


def kill_node(world: World, _: Act) -> Heal:
    world.kill(*world.host.running("kubelet"), *world.host.running("containerd"))
    _kill_agent(world)

    def heal() -> None:
        _start_agent(world)
        _start_containerd(world)
        world.host.start_kubelet()

    return heal


def kill_everything(world: World, act: Act) -> Heal:
    """Then all start at once: whoever is up first finds no API server."""
    control_plane = kill_etcd(world, act)
    world.kill(world.mains["apiserver"])
    controllers = kill_controllers(world, act)
    kill_node(world, act)

    def heal() -> None:
        controllers()
        _start_agent(world)
        _start_containerd(world)
        world.host.start_kubelet(wait=False)
        control_plane()
        world.host.start_kubelet()

    return heal


def _start_mains(world: World) -> None:
    for name in ("etcd", "apiserver"):
        world.start_main(name)
    waiting.until(world.serves, "the API server", timeout_s=UP_S)


def stop_agent(world: World, _: Act) -> Heal:
    return _stopped([world.agent.process.pid] if world.agent.process and world.agent.lives else [])


def stop_leader(world: World, _: Act) -> Heal:
    process = world.leader.process
    return _stopped([process.pid] if process else [])


def stop_kubelet(world: World, _: Act) -> Heal:
    return _stopped([one.pid for one in world.host.running("kubelet")])


def _stopped(pids: list[int]) -> Heal:
    signal_all(pids, signal.SIGSTOP)
    return lambda: signal_all(pids, signal.SIGCONT)


def clock_agent(world: World, act: Act) -> Heal:
    return _stepped(world.agent_clock, act)


def clock_controllers(world: World, act: Act) -> Heal:
    return _stepped(world.controller_clock, act)


def _stepped(file: Path, act: Act) -> Heal:
    file.write_text(str(act.chosen(CLOCK_STEPS_S)))
    return lambda: file.unlink(missing_ok=True)


def memory_agent(world: World, _: Act) -> Heal:
    _out_of_memory(world, world.agent)
    return lambda: _start_agent_anew(world)


def _start_agent_anew(world: World) -> None:
    if world.agent.process is not None and not world.agent.lives:
        world.agent.process.wait()
    _start_agent(world)


def memory_leader(world: World, _: Act) -> Heal:
    leader = world.leader
    _out_of_memory(world, leader)
    return lambda: _start(leader)


def _out_of_memory(world: World, hit: ChaosAgent | Replica) -> None:
    """The process gets a memory cgroup with next to nothing, and the kernel ends it at its next page. Where it asks for
    none within two seconds, or the machine has no such hierarchy, SIGKILL does what the kernel would have done.
    """
    pid = hit.process.pid if hit.process else 0
    identity = processes.identify(pid)
    if identity is None:
        return
    world.kills += hit.listens
    folder = Path("/sys/fs/cgroup/memory") / world.cluster.paths.cgroup / "chaos"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.limit_in_bytes").write_text(str(_OOM_BYTES))
        (folder / "cgroup.procs").write_text(str(pid))
    deadline_s = time.monotonic() + 2
    while _running(identity) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if _running(identity):
        os.kill(pid, signal.SIGKILL)


def _running(found: Identity) -> bool:
    return processes.alive(found)


def disk_full(world: World, _: Act) -> Heal:
    filler = world.state / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    return lambda: filler.unlink(missing_ok=True)


def disk_read_only(world: World, _: Act) -> Heal:
    """The agent has its lock open for writing: what it stands on turns read-only while it is away."""
    _kill_agent(world)
    inside_keeper(world, "mount", "-o", "remount,ro", "/mnt")
    world.agent.start()

    def heal() -> None:
        inside_keeper(world, "mount", "-o", "remount,rw", "/mnt")
        _start_agent_anew(world)

    return heal


def corrupt_checkpoint(world: World, act: Act) -> Heal:
    return _corrupted(world, act, "checkpoint.json", "layout.json")


def corrupt_journal(world: World, act: Act) -> Heal:
    return _corrupted(world, act, "mig/*")


def _corrupted(world: World, act: Act, *patterns: str) -> Heal:
    _kill_agent(world)
    for pattern in patterns:
        for file in world.state.glob(pattern):
            file.write_bytes(act.chosen(GARBAGE))
    return lambda: _start_agent(world)
