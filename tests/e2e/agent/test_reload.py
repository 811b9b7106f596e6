"""The configuration changes under a running agent: what it touches changes, the rest does not notice."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.support.e2e.lab import EXAMPLES, FAST, GPU, SHARED, WAIT_S, Agent, Lab, fleet, held_by, until

pytestmark = pytest.mark.e2e

FLEET = EXAMPLES / "fleets/dgx1.yaml"
OTHER = "nvidia.com/gpu.other"


def sharing(*entries: str) -> str:
    return f"version: v1\nsharing: {{timeSlicing: {{resources: [{', '.join(entries)}]}}}}\nhealth: {FAST}\n"


def shared(name: str, device: int, replicas: int) -> str:
    return f"{{name: {GPU}, rename: {name}, devices: [{device}], replicas: {replicas}}}"


BASE = sharing(shared(SHARED, 7, 4))
OFFERED = {GPU: 7, SHARED: 4, OTHER: 0}


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(FLEET, BASE) as agent:
        yield agent


@pytest.fixture(autouse=True)
def as_at_first(lab: Lab, agent: Agent) -> None:
    if agent.config_path.read_text() != BASE:
        agent.take_up(BASE)
    lab.await_amounts(OFFERED)


def identity(agent: Agent, resource: str) -> tuple[str, int]:
    """Socket and number of registrations: both stay while nothing touches the resource."""
    return agent.sockets()[resource], agent.registrations(resource)


def test_sighup_changes_the_resource_that_changed_and_leaves_the_others_alone(lab: Lab, agent: Agent) -> None:
    pod = lab.run("whole", {GPU: 1})
    ran, before = pod.container, {name: identity(agent, name) for name in (GPU, SHARED)}
    agent.reload(sharing(shared(SHARED, 7, 2)))
    lab.await_amounts({**OFFERED, SHARED: 2})
    assert {name: identity(agent, name) for name in (GPU, SHARED)} == before
    assert pod.container == ran


def answered(agent: Agent, before: int) -> str:
    """The GPU that Allocate gives next after ``before`` letters of the log, as soon as it does."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        found = re.search(r"msg=allocated .*devices=(GPU-\S+)", agent.log()[before:])
        if found is not None:
            return found[1]
        time.sleep(0.005)
    raise AssertionError("nothing was allocated")


@pytest.mark.parametrize("later_s", [0.0, 0.05])
def test_a_gpu_that_was_given_just_before_its_layout_changes_is_shared_with_no_second_pod(
    lab: Lab, agent: Agent, later_s: float
) -> None:
    """What the kubelet lists decides: the agent is not asked."""
    raced = "nvidia.com/gpu.raced"
    before = len(agent.log())
    lab.run("first", {GPU: 1}, wait=False)
    device = answered(agent, before)
    time.sleep(later_s)  # the kubelet has not been asked since: that is the race
    entry = f"{{gpus: [{device}], mode: timeSlicing, replicas: 2, resource: {raced}, whenBusy: wait}}"
    agent.reload(BASE + f"layout:\n- {entry}\n")
    second = lab.run("second", {raced: 1}, wait=False)
    # What is asked for later is given meanwhile: the kubelet has had its chance.
    for bystander in ("bystander", "other-bystander"):
        lab.run(bystander, {SHARED: 1})
    agent.until(lambda found: device in held_by(found, "first"), "the first pod is listed")
    given = lab.given()
    assert given["first"] == {GPU: [device]}
    assert "second" not in given
    assert lab.amounts().get(raced, 0) == 0
    lab.delete_pods("first")
    second.await_ready()
    (share,) = lab.given()["second"][raced]
    assert share.partition("::")[0] == device
    lab.delete_pods()
    agent.take_up(BASE)
    lab.await_amounts({**OFFERED, raced: 0})


def test_a_resource_that_appears_is_registered_and_one_that_goes_is_retired(lab: Lab, agent: Agent) -> None:
    before = identity(agent, SHARED)
    agent.reload(sharing(shared(SHARED, 7, 4), shared(OTHER, 6, 3)))
    lab.await_amounts({**OFFERED, GPU: 6, OTHER: 3})
    assert lab.run("other", {OTHER: 1}).visible == [agent.report().node.gpus[6].uuid]
    lab.delete_pods()
    agent.reload(BASE)
    lab.await_amounts(OFFERED)
    until(lambda: OTHER not in agent.sockets(), "its server has ended")
    assert identity(agent, SHARED) == before


def test_a_changed_file_is_noticed_without_a_signal(lab: Lab, agent: Agent) -> None:
    # As a ConfigMap's volume does it: the name leads to another file from one moment to the next.
    new = agent.config_path.with_name("next.yaml")
    new.write_text(sharing(shared(SHARED, 7, 3)))
    new.replace(agent.config_path)
    lab.await_amounts({**OFFERED, SHARED: 3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: v1\nhealth: {probationSeconds: soon}\n", "health.probationSeconds"),
        ("version: v1\nhealth: {probation: 1}\n", "probation"),
        ("version: [v1\n", "config.yaml:"),
    ],
)
def test_a_bad_config_leaves_the_old_one_in_use_and_an_event_says_so(
    lab: Lab, agent: Agent, text: str, said: str
) -> None:
    refusals = 'tessera_agent_config_reloads_total{result="error"}'
    before, refused = {name: identity(agent, name) for name in (GPU, SHARED)}, agent.metric(refusals)
    agent.reload(text)
    until(lambda: agent.metric(refusals) > refused, "it was refused")

    def told() -> bool:
        notes = [one.get("note", "") for one in lab.events() if one["type"] == "Warning"]
        return any("the old one stays" in note and said in note for note in notes)

    until(told, f"an Event on the node about {said}")
    assert lab.amounts() == {GPU: 7, SHARED: 4}
    assert {name: identity(agent, name) for name in (GPU, SHARED)} == before


def test_labels_that_no_longer_hold_are_removed(lab: Lab, agent: Agent) -> None:
    def label(name: str) -> str | None:
        return lab.labels().get(name)

    until(lambda: label("nvidia.com/gpu.count") == "8", "labels of the base config")
    assert label("nvidia.com/gpu.product") is not None
    agent.reload(BASE + "labels: {enabled: false}\n")
    until(lambda: not lab.labels(), "no label of ours")
    agent.reload(BASE)
    until(lambda: label("nvidia.com/gpu.count") == "8", "the labels again")


def test_a_bad_config_at_the_first_start_is_one_line_and_exit_code_2(lab: Lab) -> None:
    agent = lab.make_agent(FLEET, "version: v1\nflags: {migStrategy: both}\n", api=False)
    agent.start()
    assert agent.process is not None
    assert agent.process.wait(WAIT_S) == 2
    lab.agents.remove(agent)
    (line,) = agent.log().splitlines()
    assert str(agent.config_path) in line
    assert "migStrategy" in line
    assert "both" in line
    assert "mixed" in line


def test_a_bad_config_at_a_later_start_gives_way_to_the_last_good_one(lab: Lab, agent: Agent) -> None:
    assert agent.stop() == 0
    lab.await_amounts({GPU: 0, SHARED: 0})
    agent.config_path.write_text("health: {nonsense: true}\n")
    good, agent.config = agent.config, None
    agent.flags = ["--config", str(agent.config_path)]
    agent.start()
    lab.await_amounts(OFFERED)
    assert "last good" in agent.log()
    until(lambda: any("nonsense" in one.get("note", "") for one in lab.events()), "an Event on the node")
    agent.config = good


def test_two_agents_on_one_kubelet_do_not_touch_each_other(lab: Lab, agent: Agent) -> None:
    before = {name: identity(agent, name) for name in (GPU, SHARED)}
    second_fleet = fleet(
        agent.folder / "second.yaml",
        gpus=2,
        product="Tesla T4",
        nvlink="none",
        uuidPrefix="GPU-00000000-0000-0000-0001-",
    )
    second_config = 'version: v1\nresources: {gpus: [{pattern: "*T4*", name: t4}]}\n'
    with lab.agent(second_fleet, second_config, api=False, cdi_dir=agent.folder / "second-cdi") as second:
        lab.await_amounts({**OFFERED, "nvidia.com/t4": 2})
        ours, theirs = lab.run("ours", {GPU: 1}), lab.run("theirs", {"nvidia.com/t4": 1})
        assert theirs.visible[0] in {gpu.uuid for gpu in second.report().node.gpus}
        assert ours.visible[0] in {gpu.uuid for gpu in agent.report().node.gpus}
        second.kill()
        second.start()
        until(second.serves, "the second agent again")
        lab.await_amounts({**OFFERED, "nvidia.com/t4": 2})
    assert {name: identity(agent, name) for name in (GPU, SHARED)} == before
    assert lab.amounts() == {GPU: 7, SHARED: 4}
