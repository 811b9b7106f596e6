"""A real Kubernetes on this machine: up, down, status, and a handle on each node. The tests' and the demo's interface.

``Cluster.up`` writes down what it is about to make, makes it, and returns when every node is Ready and pods can start.
All of it can be undone from the folder's name alone, so neither a crash nor ``kill -9`` leaves anything for ever: the
next ``up`` or ``down`` of the same name cleans.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hack.cluster import prerequisites, processes, waiting
from hack.cluster import state as states
from hack.cluster.controlplane import controlplane, pki
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.layout import MARK_ENV, ClusterPaths, checked_name
from hack.cluster.mutex import mutex
from hack.cluster.nodes import network
from hack.cluster.nodes.node import NodeHost
from hack.cluster.processes import Identity
from hack.cluster.programs import binaries
from hack.cluster.startup import Startup
from hack.cluster.state import Spec, State
from hack.cluster.sweep import sweep

Say = Callable[[str], None]


def _quiet(_: str) -> None:
    return


FOLLOWERS: Final[list[Callable[["Cluster"], Callable[[], None]]]] = []
"""Called with each cluster that this process brings up; what they return is called before it goes down. For tests."""
_followed: Final[dict[Path, list[Callable[[], None]]]] = {}
"""By a cluster's folder, what is to be called before it goes down."""


def check_spec(spec: Spec) -> None:
    """UsageError for a request that cannot work."""
    for name in spec.nodes:
        checked_name("node", name)
    if len(set(spec.nodes)) != len(spec.nodes):
        raise UsageError(f"nodes: found {', '.join(spec.nodes)}, expected distinct names")
    if len(spec.nodes) > network.MAX_NODES:
        raise UsageError(f"nodes: found {len(spec.nodes)}, expected at most {network.MAX_NODES}")
    if spec.kwok_nodes < 0:
        raise UsageError(f"kwok nodes: found {spec.kwok_nodes}, expected 0 or more")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A handle on the cluster of a name; it need not be running. Holds nothing open."""

    paths: ClusterPaths

    @classmethod
    def of(cls, name: str = "tessera", *, root: Path | None = None) -> Self:
        """The cluster ``name`` below ``root`` (default: ``$TESSERA_CLUSTER_DIR``, else /var/tmp/tessera)."""
        return cls(ClusterPaths.of(name, root))

    @classmethod
    def up(
        cls, name: str = "tessera", spec: Spec | None = None, *, root: Path | None = None, say: Say = _quiet
    ) -> Self:
        """Start a cluster, or find it running. Raises UsageError before anything is started, ClusterError after.

        What a failed start made is removed again, but for its logs' tails in the message.
        """
        cluster = cls.of(name, root=root)
        cluster.start(spec or Spec(), say=say)
        _followed.setdefault(cluster.paths.home, []).extend(follow(cluster) for follow in FOLLOWERS)
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def name(self) -> str:
        return self.paths.name

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with an administrator's token."""
        return self.paths.kubeconfig

    @property
    def state(self) -> State:
        """What is written down; ClusterError if there is no such cluster."""
        if (found := states.load(self.paths.state)) is None:
            raise ClusterError(f"no cluster {self.name} in {self.paths.home.parent}")
        return found

    @property
    def server(self) -> str:
        """The API server's URL, on loopback."""
        return controlplane.server(self.state)

    @property
    def nodes(self) -> tuple[NodeHost, ...]:
        """The nodes with a kubelet of their own."""
        return tuple(map(self._host, self.state.spec.nodes))

    def node(self, name: str | None = None) -> NodeHost:
        """One node; without a name the first."""
        known = self.state.spec.nodes
        wanted = name or (known[0] if known else "")
        if wanted not in known:
            raise UsageError(f"node: found {name!r}, expected one of {', '.join(known) or 'none: there is no kubelet'}")
        return self._host(wanted)

    def _host(self, name: str) -> NodeHost:
        return NodeHost(self.paths, self.paths.node(name), lambda: self.state)

    def kubectl_command(self, *args: str) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment of kubectl as administrator."""
        binary = Path(self.state.binaries["kubernetes"]) / "tessera-kubernetes"
        environment = processes.child_environment(self.paths.home, {"KUBECONFIG": str(self.kubeconfig)})
        environment.pop(MARK_ENV)  # the caller's process, not the cluster's
        return [str(binary), "kubectl", *args], environment

    def kubectl(self, *args: str, input: str | None = None, timeout_s: float = 300.0) -> str:  # noqa: A002 - as subprocess.run has it
        """Output of kubectl; ClusterError with its message if it fails."""
        command, environment = self.kubectl_command(*args)
        try:
            done = subprocess.run(
                command, env=environment, input=input, capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"kubectl {' '.join(args)}: not within {timeout_s:.0f} s") from None
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def spawn(
        self,
        component: str,
        argv: Sequence[str],
        *,
        extra_env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Identity:
        """Start a daemon of the cluster on the machine: ``down`` ends it, also after a crash of the caller.

        Its output goes to the log ``component``. It gets no KUBECONFIG and no proxies but what ``extra_env`` says.
        """
        return processes.spawn(argv, home=self.paths.home, log=self.log(component), extra_env=extra_env, cwd=cwd)

    def log(self, component: str) -> Path:
        """Log of a component: ``etcd``, ``apiserver``, ``kubelet-NODE``, ``containerd-NODE``, or a spawned one's."""
        return self.paths.log(component)

    def start(self, spec: Spec, *, say: Say = _quiet) -> None:
        """``up`` on this handle."""
        check_spec(spec)
        self.paths.check_socket_length(spec.nodes)
        prerequisites.ensure(kubelets=bool(spec.nodes))
        built = {name: str(binaries.build(name)) for name in _programs(spec)}
        with mutex(str(self.paths.home)):
            if self._is_running_as(spec, built):
                say(f"cluster {self.name} is already running")
                return
            if self.paths.home.exists():
                say(f"cleaning up after cluster {self.name}: {'; '.join(self.problems())}")
            sweep(self.paths, _readable_state(self.paths))
            try:
                Startup(self.paths, built, self.kubectl, say).run(spec)
            except BaseException:
                # Also for Ctrl-C. The log tails are in the message already.
                with suppress(ClusterError):
                    sweep(self.paths, _readable_state(self.paths))
                raise

    def _is_running_as(self, spec: Spec, built: Mapping[str, str]) -> bool:
        """Whether it runs. UsageError if it does, but is not what ``spec`` asks for, or runs other programs."""
        state = _readable_state(self.paths)
        if state is None or state.phase != "up" or self.problems():
            return False
        other = "settings" if state.spec != spec else ""
        if not other and any(state.binaries.get(name, path) != path for name, path in built.items()):
            other = "programs"
        if other:
            raise UsageError(
                f"cluster {self.name} is running with other {other}: take it down first, or choose another --name"
            )
        return True

    def down(self) -> None:
        """Remove everything of the cluster; nothing happens if there is none. ClusterError naming what would not go."""
        for end in _followed.pop(self.paths.home, ()):
            end()
        with mutex(str(self.paths.home)):
            sweep(self.paths, _readable_state(self.paths))

    def problems(self) -> list[str]:
        """One line for each part that should run and does not; empty when all is well."""
        state = _readable_state(self.paths)
        if state is None:
            return [f"no cluster {self.name} in {self.paths.home.parent}"]
        problems = ["its start was cut short"] if state.phase != "up" else []
        problems += [f"{name} is not running" for name, each in state.processes.items() if not processes.alive(each)]
        for host in map(self._host, state.spec.nodes):
            if processes.alive(state.processes.get(host.init_key)):
                problems += [
                    f"{part} of {host.name} is not running"
                    for part in ("containerd", "kubelet")
                    if not host.running(part)
                ]
        if not problems and not self._api_is_ready(state):
            problems.append("the API server is not ready")
        return problems

    def _api_is_ready(self, state: State) -> bool:
        token = json.loads(self.kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]["token"]
        return waiting.answers(f"{controlplane.server(state)}/readyz", ca=pki.Pki(self.paths.pki).ca, token=token)

    def status(self) -> dict[str, Any]:
        """What ``status -o json`` prints: name, running, problems, kubeconfig, server, folders, nodes, processes."""
        state = _readable_state(self.paths)
        problems = self.problems()
        summary: dict[str, Any] = {
            "name": self.name,
            "running": not problems,
            "problems": problems,
            "folder": str(self.paths.home),
        }
        if state is None:
            return {**summary, "server": None, "kubeconfig": None, "nodes": [], "kwokNodes": 0, "processes": {}}
        nodes = [
            {
                "name": host.name,
                "kubeletDir": str(host.paths.kubelet_dir),
                "cdiDir": str(host.paths.cdi_dir),
                "kubeletPort": state.ports[f"kubelet-{host.name}"],
            }
            for host in map(self._host, state.spec.nodes)
        ]
        return {
            **summary,
            "server": controlplane.server(state),
            "kubeconfig": str(self.kubeconfig),
            "nodes": nodes,
            "kwokNodes": state.spec.kwok_nodes,
            "processes": {
                name: {"pid": each.pid, "alive": processes.alive(each)} for name, each in state.processes.items()
            },
        }


def _programs(spec: Spec) -> list[str]:
    wanted = {"containerd": bool(spec.nodes), "kwok": bool(spec.kwok_nodes), "coredns": spec.dns}
    return ["kubernetes", *(name for name, is_wanted in wanted.items() if is_wanted)]


def _readable_state(paths: ClusterPaths) -> State | None:
    """The state, or None where there is none that we can read: cleaning up must not depend on it."""
    try:
        return states.load(paths.state)
    except ClusterError as error:
        print(f"{error}; going by the folder's name alone", file=sys.stderr)
        return None
