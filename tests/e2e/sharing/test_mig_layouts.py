"""GPUs are cut into MIG instances on a real kubelet, under pods that run: what they hold stays, what is free changes.

GPU 0 stays whole throughout: its resource and its pod must not notice anything.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.report import NodeReport
from agent.words import mig as words
from hack.cluster.cluster import Cluster
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, held_by, until

pytestmark = pytest.mark.e2e

H100 = "NVIDIA H100 80GB HBM3"
ONE, TWO, THREE, FOUR, SEVEN = (f"nvidia.com/mig-{p}" for p in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"))
LABEL = "nvidia.com/mig.config"
PARTED = """
version: v1
mig-configs:
  all-1g.10gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
  half:
  - {devices: [2], mig-enabled: true, mig-devices: {"3g.40gb": 2}}
  - {device-filter: ["0x20B210DE"], devices: all, mig-enabled: false}
"""


def config(parted: Path, *profiles: str, busy: str = "refuse") -> str:
    """GPU 1 is cut by the layout, GPU 2 by mig-parted's label, GPU 0 by nobody."""
    return f"""
version: v1
flags: {{migStrategy: mixed}}
health: {FAST}
mig: {{configFile: {parted}}}
layout:
- {{gpus: [0], mode: whole}}
- {{gpus: [1], mode: mig, profiles: [{", ".join(profiles)}], whenBusy: {busy}}}
"""


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parted") / "config.yaml"
    path.write_text(PARTED)
    return path


@pytest.fixture(scope="module")
def agent(lab: Lab, parted: Path) -> Iterator[Agent]:
    machine = fleet(parted.with_name("fleet.yaml"), gpus=3, product=H100, migEnabled=[2])
    with lab.agent(machine, config(parted, "4g.40gb", "2g.20gb")) as agent:
        yield agent
    label(lab.cluster, None)


def label(cluster: Cluster, value: str | None) -> None:
    word = f"{LABEL}-" if value is None else f"{LABEL}={value}"
    cluster.kubectl("label", "node", "node-1", word, "--overwrite")


@pytest.fixture(autouse=True)
def as_at_first(lab: Lab, agent: Agent, parted: Path) -> None:
    """Each test finds GPU 1 cut in two."""
    agent.take_up(config(parted, "4g.40gb", "2g.20gb"))
    lab.await_amounts({GPU: 1, FOUR: 1, TWO: 1, ONE: 0, SEVEN: 0})


def instances(report: NodeReport, gpu: int) -> dict[str, str]:
    """Profile by UUID."""
    return {mig.uuid: mig.profile for mig in report.node.gpus[gpu].mig_instances}


def streams(agent: Agent) -> Mapping[str, tuple[str, int]]:
    return {name: (socket, agent.registrations(name)) for name, socket in agent.sockets().items()}


def test_free_instances_are_replaced_beside_one_that_a_pod_holds(lab: Lab, agent: Agent, parted: Path) -> None:
    whole, busy = lab.run("whole", {GPU: 1}), lab.run("busy", {FOUR: 1})
    ran, before = (whole.container, busy.container), streams(agent)
    (held,) = held_by(agent.until(lambda r: bool(held_by(r, "busy")), "the pod's device"), "busy")
    agent.reload(config(parted, "4g.40gb", "1g.10gb", "1g.10gb"))
    lab.await_amounts({GPU: 1, FOUR: 1, TWO: 0, ONE: 2})
    found = instances(agent.report(), 1)
    assert sorted(found.values()) == ["1g.10gb", "1g.10gb", "4g.40gb"]
    assert found[held] == "4g.40gb"
    assert lab.run("new", {ONE: 1}).visible[0] in found
    assert (whole.container, busy.container) == ran
    after = streams(agent)
    assert {name: after[name] for name in (GPU, FOUR)} == {name: before[name] for name in (GPU, FOUR)}


def test_a_change_that_a_pod_is_in_the_way_of_is_refused_by_its_name(lab: Lab, agent: Agent, parted: Path) -> None:
    lab.run("busy", {FOUR: 1})
    agent.until(lambda r: bool(held_by(r, "busy")), "the pod's device")
    before = instances(agent.report(), 1)
    agent.reload(config(parted, "7g.80gb"))
    said = words.busy("GPU 1", "4g.40gb at slice 0 is in use by default/busy")
    agent.until(lambda r: said in r.problems, "the refusal in tessera node")
    until(lambda: said in lab.gpunode().get("problems", []), "the refusal in the GpuNode")
    until(lambda: any(said in one.get("note", "") for one in lab.events()), "the refusal as an Event")
    assert instances(agent.report(), 1) == before
    lab.await_amounts({GPU: 1, FOUR: 1, TWO: 1})


def test_an_agent_killed_between_a_change_and_its_checkpoint_offers_no_instance_that_is_gone(
    lab: Lab, agent: Agent, parted: Path
) -> None:
    """The files are those of that moment: the journal says done, the checkpoint has the instances before the change."""
    checkpoint = agent.state_dir / "checkpoint.json"
    before = set(instances(agent.report(), 1))
    until(lambda: all(one in checkpoint.read_text() for one in before), "the checkpoint has the instances")
    kept = checkpoint.read_bytes()
    recut = config(parted, "3g.40gb", "1g.10gb")
    agent.take_up(recut)
    lab.await_amounts({FOUR: 0, TWO: 0, THREE: 1, ONE: 1})
    there = set(instances(agent.report(), 1))
    agent.sim(slow={"call": "nvmlInit", "seconds": 20.0})
    agent.kill()
    checkpoint.write_bytes(kept)
    agent.start()
    try:
        agent.until(lambda found: bool(found.servers) and all(one.streams for one in found.servers), "it serves")
        assert not agent.report().driver_up
        asked = [lab.run(f"early-{name[-7]}", {name: 1}, wait=False) for name in (FOUR, TWO)]
        assert lab.run("whole", {GPU: 1}).container, "a GPU that was not changed is given meanwhile"
        assert lab.offered().keys().isdisjoint({FOUR, TWO}), "the kubelet was offered an instance that is gone"
        assert {pod.name for pod in asked}.isdisjoint(lab.given())
    finally:
        agent.sim(slow={"call": "nvmlInit", "seconds": 0})
    lab.await_amounts({FOUR: 0, TWO: 0, THREE: 1, ONE: 1})
    assert set(lab.run("late", {THREE: 1}).visible) <= there


def test_pods_in_the_way_are_evicted_where_the_layout_says_drain(lab: Lab, agent: Agent, parted: Path) -> None:
    lab.run("busy", {FOUR: 1})
    agent.until(lambda r: bool(held_by(r, "busy")), "the pod's device")
    agent.reload(config(parted, "7g.80gb", busy="drain"))
    lab.await_amounts({GPU: 1, FOUR: 0, TWO: 0, SEVEN: 1})
    until(lambda: not lab.get("/api/v1/namespaces/default/pods/busy"), "the pod is gone")


def test_an_agent_killed_in_the_middle_finishes_in_its_next_life(lab: Lab, agent: Agent, parted: Path) -> None:
    busy = lab.run("busy", {FOUR: 1})
    agent.until(lambda r: bool(held_by(r, "busy")), "the pod's device")
    ran = busy.container
    agent.sim(gpu=1, slow={"call": "nvmlDeviceCreateGpuInstanceWithPlacement", "seconds": 600})
    wanted = agent.config = config(parted, "4g.40gb", "1g.10gb", "1g.10gb")
    agent.reload(wanted)
    # The 2g is gone, and what takes its place has not come: the middle.
    until(lambda: instances_left(agent) == 1, "half of the change")
    agent.kill()
    agent.sim(gpu=1, slow={"call": "nvmlDeviceCreateGpuInstanceWithPlacement", "seconds": 0})
    agent.start()
    until(agent.serves, f"registered (log: {agent.log_path})")
    lab.await_amounts({GPU: 1, FOUR: 1, TWO: 0, ONE: 2})
    assert busy.container == ran
    assert sorted(instances(agent.report(), 1).values()) == ["1g.10gb", "1g.10gb", "4g.40gb"]


def instances_left(agent: Agent) -> int:
    """GPU instances of GPU 1, by the hardware itself."""
    return len(agent.sim(status=True)["status"]["gpus"][1]["mig"])


def test_mig_parted_s_label_is_followed_and_answered(lab: Lab, agent: Agent) -> None:
    def answer() -> str | None:
        return lab.labels().get(f"{LABEL}.state")

    start = time.monotonic()
    label(lab.cluster, "half")
    lab.await_amounts({THREE: 2})
    took_s = time.monotonic() - start
    until(lambda: answer() == "success", "the answer success")
    print(f"\nfrom label to allocatable: {took_s:.1f} s")  # noqa: T201 - a figure for the documents
    assert sorted(instances(agent.report(), 2).values()) == ["3g.40gb", "3g.40gb"]
    label(lab.cluster, "all-1g.10gb")
    lab.await_amounts({THREE: 0, ONE: 7})
    # GPUs 0 and 1 are the layout's, and it says otherwise.
    until(lambda: answer() == "failed", "the answer failed")
    said = "conflicts with the layout of GPU 1, which takes precedence"
    agent.until(lambda r: any(said in problem for problem in r.problems), "why it failed")
    label(lab.cluster, None)
    until(lambda: answer() is None, "no answer without a question")
    lab.await_amounts({ONE: 7, FOUR: 1, TWO: 1, GPU: 1})
    label(lab.cluster, "half")
    lab.await_amounts({THREE: 2, ONE: 0})
    label(lab.cluster, None)
