"""``make demo``: pods on a real Kubernetes get GPUs that the agent found, linked, shared and handed out.

Real: API server, scheduler, controller manager, kubelet, containerd, runc, the agent. Simulated: the GPUs. It stays up
to be played with; ``make demo-down`` ends it without a trace.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from deviceplugin.strategy import DeviceListStrategy
from hack.agents import AgentProcess
from hack.cluster import waiting
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.layout import MARK_ENV
from hack.cluster.state import Spec
from hack.show import ROOT, Stopwatch, command, run, say, script, step

NAME = "demo"
FLEET = ROOT / "examples/fleets/dgx1.yaml"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CONFIG = f"""# GPU 7 is shared by up to four pods, the others are whole.
version: v1
flags: {{plugin: {{deviceListStrategy: [{DeviceListStrategy.ENVVAR.value}], passDeviceSpecs: true}}}}
sharing:
  timeSlicing:
    resources: [{{name: {GPU}, rename: {SHARED}, devices: [7], replicas: 4}}]
health: {{probationSeconds: 3}}
"""
PODS = {"one GPU": "one-gpu", "four GPUs": "four-gpus", "a share of one": "shared-gpu"}
WAIT_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="hack.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--down", action="store_true", help="end it, and remove everything it made")
    try:
        return _down() if parser.parse_args().down else _up()
    except ClusterError as failed:
        print(f"demo: {failed}", file=sys.stderr)
        return 2 if isinstance(failed, UsageError) else 1


def _down() -> int:
    # The agent carries the cluster's mark: it goes with it.
    Cluster.of(NAME).down()
    say("demo: gone")
    return 0


def _up() -> int:
    watch = Stopwatch()
    cluster = Cluster.of(NAME)
    if cluster.paths.home.exists():
        say("demo: an earlier one is removed first")
        cluster.down()
    step("1. A Kubernetes: etcd, API server, scheduler, controllers, and one node with containerd and kubelet")
    cluster = Cluster.up(NAME, Spec(nodes=("node-1",)), say=say)
    agent = _start_agent(cluster)
    try:
        _show(cluster, agent)
    except BaseException:
        say(f"demo: the agent's log is {agent.log_path}")
        raise
    _explain(cluster, agent, watch)
    return 0


def _start_agent(cluster: Cluster) -> AgentProcess:
    node = cluster.node("node-1")
    agent = AgentProcess(
        folder=cluster.paths.home / "agent",
        fleet=FLEET,
        kubelet_dir=node.paths.kubelet_dir,
        cdi_dir=node.paths.cdi_dir,
        kubeconfig=str(cluster.kubeconfig),
        config=CONFIG,
        environment={MARK_ENV: str(cluster.paths.home)},
    )
    _apply(cluster, *sorted((ROOT / "charts/tessera/crds").glob("*.yaml")))
    agent.start()
    return agent


def _show(cluster: Cluster, agent: AgentProcess) -> None:
    watch = Stopwatch()
    _wait_allocatable(cluster, GPU, "7")
    step(f"2. The agent on node-1 found 8 simulated V100s (a DGX-1) and registered with the kubelet in {watch}")
    command(["tessera", "node", "gpus", "links", "resources"])
    say(run([script("tessera"), "node", "--state-dir", str(agent.state_dir), "gpus", "links", "resources"]).rstrip())

    step("3. Three pods; what they got, read back from inside their containers")
    _apply(cluster, *(ROOT / f"examples/pod-{name}.yaml" for name in PODS.values()))
    cluster.kubectl("wait", "--for=condition=Ready", "pod", *PODS.values(), f"--timeout={WAIT_S:.0f}s")
    for what, pod in PODS.items():
        seen = cluster.kubectl("exec", pod, "--", "sh", "-c", "ls /dev/nvidia[0-9]*")
        gpus = sorted(map(int, re.findall(r"nvidia(\d+)", seen)))
        say(f"{pod:<11} asked for {what:<15} and has GPU{'s' if len(gpus) > 1 else ''} {', '.join(map(str, gpus))}")

    step("4. A GPU that nobody holds fails: XID 79, it fell off the bus")
    held = {str(holder.device) for holder in agent.report().holders}
    victim = next(gpu.index for gpu in agent.report().node.gpus if gpu.uuid not in held and gpu.index < 7)  # noqa: PLR2004
    before = _allocatable(cluster, GPU)
    watch = Stopwatch()
    command(["tessera", "sim", "xid", "--gpu", str(victim), "79"])
    agent.sim(gpu=victim, xid=79)
    _wait_allocatable(cluster, GPU, str(int(before) - 1))
    say(f"allocatable {GPU}: {before} -> {_allocatable(cluster, GPU)} after {watch}")

    step("5. It is reset, passes its probation (3 s here, 10 s by default) and is back")
    watch = Stopwatch()
    command(["tessera", "sim", "reset", "--gpu", str(victim)])
    agent.sim(gpu=victim, reset=True)
    _wait_allocatable(cluster, GPU, before)
    say(f"allocatable {GPU}: {before} again after {watch}")
    say(run([script("tessera"), "node", "--state-dir", str(agent.state_dir), "history"]).rstrip())


def _explain(cluster: Cluster, agent: AgentProcess, watch: Stopwatch) -> None:
    step(f"Done in {watch}. It stays up:")
    tessera = os.path.relpath(script("tessera"))
    say(f"  {tessera} node --state-dir {agent.state_dir}             everything the agent knows")
    say(f"  {tessera} sim --state-dir {agent.state_dir} xid --gpu 0 48   another fault (--help: more)")
    say("  hack/cluster/cluster kubectl --name demo get gpunodes -o yaml     the node's inventory in the API server")
    say("  hack/cluster/cluster kubectl --name demo describe node node-1     labels, allocatable, events")
    say(f"  export KUBECONFIG={cluster.kubeconfig}    for your own kubectl")
    say("  make demo-down                             ends it and removes everything it made")


def _apply(cluster: Cluster, *files: Path) -> None:
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))


def _allocatable(cluster: Cluster, resource: str) -> str:
    node = json.loads(cluster.kubectl("get", "node", "node-1", "-o", "json"))
    return str(node["status"].get("allocatable", {}).get(resource, "0"))


def _wait_allocatable(cluster: Cluster, resource: str, amount: str) -> None:
    waiting.until(
        lambda: _allocatable(cluster, resource) == amount,
        f"{amount} {resource} allocatable on node-1",
        timeout_s=WAIT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
