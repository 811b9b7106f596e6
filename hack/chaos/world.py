"""The cluster under test: its control plane, one node with an agent of eight simulated GPUs, two controllers, proxies.

Every process of ours reaches the API server through a proxy of its own. The agent's state lies on a small file system
that a keeper process has in a mount namespace of its own: full or read-only, it is nobody else's, and it goes with the
keeper.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import click

from hack.chaos.api import (
    CLAIMS,
    CONFLICT,
    EVENTS,
    GPUNODES,
    JOBS,
    OTHERS,
    PODS,
    WORKLOADS,
    Api,
    AwayError,
    RefusedError,
)
from hack.chaos.checks import Checks
from hack.chaos.invariants import Findings, Json, Seen
from hack.chaos.load import CLAIMED, CLASS, GPU, HALF, Load, nobodys
from hack.chaos.members import CLOCK_ENV, SEAM, ChaosAgent, Replica, objects
from hack.chaos.proxy import PLAIN, Proxy
from hack.chaos.verdicts import Verdicts
from hack.cluster import processes, waiting
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.pki import Pki
from hack.cluster.layout import MARK_ENV
from hack.cluster.processes import Identity
from hack.cluster.state import Spec
from inventory.api.names import GPU_PERCENT
from simulator.client import OrderRefusedError
from simulator.hardware.store import StoreError
from tests.support.e2e import queuelab
from tests.support.e2e.hands import Hands
from tests.support.e2e.judged import recorded
from tests.support.e2e.lab import FAST, Lab, fleet
from tests.support.e2e.recording import Recording

RECORD: Final = "history.jsonl.gz"
PLANTED: Final = "planted"
"""With this begins the name of what a plant makes."""
STATE_MIB: Final = 8
UP_S: Final = 120.0
"""For so long a part may take to come up again, on a machine that others keep busy."""
LAYOUT: Final = """\
version: v1
flags: {migStrategy: mixed}
health: %s
remediation: {reset: when-free, retireAfter: {faults: 100, within: 1m}}
layout:
- {gpus: [4], mode: fractional, granularity: 10}
- {gpus: [5], mode: mig, profiles: [%s]}
- {gpus: [6], mode: dra}
"""
HALVES, QUARTERS = "3g.40gb, 3g.40gb", "2g.20gb, 2g.20gb, 2g.20gb"
GPUS, WHOLE_GPUS, SPARE = 8, 4, 7
"""GPUs 0 to 3 are the device plugin's; 7 is too, and no load needs it: faults are done to it."""
CONFIG: Final = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {{healthProbeBindAddress: "0"}}
leaderElection: {{leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}}
resources:
  deviceClassMappings:
  - {{name: {CLAIMED}, deviceClassNames: [{CLASS}]}}
tessera: {{policy: tessera, pendingCondition: {{after: 1s}}, remediation: {{budget: 100%}}}}
"""


@dataclass
class World:
    """Open it with ``with``. ``kills`` counts processes that served and were ended by a fault."""

    cluster: Cluster
    seed: int
    kills: int = 0
    forgotten: set[str] = field(default_factory=set)
    """Uids of jobs that etcd itself lost."""
    owed: list[dict[str, object]] = field(default_factory=list)
    """Orders to the hardware that it could not take."""
    ends: list[Callable[[], object]] = field(default_factory=list)
    """Ends of faults that the API server could not take."""

    def __post_init__(self) -> None:
        self.host = self.cluster.node()
        self.api = Api(self.cluster.server, self.cluster.kubeconfig)
        self.lab = Lab(self.cluster, self.host)
        self.folder = self.cluster.paths.home / "chaos"
        self.load = Load(self.api, self.seed)
        self.checks = Checks(self.api, self.seed)
        self.verdicts = Verdicts()
        self._exits = contextlib.ExitStack()
        self.mains: dict[str, Identity] = {}
        """The newest process of the API server and of etcd."""

    @classmethod
    @contextlib.contextmanager
    def up(cls, name: str, seed: int, say: Callable[[str], None]) -> Iterator[Self]:
        """A cluster of its own, gone with the block."""
        with Cluster.up(name, Spec(), say=say) as cluster, cls(cluster, seed) as world:
            yield world

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        queuelab.install(self.cluster)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=objects())
        address = urlsplit(self.cluster.server)
        target = (str(address.hostname), int(address.port or 0))
        pki = Pki(self.cluster.paths.pki)
        with contextlib.ExitStack() as exits:
            self.recording = exits.enter_context(recorded(Recording(self.cluster, self.folder / RECORD)))
            self.agent_api = exits.enter_context(Proxy(target, pki))
            self.kubelet_api = exits.enter_context(Proxy(target, pki))
            self._lead_kubelet()
            self.keeper = self._keep()
            self.agent_clock, self.controller_clock = self.folder / "agent.clock", self.folder / "controller.clock"
            self.agent = self._agent()
            (self.folder / "controller.yaml").write_text(CONFIG)
            self.replicas = [
                Replica(
                    self.cluster,
                    self.folder,
                    name,
                    proxy=exits.enter_context(Proxy(target, pki)),
                    clock=self.controller_clock,
                )
                for name in ("one", "two")
            ]
            for replica in self.replicas:
                exits.callback(_end, replica)
            self.recording.hardware[self.host.name] = Hands(self.lab).hardware
            self.mains = {name: self.cluster.state.processes[name] for name in ("apiserver", "etcd")}
            self.commands = {name: processes.command_line(one.pid) for name, one in self.mains.items()}
            exits.callback(self.checks.close)
            self.checks.start()
            self.revive()
            self._await_offers()
            exits.callback(self.load.close)
            self.load.start()
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._exits:
            if self.agent.lives:
                self.agent.kill()

    # What is made.

    def _lead_kubelet(self) -> None:
        """The kubelet starts anew, and reaches the API server by its proxy."""
        path = self.host.paths.kubeconfig
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.kubelet_api.port}"
        path.write_text(json.dumps(config))
        processes.end(self.host.running("kubelet"), grace_s=UP_S)
        self.host.start_kubelet()

    def _keep(self) -> Identity:
        """The keeper of the agent's state, with a file system of ``STATE_MIB`` on ``/mnt``."""
        script = f"mount -t tmpfs -o size={STATE_MIB}m,mode=700 chaos /mnt && exec sleep 1000000"
        keeper = self.cluster.spawn("keeper", ["unshare", "--mount", "--propagation", "private", "sh", "-c", script])
        mounted = Path(f"/proc/{keeper.pid}/mounts")
        waiting.until(lambda: "chaos /mnt" in mounted.read_text(), "the agent's state folder", timeout_s=UP_S)
        return keeper

    @property
    def state(self) -> Path:
        return Path(f"/proc/{self.keeper.pid}/root/mnt")

    def _agent(self) -> ChaosAgent:
        machine = fleet(self.folder / "fleet.yaml", gpus=GPUS, product="NVIDIA H100 80GB HBM3", nvlink="full")
        server = f"https://127.0.0.1:{self.agent_api.port}"
        home = str(self.cluster.paths.home)
        agent = ChaosAgent(
            folder=self.host.agent_dir,
            fleet=machine,
            kubelet_dir=self.host.kubelet_dir,
            cdi_dir=self.host.cdi_dir,
            kubeconfig=str(self.lab.kubeconfig(self.folder / "agent.kubeconfig", server=server)),
            config=LAYOUT % (FAST, HALVES),
            environment={
                MARK_ENV: home,
                "MPS_ROOT": f"{home}/mps",
                "PYTHONPATH": str(SEAM),
                CLOCK_ENV: str(self.agent_clock),
            },
            kept=self.state,
        )
        self.lab.agents.append(agent)
        return agent

    # What runs.

    def revive(self) -> None:
        """Whatever a fault ended serves again, and every proxy is plain. ClusterError where a part does not come.

        On a busy machine an interpreter takes a minute to start, in which nothing of ours could settle anything. Nor
        could it while Kubernetes' scheduler waits: its watches back off for up to half a minute as servers come and go.
        """
        self.agent_api.set(PLAIN)
        self.kubelet_api.set(PLAIN)
        for replica in self.replicas:
            assert replica.proxy is not None
            replica.proxy.set(PLAIN)
        for name in ("etcd", "apiserver"):
            self.start_main(name)
        waiting.until(self.serves, "the API server", timeout_s=UP_S)
        if not self.host.running("containerd"):
            self.host.start_containerd()
        self.host.start_kubelet()
        if not self.agent.lives:
            self.agent.start()
        for replica in self.replicas:
            if not replica.runs:
                replica.start()
        waiting.until(self._ours_serve, "agent and controllers serve", timeout_s=UP_S)
        for order in self.owed:
            waiting.until(partial(self.order, **order), f"the hardware takes {order}", timeout_s=UP_S, every_s=0.5)
        self.owed.clear()
        while self.ends:
            end = self.ends.pop()
            waiting.until(partial(self._ended, end), "the end of a fault", timeout_s=UP_S, every_s=0.5)
        probe = nobodys(f"probe-{uuid.uuid4().hex[:8]}")
        waiting.until(partial(self._holds, partial(self._submitted, probe)), "a job is taken", timeout_s=UP_S)
        path = f"{OTHERS}/{probe['metadata']['name']}"
        over = partial(self._holds, lambda: bool(self.api.call("GET", path).get("status", {}).get("succeeded")))
        waiting.until(over, "Kubernetes runs a job that nobody queues", timeout_s=UP_S)

    def _ended(self, end: Callable[[], object]) -> bool:
        return self._holds(lambda: end() is None or True)

    def _submitted(self, job: Json) -> bool:
        """One that is there already was created by a request whose answer was lost. Raises AwayError, RefusedError."""
        try:
            self.api.call("POST", OTHERS, job)
        except RefusedError as refused:
            if refused.code != CONFLICT:
                raise
        return True

    def _ours_serve(self) -> bool:
        return self.agent.listens and all(one.listens for one in self.replicas)

    def start_main(self, name: str) -> None:
        """The API server or etcd, as it was started first; nothing where it runs."""
        if not processes.alive(self.mains.get(name)):
            self.mains[name] = self.cluster.spawn(name, self.commands[name])

    def serves(self) -> bool:
        return self._holds(lambda: bool(self.api.call("GET", "/api/v1/namespaces/default")))

    def order(self, **order: object) -> bool:
        """To the simulated hardware; whether it took it. It cannot while an agent starts, or its folder is full."""
        with contextlib.suppress(click.ClickException, StoreError, OrderRefusedError, OSError):
            self.agent.sim(**order)
            return True
        return False

    def order_at_last(self, **order: object) -> None:
        """What ends a fault: where the hardware cannot take it now, ``revive`` sees to it."""
        if not self.order(**order):
            self.owed.append(order)

    def kill(self, *hit: Identity) -> None:
        """SIGKILL. What had ended before does not count. A start of these returns when they serve."""
        alive = [one for one in hit if processes.alive(one)]
        processes.end(alive, grace_s=0.0)
        self.kills += len(alive)

    @property
    def leader(self) -> Replica:
        """The replica that holds the Lease; any that runs where the Lease does not say."""
        running = [one for one in self.replicas if one.runs] or self.replicas
        with contextlib.suppress(AwayError, RefusedError):
            return (self._leading(running) or running)[0]
        return running[0]

    def _leading(self, among: list[Replica]) -> list[Replica]:
        """Those that the Lease names. Raises AwayError, RefusedError."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{queuelab.NAMESPACE}/leases"
        holders = [str(one["spec"].get("holderIdentity", "")) for one in self.api.items(path)]
        return [one for one in among if any(each.startswith(f"{one.name}-") for each in holders)]

    def _await_offers(self) -> None:
        """Return once all GPUs are offered and a controller leads: a start is no part of what a fault does."""
        wanted = {GPU: WHOLE_GPUS + 1, HALF: 2, GPU_PERCENT: 100}
        self.lab.await_amounts({GPU: wanted[GPU], HALF: wanted[HALF]}, UP_S)
        waiting.until(lambda: self._holds(lambda: not self.seen().unwell), "all GPUs offered", timeout_s=UP_S)
        leads = partial(self._holds, lambda: bool(self._leading(self.replicas)))
        waiting.until(leads, "a controller that leads", timeout_s=UP_S)

    # What is seen.

    def seen(self) -> Seen:
        """One look from the outside. Raises AwayError, RefusedError."""
        # Workloads before jobs: each Workload of the look has its job in it.
        workloads = self.api.items(WORKLOADS)
        accepted = self.load.accepted
        jobs = self.api.items(JOBS)
        return Seen(
            accepted=accepted,
            jobs=jobs,
            workloads=workloads,
            unwell=frozenset(self._unwell()),
        )

    def judged(self) -> tuple[Findings, list[str]]:
        """What the judge of histories has found since the last time, and what was late, of which faults are excuses."""
        self.recording.tick()
        found = self.verdicts.take(self.recording.take())
        late, self.verdicts.late = self.verdicts.late, []
        return found, late

    def _unwell(self) -> Iterator[str]:
        """What the API server says of the node that is not as at the start."""
        offered: Json = self.lab.node["status"].get("allocatable", {})
        for name, amount in {GPU: WHOLE_GPUS + 1, HALF: 2, GPU_PERCENT: 100}.items():
            if int(offered.get(name, "0")) != amount:
                yield f"{offered.get(name, 0)} {name} are offered, {amount} were"
        for device in self.lab.gpunode().get("devices", []):
            if (state := device.get("health", {}).get("state")) != "Healthy":
                yield f"GPU {device['index']} is {state}"
        for claim in self.api.items(CLAIMS):
            if claim.get("status", {}).get("reservedFor"):
                yield f"claim {claim['metadata']['name']} is reserved"

    def keep(self, folder: Path) -> None:
        """What a failed campaign is looked into by: logs of ours and of the kubelet, the objects as they are, and the
        record, which ``tessera audit`` reads.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.recording.save(folder / RECORD)
        for log in (self.agent.log_path, *(one.log for one in self.replicas), self.host.log("kubelet")):
            if log.exists():
                shutil.copy(log, folder / log.name)
        for path in (JOBS, WORKLOADS, PODS, CLAIMS, EVENTS, f"{GPUNODES}/{self.host.name}"):
            with contextlib.suppress(AwayError, RefusedError):
                found = json.dumps(self.api.call("GET", path), indent=1)
                (folder / f"{path.rpartition('/')[2]}.json").write_text(found)

    def jobs(self) -> dict[str, str]:
        """Names of all jobs by uid. Raises AwayError, RefusedError."""
        return {one["metadata"]["uid"]: one["metadata"]["name"] for one in self.api.items(JOBS)}

    def clear(self) -> None:
        """No job, Workload or pod of the load is left: the next campaign finds the world as the first did."""
        self.load.pause()
        self.revive()
        waiting.until(lambda: self._holds(self._is_empty), "no job is left", timeout_s=UP_S, every_s=1.0)
        self.load.forget(set(self.load.accepted))
        self.judged()

    def _is_empty(self) -> bool:
        """Whether nothing is left; what is there is deleted, and its finalizers with it."""
        objects = [(path, one) for path in (JOBS, WORKLOADS, PODS) for one in self.api.items(path)]
        planted = [one for one in self.api.items(CLAIMS) if one["metadata"]["name"].startswith(PLANTED)]
        for path, one in objects:
            if one["metadata"].get("finalizers"):
                self.api.patch(f"{path}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
            self.api.delete(f"{path}/{one['metadata']['name']}")
        for one in planted:
            path = f"{CLAIMS}/{one['metadata']['name']}"
            self.api.call("PUT", f"{path}/status", {**one, "status": {}})
            self.api.delete(path)
        return not objects and not planted

    def _holds(self, condition: Callable[[], bool]) -> bool:
        """False too while the API server cannot say, as it does for new kinds, or what is asked about has gone."""
        with contextlib.suppress(AwayError, RefusedError):
            return condition()
        return False


def _end(replica: Replica) -> None:
    if replica.runs:
        replica.kill()


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def inside_keeper(world: World, *argv: str) -> None:
    """Run ``argv`` in the keeper's mount namespace. Raises CalledProcessError."""
    command = ["nsenter", f"--target={world.keeper.pid}", "--mount", "--", *argv]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
