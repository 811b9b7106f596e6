"""The kinds of fault, as a table. Pure.

A fault has targets, to each of which one fault at a time is done, and a range of seconds from its begin to its end:
for how long a killed process stays away, a stopped one sleeps, a proxy misbehaves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from hack.chaos.faults.nvmlcalls import NVML_CALLS

KindName = NewType("KindName", str)


class Target(StrEnum):
    """What is hit. A fault of ``AGENT_API`` is between the agent and the API server, one of ``OBJECTS`` is an edit."""

    AGENT = "agent"
    AGENT_API = "agent-api"
    CONTROLLER = "controller"
    CONTROLLER_API = "controller-api"
    KUBELET = "kubelet"
    KUBELET_API = "kubelet-api"
    CONTAINERD = "containerd"
    CONTROL_PLANE = "control-plane"
    HARDWARE = "hardware"
    OBJECTS = "objects"
    PORTS = "ports"


@dataclass(frozen=True)
class Kind:
    """``kills``: so many processes are ended without a word. ``lasts_s``: least and most. ``what``: one line for
    people. ``turns``: so many variants, each of which has its turn before one comes again.
    """

    name: KindName
    targets: frozenset[Target]
    lasts_s: tuple[float, float]
    what: str
    kills: int = 0
    turns: int = 1


def _kind(
    name: str,
    target: Target | frozenset[Target],
    least_s: float,
    most_s: float,
    what: str,
    *,
    kills: int = 0,
    turns: int = 1,
) -> Kind:
    targets = target if isinstance(target, frozenset) else frozenset({target})
    return Kind(KindName(name), targets, (least_s, most_s), what, kills, turns)


NODE: Final = frozenset({Target.AGENT, Target.KUBELET, Target.CONTAINERD})
EVERYTHING: Final = NODE | {Target.CONTROLLER, Target.CONTROL_PLANE}
LEADER: Final = frozenset({Target.CONTROLLER, Target.CONTROLLER_API})
RESET_GPUS: Final = (7, 0, 5)
"""GPUs whose driver asks for a reset: the spare one, one that pods hold whole, one that is cut."""
RAPID_EDITS: Final = 3
"""Kinds of object that are edited: quota, labels of a job, a node."""
STOP_S: Final = 30.0
"""For so long a process is stopped: beyond the controllers' lease, and any client's patience."""
_ROWS: Final = (
    _kind("kill-agent", Target.AGENT, 0.5, 5, "kill -9 of the agent", kills=1),
    _kind("kill-leader", Target.CONTROLLER, 0.5, 8, "kill -9 of the controller that leads", kills=1),
    _kind("kill-controllers", Target.CONTROLLER, 0.5, 5, "kill -9 of both controllers at once", kills=2),
    _kind("kill-kubelet", Target.KUBELET, 0.5, 5, "kill -9 of the kubelet", kills=1),
    _kind("kill-containerd", Target.CONTAINERD, 0.5, 4, "kill -9 of containerd", kills=1),
    _kind("kill-apiserver", Target.CONTROL_PLANE, 0.5, 5, "kill -9 of the API server", kills=1),
    _kind("kill-etcd", Target.CONTROL_PLANE, 0.5, 4, "kill -9 of etcd", kills=1),
    _kind("kill-node", NODE, 0.5, 4, "kill -9 of agent, kubelet and containerd at once", kills=3),
    _kind("kill-everything", EVERYTHING, 0.5, 4, "kill -9 of all that runs at once: the power fails", kills=7),
    _kind("stop-agent", Target.AGENT, STOP_S, STOP_S, "SIGSTOP of the agent, and SIGCONT"),
    _kind("stop-leader", Target.CONTROLLER, STOP_S, STOP_S, "SIGSTOP of the leader: it wakes up late"),
    _kind("stall-leader", LEADER, 10, 20, "the leader stops beyond its lease with a write in hand, which arrives late"),
    _kind("stop-kubelet", Target.KUBELET, STOP_S, STOP_S, "SIGSTOP of the kubelet"),
    _kind("cut-agent", Target.AGENT_API, 3, 20, "no connection between agent and API server"),
    _kind("cut-leader", Target.CONTROLLER_API, 3, 20, "no connection between leader and API server"),
    _kind("cut-kubelet", Target.KUBELET_API, 5, 30, "no connection between kubelet and API server; the agent has one"),
    _kind("delay-agent", Target.AGENT_API, 5, 20, "each chunk between agent and API server takes a second"),
    _kind("delay-leader", Target.CONTROLLER_API, 5, 20, "each chunk between leader and API server takes a second"),
    _kind("duplicate-agent", Target.AGENT_API, 5, 20, "each request of the agent is sent twice"),
    _kind("duplicate-leader", Target.CONTROLLER_API, 5, 20, "each request of the leader is sent twice"),
    _kind("watch-lag", Target.CONTROLLER_API, 60, 60, "the leader's watches lie behind by a minute"),
    _kind("answer-410", Target.CONTROLLER_API, 3, 15, "the API server answers the leader's reads with 410"),
    _kind("answer-429", Target.CONTROLLER_API, 3, 15, "the API server answers the leader with 429"),
    _kind("answer-500", Target.CONTROLLER_API, 3, 15, "the API server answers the leader with 500"),
    _kind("bursts-504", Target.CONTROLLER_API, 8, 20, "the API server answers the leader with 504, on and off"),
    _kind("stale-lists", Target.CONTROLLER_API, 10, 25, "410 on and off, and lists as they were when first asked for"),
    _kind("expired-certificate", Target.CONTROLLER_API, 3, 15, "the API server's certificate has expired"),
    _kind("refused-token", Target.AGENT_API, 3, 15, "the API server answers the agent with 401: its token has expired"),
    _kind("webhook-timeout", Target.CONTROL_PLANE, 5, 15, "a webhook for jobs and Workloads does not answer"),
    _kind("clock-agent", Target.AGENT, 5, 20, "the agent's clock steps by minutes or hours"),
    _kind("clock-controllers", Target.CONTROLLER, 5, 20, "the controllers' clock steps by minutes or hours"),
    _kind("disk-full", Target.AGENT, 5, 15, "the agent's state folder is full"),
    _kind("disk-read-only", Target.AGENT, 5, 15, "the agent is killed, and its state folder is read-only", kills=1),
    _kind("memory-agent", Target.AGENT, 1, 5, "the agent is ended for its memory", kills=1),
    _kind("memory-leader", Target.CONTROLLER, 1, 5, "the leader is ended for its memory", kills=1),
    _kind("corrupt-checkpoint", Target.AGENT, 0.5, 3, "the agent is killed, its checkpoint garbled", kills=1),
    _kind("corrupt-journal", Target.AGENT, 0.5, 3, "the agent is killed, its MIG journal garbled", kills=1),
    _kind("corrupt-lease", Target.CONTROLLER, 1, 5, "the controllers' Lease says nonsense"),
    _kind("nvml-hangs", Target.HARDWARE, 5, 15, "one of NVML's calls hangs, each in its turn", turns=len(NVML_CALLS)),
    _kind(
        "nvml-call-fails", Target.HARDWARE, 2, 8, "one of NVML's calls fails, each in its turn", turns=len(NVML_CALLS)
    ),
    _kind("nvml-fails", Target.HARDWARE, 3, 10, "every call of NVML fails: the driver is away"),
    _kind("gpu-lost", Target.HARDWARE, 3, 10, "a GPU falls off the bus"),
    _kind("gpu-lost-in-mig-change", Target.HARDWARE, 3, 10, "a GPU falls off the bus while it is cut"),
    _kind(
        "gpu-wants-reset",
        Target.HARDWARE,
        8,
        20,
        "the driver asks for the reset of a GPU, which takes seconds: a spare one, a whole one, one that is cut",
        turns=len(RESET_GPUS),
    ),
    _kind("rapid-layouts", Target.HARDWARE, 2, 8, "two layouts and a lost GPU within 50 ms"),
    _kind("flood-ports", Target.PORTS, 5, 15, "a flood of every port and socket of agent and controllers"),
    _kind(
        "rapid-edits", Target.OBJECTS, 0.1, 2, "a quota, a job or the node changes thrice in 50 ms", turns=RAPID_EDITS
    ),
)
KINDS: Final[Mapping[KindName, Kind]] = {one.name: one for one in _ROWS}
CLOCK_STEPS_S: Final = (-7200.0, -600.0, -60.0, 60.0, 600.0, 7200.0)


def validate() -> None:
    """AssertionError where the table cannot be what a campaign needs."""
    assert len(KINDS) == len(_ROWS), "a name stands twice"
    assert all(0 < least <= most for least, most in (one.lasts_s for one in _ROWS)), "no time from begin to end"
    assert sum(one.kills > 0 for one in _ROWS) >= len(KINDS) // 5, "too few kinds kill"
