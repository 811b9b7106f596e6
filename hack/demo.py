"""``make demo``: agent and controller from the chart on a real Kubernetes, queues that share eight GPUs, the page.

Real: API server, scheduler, controller manager, kubelet, containerd, runc, Helm, agent and controller in their pods.
Simulated: the GPUs. Each command is printed before it runs. It stays up to be played with; ``make demo-down`` ends it
without a trace.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster import prerequisites, waiting
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.image import agentimage
from hack.show import ROOT, Stopwatch, command, on_terminal, patience, say, script, step

NAME = "demo"
FLEET = ROOT / "examples/fleets/dgx1.yaml"
NAMESPACE = "tessera-system"
GPU = "nvidia.com/gpu"
SPEC = Spec(nodes=("node-1",), apiserver_args=("--enable-aggregator-routing=true",))
WAIT_S = 120.0
Json = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--down", action="store_true", help="end it, and remove everything it made")
    try:
        return _down() if parser.parse_args().down else _up()
    except ClusterError as failed:
        print(f"demo: {failed}", file=sys.stderr)
        if Cluster.of(NAME).paths.home.exists():
            print("demo: what it made so far stays to be looked at; `make demo-down` removes it", file=sys.stderr)
        return 2 if isinstance(failed, UsageError) else 1


def _down() -> int:
    # The page's server carries the cluster's mark: it goes with it.
    Cluster.of(NAME).down()
    say("demo: gone")
    return 0


def _up() -> int:
    watch = Stopwatch()
    prerequisites.ensure(kubelets=True)
    cluster = Cluster.of(NAME)
    if cluster.paths.home.exists():
        say("demo: an earlier one is removed first")
        cluster.down()
    binaries.build("helm")
    step("1. A Kubernetes: etcd, API server, scheduler, controllers, and one node with containerd and kubelet")
    cluster = _cluster(cluster)
    demo = Demo.on(cluster)
    demo.install()
    demo.queues()
    demo.preempts()
    demo.fails()
    demo.stays(watch)
    return 0


def _cluster(cluster: Cluster) -> Cluster:
    """Running, with the image of this checkout, which is made meanwhile: together they take most of the time."""
    image = cluster.paths.home.with_name(f"{NAME}-image.tar")
    image.parent.mkdir(parents=True, exist_ok=True)
    python, script_ = os.path.relpath(sys.executable, ROOT), "hack/cluster/cluster"
    making = [python, "-m", "hack.image.agentimage", str(image)]
    command([*making, "&"])
    command([script_, "up", "--name", NAME, *(f"--apiserver-arg={each}" for each in SPEC.apiserver_args)])
    with patience("starting Kubernetes and making the image"):
        made = subprocess.Popen(making, cwd=ROOT)
        try:
            cluster = Cluster.up(NAME, SPEC, say=say)
            if made.wait() != 0:
                raise ClusterError(f"{' '.join(making)}: exit {made.returncode}")
            command([script_, "load-image", "--name", NAME, str(image)])
            cluster.node("node-1").load_image(image)
        finally:
            made.kill()
            made.wait()
            image.unlink(missing_ok=True)
    return cluster


@dataclass(frozen=True)
class Demo:
    """``bin`` has kubectl, helm and tessera for this cluster, for the reader's shell too."""

    cluster: Cluster
    bin: Path

    @classmethod
    def on(cls, cluster: Cluster) -> "Demo":
        programs = cluster.paths.home / "bin"
        programs.mkdir()
        kubectl, _ = cluster.kubectl_command()
        names = {"kubectl": kubectl, "helm": [str(binaries.binary("helm"))], "tessera": [script("tessera")]}
        for name, words in names.items():
            shim = programs / name
            shim.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            shim.chmod(0o755)
        return cls(cluster, programs)

    # -- what is typed -------------------------------------------------------------------------------------------

    def types(self, line: str, *, shown: bool = True) -> None:
        """Print the command, run it, and print what it says if that is to be ``shown``. ClusterError if it fails."""
        command([line])
        text = self.said(line, **on_terminal())
        if shown and text.strip():
            print(text.rstrip(), flush=True)

    def said(self, line: str, **more: str) -> str:
        """``more``: beside its environment."""
        homes = {f"HELM_{kind}_HOME": str(self.cluster.paths.home / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **homes, "KUBECONFIG": str(self.cluster.kubeconfig), "COLUMNS": "120", **more}
        environment["PATH"] = f"{self.bin}{os.pathsep}{environment['PATH']}"
        with patience(line.partition(" -")[0]):
            done = subprocess.run(
                ["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            raise ClusterError(f"{line}: exit {done.returncode}\n{(done.stderr or done.stdout).rstrip()}")
        return done.stdout

    def got(self, what: str) -> Json:
        """An object of the cluster, or a list of them, as kubectl gets them; nothing is printed."""
        found: Json = json.loads(self.cluster.kubectl("get", *what.split(), "-o", "json"))
        return found

    @staticmethod
    def until(ready: Callable[[], bool], what: str) -> None:
        with patience(what):
            waiting.until(ready, what, timeout_s=WAIT_S)

    # -- what is shown -------------------------------------------------------------------------------------------

    def install(self) -> None:
        step("2. Agent and controller from the chart")
        values = self.cluster.paths.home / "values.yaml"
        values.write_text(json.dumps(_values()))
        command([f"export PATH={self.bin}:$PATH KUBECONFIG={self.cluster.kubeconfig}   # for your own shell too"])
        self.types(f"kubectl create namespace {NAMESPACE}", shown=False)
        label = f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=privileged"
        self.types(label, shown=False)
        watch = Stopwatch()
        self.types(f"helm install tessera charts/tessera --namespace {NAMESPACE} --values {values}", shown=False)
        for what in ("daemonset/tessera-agent", "deployment/tessera-controller"):
            self.types(f"kubectl -n {NAMESPACE} rollout status {what} --timeout=120s", shown=False)
        self.until(lambda: self._allocatable() == "8", f"8 {GPU} allocatable on node-1")
        self.types("kubectl get gpunodes")
        say(f"8 simulated V100s, found and offered {watch} after helm began")

    def queues(self) -> None:
        step("3. Three queues in a cohort: research owns 3 GPUs, production 3, notebooks 2")
        self.until(self._takes_queues, "the controller's webhook answers")
        self.types("kubectl apply -f examples/demo/queues.yaml", shown=False)
        step("4. Research asks for 6 and borrows 3 of the others; notebooks use 1 of their own; rlhf waits")
        self.types("kubectl apply -f examples/demo/research.yaml", shown=False)
        self.until(lambda: self._runs("research/pretrain") and self._runs("research/evaluation"), "research's jobs run")
        self.types("kubectl apply -f examples/demo/notebooks.yaml", shown=False)
        self.until(lambda: self._runs("notebooks/ana"), "notebooks/ana runs")
        self.types("kubectl apply -f examples/demo/waits.yaml", shown=False)
        self.until(lambda: self._waits("research/rlhf"), "research/rlhf is told why it waits")
        self.types("tessera queue list")
        self.types("tessera queue pending")

    def preempts(self) -> None:
        step("5. Production wants its own 3 back: what research borrowed last is preempted")
        self.types("kubectl apply -f examples/demo/production.yaml", shown=False)
        self.until(lambda: self._runs("production/serving"), "production/serving running")
        self.until(lambda: self._waits("research/evaluation"), "research/evaluation back in the queue")
        self.types("kubectl get kwl -A")

    def fails(self) -> None:
        gpu = self._gpu_of("ana")
        step(f"6. The GPU of notebooks/ana fails: XID 79, GPU {gpu} fell off the bus. Its job is placed anew")
        agent = f"kubectl -n {NAMESPACE} exec daemonset/tessera-agent -- tessera sim"
        self.types(f"{agent} xid --gpu {gpu} 79", shown=False)
        watch = Stopwatch()
        self.until(lambda: self._allocatable() == "7", f"7 {GPU} allocatable on node-1")
        say(f"allocatable {GPU}: 8 -> 7 after {watch}")
        self.until(lambda: self._gpu_of("ana") not in (None, gpu), "notebooks/ana runs on another GPU")
        say(f"notebooks/ana runs on GPU {self._gpu_of('ana')} after {watch}: research, which borrows, made room")
        self.types("kubectl get kwl -A")
        step("7. It is reset, passes its probation (3 s here, 10 s by default) and is back")
        watch = Stopwatch()
        self.types(f"{agent} reset --gpu {gpu}", shown=False)
        self.until(lambda: self._allocatable() == "8", f"8 {GPU} allocatable on node-1")
        say(f"allocatable {GPU}: 8 again after {watch}")

    def stays(self, watch: Stopwatch) -> None:
        step("8. The page, through the API server")
        address = self._page()
        step(f"Done in {watch}. It stays up. In a shell of yours:")
        kubectl = "hack/cluster/cluster kubectl --name demo"
        say(f"  {kubectl} get gpunodes -o yaml    the node's inventory in the API server")
        say(f"  {kubectl} describe node node-1    labels, allocatable, events")
        say("  the line with `export` above, and then kubectl, helm, or: tessera explain -n research job/rlhf")
        say("  make demo-down    ends it and removes everything it made")
        say("The page, read-only, for this machine:")
        say(address)

    def _page(self) -> str:
        """Started as a part of the cluster, so that it ends with it."""
        noted = self.cluster.paths.home / "page"
        argv = ["-m", "hack.demopage", str(self.cluster.kubeconfig), str(noted)]
        command([os.path.relpath(sys.executable, ROOT), *argv, "&"])
        self.cluster.spawn("page", [sys.executable, *argv], extra_env={"PYTHONPATH": str(ROOT)})
        self.until(noted.exists, f"the page answers (log: {self.cluster.log('page')})")
        return noted.read_text()

    # -- what is waited for --------------------------------------------------------------------------------------

    def _takes_queues(self) -> bool:
        """By a dry run: policies and webhooks come into force a moment after the controller is ready."""
        try:
            self.cluster.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "examples/queues/team-quotas.yaml"))
        except ClusterError as refused:
            return "namespaces" in str(refused) and "webhook" not in str(refused)
        return True

    def _allocatable(self) -> str:
        return str(self.got("node node-1")["status"].get("allocatable", {}).get(GPU, "0"))

    def _runs(self, job: str) -> bool:
        namespace, _, name = job.partition("/")
        found = self.got(f"job {name} -n {namespace}")
        return int(found.get("status", {}).get("ready") or 0) == int(found["spec"].get("parallelism", 1))

    def _waits(self, job: str) -> bool:
        """Whether its Workload is told why it has no quota."""
        namespace, _, name = job.partition("/")
        for workload in self.got(f"kwl -n {namespace}")["items"]:
            if any(owner["name"] == name for owner in workload["metadata"].get("ownerReferences", [])):
                conditions = workload.get("status", {}).get("conditions", [])
                return any(each["type"] == "QuotaReserved" and each["status"] == "False" for each in conditions)
        return False

    def _gpu_of(self, job: str) -> int | None:
        """The index of the first GPU that a pod of this job holds."""
        status = self.got("gpunode node-1")["status"]
        held = {one["device"] for one in status.get("holders", []) if one["pod"].startswith(f"{job}-")}
        return next((int(one["index"]) for one in status["devices"] if one["uuid"] in held), None)


def _values() -> Json:
    failures = {"policy": "notify", "coolDown": "1s"}
    return {
        "image": {"repository": agentimage.REPOSITORY, "pullPolicy": "Never"},
        "affinity": None,
        "deviceListStrategy": ["cdi-cri"],
        "simulate": {"enabled": True, "fleet": FLEET.read_text()},
        "config": {"map": {"default": {"version": "v1", "health": {"probationSeconds": 3}}}},
        "controller": {
            "replicas": 1,
            "config": {"tessera": {"gpuFailures": failures, "pendingCondition": {"after": "1s"}}},
        },
    }


if __name__ == "__main__":
    sys.exit(main())
