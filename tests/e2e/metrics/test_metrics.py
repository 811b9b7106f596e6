"""A real Prometheus scrapes real agents: pods whose load is known, on a GPU of their own, on a shared one, under MIG.

The pods are real ones on a real kubelet; only what their processes do to the GPU is simulated, under their real pids.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.telemetry.collectors import read
from hack import prometheus
from hack.agents import AgentProcess
from hack.cluster.layout import MARK_ENV
from hack.prometheus import Prometheus
from tests.support.agent.dcgm_exporter import DASHBOARD_12239
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, SHARED, Agent, Lab, Pod, fleet, until

pytestmark = pytest.mark.e2e

H100 = "NVIDIA H100 80GB HBM3"
CONFIG = f"""version: v1
sharing: {{timeSlicing: {{resources: [{{name: {GPU}, rename: {SHARED}, devices: [0], replicas: 4}}]}}}}
health: {FAST}
metrics: {{interval: 1}}
"""
MIG = {"migEnabled": [0], "mig": {0: ["3g.40gb", "1g.10gb"]}}
LOADS = {"train": 0.6, "serve": 0.2, "alone": 0.9}
HERE = '{Hostname="node-1"}'
UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    path = fleet(tmp_path_factory.mktemp("fleet") / "fleet.yaml", gpus=2, product=H100)
    with lab.agent(path, CONFIG) as agent:
        yield agent


@pytest.fixture(scope="module")
def cut(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """A second agent, of a node without a kubelet: a GPU in MIG mode."""
    folder = tmp_path_factory.mktemp("cut")
    path = fleet(folder / "fleet.yaml", gpus=1, product=H100, **MIG)
    environment = {MARK_ENV: str(lab.cluster.paths.home)}
    flags = ("--metrics-interval", "1")
    one = AgentProcess(folder / "a", path, folder / "k", node_name="node-2", flags=flags, environment=environment)
    one.start()
    yield one
    assert one.stop() == 0


@pytest.fixture(scope="module")
def watching(
    lab: Lab, agent: Agent, cut: AgentProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    prometheus.ensure()
    targets = [f"127.0.0.1:{one.port}" for one in (agent, cut)]
    environment = {**os.environ, MARK_ENV: str(lab.cluster.paths.home)}
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets).running(environment) as one:
        yield one


def process_of(pod: Pod) -> int:
    """The host's pid of the pod's first process."""
    container = pod.container.rpartition("://")[2]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if container in (folder / "cgroup").read_text():
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError(f"no process in {container}")


@pytest.fixture
def busy(lab: Lab, agent: Agent) -> dict[str, Pod]:
    """Three pods at work: two share GPU 0, one has GPU 1."""
    asks = {"train": SHARED, "serve": SHARED, "alone": GPU}
    pods = {name: lab.run(name, {resource: 1}, wait=False) for name, resource in asks.items()}
    for name, pod in pods.items():
        pod.await_ready()
        gpu = 1 if name == "alone" else 0
        load = {"pid": process_of(pod), "smUtil": LOADS[name], "memUsedMiB": 1000 + 1000 * LOADS[name], "powerW": 200}
        agent.sim(gpu=gpu, load=load)
    return pods


def test_each_pod_has_its_own_part_and_the_parts_are_the_whole(busy: dict[str, Pod], watching: Prometheus) -> None:
    wanted = {("0", "train"): 60, ("0", "serve"): 20, ("0", ""): 0, ("1", "alone"): 90}

    def shown() -> bool:
        found = watching.values(f"{UTIL}{HERE}", "gpu", "pod")
        return {key: round(value, 3) for key, value in found.items()} == wanted

    until(shown, f"each pod's utilisation: {wanted}")
    assert watching.values(f'{USED}{{pod!=""}}', "pod") == {("train",): 1600, ("serve",): 1200, ("alone",): 1900}
    for name in ("tessera_pod_gpu_power_estimate_watts", "tessera_pod_gpu_sm_utilization_ratio"):
        whole = f"DCGM_FI_DEV_POWER_USAGE{HERE}" if "power" in name else f"{UTIL}{HERE} / 100"
        apart = watching.values(f"sum by (UUID) ({name}{HERE}) - sum by (UUID) ({whole})", "UUID")
        assert list(apart.values()) == pytest.approx([0, 0], abs=1e-4), "parts and rest are the device's value"
    assert watching.values("tessera_gpu_allocation", "pod", "mode") == {
        ("train", "time-slicing"): 0.25,
        ("serve", "time-slicing"): 0.25,
        ("alone", "whole"): 1,
    }
    assert watching.values("tessera_pod_gpu_use", "pod", "use") == {(name, "active"): 1 for name in busy}
    energy = 'increase(tessera_pod_gpu_energy_estimate_joules_total{pod="alone"}[1m])'
    until(lambda: sum(watching.values(energy, "pod").values()) > 0, "energy counted")


def test_a_pod_that_is_gone_has_no_series(lab: Lab, busy: dict[str, Pod], watching: Prometheus) -> None:
    until(lambda: ("train",) in watching.values(UTIL, "pod"), "train is shown")
    pid = process_of(busy["train"])
    lab.delete_pods("train")
    until(lambda: ("train",) not in watching.values(UTIL, "pod"), f"train (pid {pid}) is not shown any more", 60)
    assert ("serve",) in watching.values(UTIL, "pod")


def test_the_public_dashboards_queries_all_return_data(busy: dict[str, Pod], watching: Prometheus) -> None:  # noqa: ARG001
    def answered() -> list[str]:
        return [query for query in DASHBOARD_12239 if watching.query(_selected(query))]

    until(lambda: len(answered()) == len(DASHBOARD_12239), f"answers to all of {DASHBOARD_12239}")
    variables = watching.values(f"count by (instance, gpu) ({UTIL})", "instance", "gpu")
    assert len(variables) == 2, "the dashboard's variables"


def _selected(query: str) -> str:
    """With the selectors that the dashboard's variables make."""
    return re.sub(r"(DCGM_\w+)", r'\1{instance=~"127.0.0.1:.*", gpu=~"0|1"}', query)


def test_prometheus_takes_the_example_of_its_config(watching: Prometheus, tmp_path: Path) -> None:  # noqa: ARG001
    config = yaml.safe_load((EXAMPLES / "metrics/prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    (discovery,) = job.pop("kubernetes_sd_configs")  # Debian builds its Prometheus without
    assert discovery["role"] == "pod"
    assert job["honor_labels"], "or the agent's own pod would stand on every series"
    path = tmp_path / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    subprocess.run(["promtool", "check", "config", "--syntax-only", path], check=True)


def test_the_example_of_a_collectors_file_chooses_the_fields(agent: Agent, watching: Prometheus) -> None:
    chosen = yaml.safe_load((EXAMPLES / "metrics/agent.yaml").read_text())["metrics"]
    assert chosen["collectors"].endswith("/counters.csv")
    chosen |= {"collectors": str(EXAMPLES / "metrics/counters.csv"), "interval": 1}
    agent.reload(CONFIG.replace("metrics: {interval: 1}", f"metrics: {json.dumps(chosen)}"))
    fields = {field.name for field in read(EXAMPLES / "metrics/counters.csv").series}

    def shown() -> bool:
        found = watching.values('count by (__name__) ({__name__=~"DCGM_.*", hostname="node-1"})', "__name__")
        return {name for (name,) in found} == fields

    try:
        until(shown, f"the file's fields alone: {fields}")
    finally:
        agent.reload(CONFIG)
    until(lambda: bool(watching.query(f"DCGM_FI_DEV_MEM_CLOCK{HERE}")), "the usual fields again")


def test_mig_is_labelled_and_busy_in_the_same_metric(cut: AgentProcess, watching: Prometheus) -> None:
    until(lambda: bool(watching.query('DCGM_FI_DEV_FB_USED{Hostname="node-2"}')), "the second node's instances")
    instances = [mig for gpu in cut.report().node.gpus for mig in gpu.mig_instances]
    for mig in instances:
        cut.sim(gpu=0, load={"gi": mig.gi_id, "ci": mig.ci_id, "smUtil": 0.5 if mig.gi_slices == 3 else 0.25})
    wanted = {("0", mig.profile, str(mig.gi_id)): 0.5 if mig.gi_slices == 3 else 0.25 for mig in instances}

    def shown() -> bool:
        labels = ("gpu", "GPU_I_PROFILE", "GPU_I_ID")
        found = watching.values('tessera_gpu_busy_ratio{Hostname="node-2", GPU_I_ID!=""}', *labels)
        return {key: round(value, 3) for key, value in found.items()} == wanted

    until(shown, f"busy ratios {wanted}")
    assert watching.query(f'{UTIL}{{Hostname="node-2"}}') == []


def test_an_open_fault_is_a_gauge_that_goes_back_and_a_counter_that_does_not(
    agent: Agent, watching: Prometheus
) -> None:
    gauge, counter = 'tessera_gpu_open_xid{Hostname="node-1",gpu="1"}', 'tessera_gpu_xid_errors_total{xid="48"}'
    agent.sim(gpu=1, xid=48)
    until(lambda: list(watching.values(gauge, "gpu").values()) == [48], "the open fault")
    agent.sim(gpu=1, reset=True)
    until(lambda: list(watching.values(gauge, "gpu").values()) == [0], "no fault any more", 60)
    assert list(watching.values(counter, "xid").values()) == [1]
    agent.until(lambda report: not report.faults, "healthy again")
