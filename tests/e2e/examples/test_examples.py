"""Every file in examples/ is used as it is on a real kubelet; one that no case below names fails the first test."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from agent.health.states import HealthState
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, SHARED, Agent, Lab, Pod, fleet, held_by, until
from tests.support.e2e.queuecases import EXAMPLE_FILES

pytestmark = pytest.mark.e2e

MIG_1G, MIG_3G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


@dataclass(frozen=True)
class Case:
    """A fleet under a config: what the node then offers, and the example pods that run on it."""

    fleet: str
    offers: dict[str, int]
    config: str | None = None
    pods: dict[str, str] = field(default_factory=dict)
    """File below examples/ by the pod's name."""


AUDIT, REPAIRS = "audit-rights.yaml", "remediation-rights.yaml"
ONE, FOUR = {"one-gpu": "pod-one-gpu.yaml"}, {"four-gpus": "pod-four-gpus.yaml"}
CASES = (
    Case("a100-8.yaml", {GPU: 8}, "cdi.yaml", ONE | FOUR),
    Case("h100-8.yaml", {SHARED: 80}, "time-slicing.yaml", {"shared-gpu": "pod-shared-gpu.yaml"}),
    Case("a100-8.yaml", {SHARED: 32}, "mps.yaml", {"mps-client": "pod-mps-client.yaml"}),
    Case("mig.yaml", {GPU: 2, MIG_3G: 2, MIG_1G: 7}, "mig-mixed.yaml", {"mig-instance": "pod-mig.yaml"}),
    Case(
        "h100-8.yaml",
        {GPU: 6, MIG_3G: 2, "nvidia.com/mig-4g.40gb": 1, MIG_1G: 3},
        "mig-layout.yaml",
        {"mig-instance": "pod-mig.yaml"},
    ),
    Case("h100-8.yaml", {GPU: 2, SHARED: 4, MIG_3G: 4}, "layout.yaml", {"gpu-fraction": "pod-gpu-fraction.yaml"}),
    Case("mig-single.yaml", {GPU: 14}, "mig-single.yaml", ONE),
    Case("pairs.yaml", {GPU: 2, SHARED: 8}, "time-slicing-some.yaml", ONE | {"shared-gpu": "pod-shared-gpu.yaml"}),
    Case("h100-8.yaml", {GPU: 8}, "remediation.yaml", ONE),
    Case("dgx1.yaml", {GPU: 8}, None, FOUR),
)
ELSEWHERE = (
    "bargaining",
    "capacity",
    "checkpoint",
    "claims",
    "configs/controller",
    "demo",
    "gangs",
    "jobkinds",
    "kai",
    "kinds",
    "layouts",
    "live",
    "metrics",
    "migrate",
    "page",
    "serving-scale",
    "simulate",
    "volcano",
)


def test_every_example_is_used() -> None:
    used = {f"fleets/{case.fleet}" for case in CASES} | {"fleets/faults.yaml"}
    used |= {f"configs/{case.config}" for case in CASES if case.config}
    used |= {file for case in CASES for file in case.pods.values()}
    used |= {f"queues/{name}" for name in EXAMPLE_FILES} | {AUDIT, REPAIRS}
    # test_demo.py, tests/cli/simulate/test_command.py and test_capacity.py, tests/cli/playground/test_world.py,
    # tests/cli/migrate/test_command.py, tests/cli/simulate/test_bargaining.py, test_serving_scale.py,
    # tests/docs/test_checkpoint_example.py, tests/e2e/metrics/test_serving_queries.py,
    # tests/controller/cluster/config/test_file.py, test_plain_pods.py, test_job_kinds.py,
    # test_kinds_come_and_go.py, test_layouts.py, test_metrics.py, test_claims.py, tests/e2e/chart/test_controller.py,
    # tests/e2e/kai/test_kai.py and
    # tests/e2e/volcano/test_queues.py see to these, file by file.
    used |= {str(path.relative_to(EXAMPLES)) for folder in ELSEWHERE for path in (EXAMPLES / folder).iterdir()}
    assert used == {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}


def test_whoever_audits_may_list_and_watch_and_write_nothing(lab: Lab) -> None:
    for words in (("create", "namespace", "tessera-system"), ("apply", "-f", str(EXAMPLES / AUDIT))):
        lab.cluster.kubectl(*words)
    lab.cluster.kubectl("create", "clusterrolebinding", "auditors", "--clusterrole=tessera-audit", "--user=auditor")

    def may(*words: str) -> bool:
        command, environment = lab.cluster.kubectl_command("auth", "can-i", *words, "-A", "--as=auditor")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.strip() == "yes"

    until(lambda: may("list", "pods"), "the right is in effect")
    for kind in ("pods", "jobs.batch", "workloads.kueue.x-k8s.io", "resourceclaims.resource.k8s.io"):
        assert (may("watch", kind), may("get", kind), may("update", kind)) == (True, False, False), kind
    assert not may("list", "secrets")
    assert not may("get", "configmaps")


def test_whoever_orders_repairs_may_change_gpunodes_and_flavors_and_nothing_else(lab: Lab) -> None:
    lab.cluster.kubectl("apply", "-f", str(EXAMPLES / REPAIRS))
    lab.cluster.kubectl(
        "create", "clusterrolebinding", "repairs", "--clusterrole=tessera-remediation", "--user=repairer"
    )

    def may(*words: str) -> bool:
        command, environment = lab.cluster.kubectl_command("auth", "can-i", *words, "--as=repairer")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout.strip() == "yes"

    until(lambda: may("patch", "gpunodes.tessera.dev"), "the right is in effect")
    assert may("patch", "resourceflavors.kueue.x-k8s.io")
    assert may("list", "poddisruptionbudgets.policy", "-A")
    for words in (("patch", "nodes"), ("delete", "gpunodes.tessera.dev"), ("patch", "clusterqueues.kueue.x-k8s.io")):
        assert not may(*words), words


@pytest.fixture(params=CASES, ids=lambda case: f"{case.fleet}-{case.config}")
def case(request: pytest.FixtureRequest, lab: Lab) -> Iterator[tuple[Case, Agent]]:
    case: Case = request.param
    config = (EXAMPLES / "configs" / case.config).read_text() if case.config else None
    with lab.agent(EXAMPLES / "fleets" / case.fleet, config, api=False) as agent:
        yield case, agent


def test_the_fleet_is_offered_and_its_pods_run(lab: Lab, case: tuple[Case, Agent]) -> None:
    offered, agent = case
    lab.await_amounts({name: offered.offers.get(name, 0) for name in (GPU, SHARED, MIG_1G, MIG_3G)})
    lab.apply(*(EXAMPLES / file for file in offered.pods.values()))
    for name, file in offered.pods.items():
        pod = Pod(lab, name)
        pod.await_ready()
        assert_given(agent, pod, EXAMPLES / file)


def assert_given(agent: Agent, pod: Pod, file: Path) -> None:
    """The pod holds as many devices as its manifest asks for, and finds exactly those inside."""
    (container,) = yaml.safe_load(file.read_text())["spec"]["containers"]
    ((resource, count),) = container["resources"]["limits"].items()
    report = agent.until(lambda found: len(held_by(found, pod.name)) == count, f"{count} devices of {pod.name}")
    devices = {device.id: device for one in report.resources if one.name == resource for device in one.devices}
    held = [devices[device] for device in map(type(next(iter(devices))), held_by(report, pod.name))]
    minors = {f"/dev/nvidia{gpu.minor}" for gpu in report.node.gpus if gpu.uuid in {one.gpu for one in held}}
    if pod.visible == ["void"]:
        assert set(pod.device_nodes) == minors
    else:
        assert set(pod.visible) == {device.physical_id for device in held}


def test_a_bad_day(lab: Lab, tmp_path: Path) -> None:
    """faults.yaml, ten times as fast: GPU 3 fails and is reset, GPU 5 has a contained error, GPU 7 stays lost."""
    day = yaml.safe_load((EXAMPLES / "fleets/faults.yaml").read_text())
    (node,) = day["nodes"]
    path = fleet(tmp_path / "faults.yaml", **node)
    events = [{**event, "at": event["at"] / 10} for event in day["events"]]
    path.write_text(yaml.safe_dump({"nodes": [node], "events": events}))
    with lab.agent(path, f"health: {FAST}", api=False) as agent:
        report = agent.until(
            lambda found: any(one.gpu_index == 7 and one.state == "Unhealthy" for one in found.health), "the end"
        )
        lab.await_amounts({GPU: 7})
    index = {gpu.uuid: gpu.index for gpu in report.node.gpus}
    went = {gpu: [change.new for change in report.history if index[change.gpu] == gpu] for gpu in range(8)}
    assert went.pop(3) == [HealthState.UNHEALTHY, HealthState.PROBATION, HealthState.HEALTHY]
    assert went.pop(5) == [HealthState.SUSPECT]
    assert went.pop(7)[-1] == HealthState.UNHEALTHY
    assert not any(went.values())
