"""Jobs make pods, pods get nodes and GPUs, and no GPU is in two hands."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cli.playground.cluster import GPU, KEPT_S, Cluster, Create, Delete, Merge, PlaygroundNode, Seen
from controller.cluster.watching.kinds import JOBS, PODS, WORKLOADS
from inventory.api.names import DEVICES
from kube.errors import NotFoundError
from kube.resources import Resource
from kube.testing.store import Store

Json = dict[str, Any]


class Lab:
    """A store, two machines of four GPUs, and seconds that pass."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.store = Store()
        self.broken: set[str] = set()
        self.now_s = 1_000_000.0

    def job(self, name: str, gpus: int, pods: int = 1, runtime: str = "10s", **template: Any) -> None:
        container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
        inner = {"metadata": template, "spec": {"containers": [container]}}
        notes = {"tessera.dev/runtime": runtime}
        body = {"kind": "Job", "metadata": {"annotations": notes}, "spec": {"parallelism": pods, "template": inner}}
        self.store.create((JOBS.path(), "team", name), body)

    def suspend(self, name: str, *, on: bool) -> None:
        self.store.merge_patch((JOBS.path(), "team", name), {"spec": {"suspend": on}})

    def step(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        nodes = {}
        for node in ("n1", "n2"):
            gpus = tuple(f"{node}-{index}" for index in range(4))
            nodes[node] = PlaygroundNode({"kubernetes.io/hostname": node}, gpus, frozenset(gpus) - self.broken)
        seen = Seen(self.all(JOBS), self.all(PODS), self.all(WORKLOADS), nodes)
        for write in self.cluster.step(seen, self.now_s):
            match write:
                case Create(resource=resource, body=body):
                    self.store.create((resource.path(), body["metadata"]["namespace"], body["metadata"]["name"]), body)
                case Merge(resource=resource, namespace=namespace, name=name, patch=patch):
                    self.store.merge_patch((resource.path(), namespace, name), patch)
                case Delete(resource=resource, namespace=namespace, name=name):
                    self.store.delete((resource.path(), namespace, name))
        self.cluster.validate()

    def all(self, resource: Resource) -> list[Json]:
        return self.store.list_all(resource.path(), "")

    def held(self) -> int:
        return len(self.cluster.holders("n1")) + len(self.cluster.holders("n2"))

    def status(self, name: str) -> Json:
        found: Json = self.store.get((JOBS.path(), "team", name)).render().get("status", {})
        return found


def test_a_job_runs_for_its_time_ends_and_is_gone_with_its_pods_a_while_later() -> None:
    lab = Lab()
    lab.job("train", gpus=2, pods=2)
    lab.step()
    lab.step()
    lab.step()
    assert (lab.status("train")["ready"], lab.held()) == (2, 4)
    lab.step(10.0)
    lab.step()
    assert [each["type"] for each in lab.status("train")["conditions"]] == ["Complete"]
    assert lab.held() == 0
    lab.step(KEPT_S)
    lab.step()
    assert (lab.all(JOBS), lab.all(PODS)) == ([], [])


def test_a_suspended_job_gives_back_its_gpus_and_says_so() -> None:
    lab = Lab()
    lab.job("train", gpus=4)
    for _ in range(3):
        lab.step()
    lab.suspend("train", on=True)
    lab.step()
    lab.step()
    status = lab.status("train")
    assert (lab.held(), lab.all(PODS), status["active"]) == (0, [], 0)
    assert [each["type"] for each in status["conditions"]] == ["Suspended"]
    lab.suspend("train", on=False)
    for _ in range(3):
        lab.step()
    assert (lab.held(), lab.status("train")["ready"]) == (4, 1)


def test_a_pod_gets_the_planned_gpus_on_the_node_that_it_names() -> None:
    lab = Lab()
    lab.job("train", gpus=2, annotations={DEVICES: "n2-1,n2-3"})
    template = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}}}}
    lab.store.merge_patch((JOBS.path(), "team", "train"), template)
    lab.step()
    lab.step()
    assert set(lab.cluster.holders("n2")) == {"n2-1", "n2-3"}


def test_a_failed_gpu_is_given_to_nobody() -> None:
    lab = Lab()
    lab.broken = {"n1-0"}
    lab.job("whole", gpus=4)
    lab.step()
    lab.step()
    assert set(lab.cluster.holders("n2")) == {f"n2-{index}" for index in range(4)}


def test_a_gated_pod_waits() -> None:
    lab = Lab()
    lab.job("train", gpus=1)
    gates = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "queue"}]}}}}
    lab.store.merge_patch((JOBS.path(), "team", "train"), gates)
    for _ in range(3):
        lab.step()
    assert (len(lab.all(PODS)), lab.held()) == (1, 0)


CHANGES = st.tuples(st.sampled_from("abc"), st.sampled_from(["stop", "go", "gone", "new", "break", "mend"]))


@settings(max_examples=30, deadline=None)
@given(st.lists(CHANGES, max_size=12))
def test_no_gpu_is_in_two_hands_whatever_comes_and_goes(changes: list[tuple[str, str]]) -> None:
    lab = Lab()
    for name, change in changes:
        key = (JOBS.path(), "team", name)
        try:
            match change:
                case "stop" | "go":
                    lab.suspend(name, on=change == "stop")
                case "gone":
                    lab.store.delete(key)
                case "new" if key not in lab.store.objects:
                    lab.job(name, gpus=2, pods=2, runtime="3s")
                case "break" | "mend":
                    lab.broken ^= {"n1-0", "n2-1"}
        except NotFoundError:
            continue
        lab.step()
    assert lab.held() <= 8
