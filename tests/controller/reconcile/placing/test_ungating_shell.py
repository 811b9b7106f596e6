"""Pods of placed jobs, held by their gate, and what the leader makes of them."""

from typing import Any

import pytest

from controller.cluster.watching.kinds import FLAVORS, JOBS, NODES, PODS, TOPOLOGIES, WORKLOADS
from controller.jobs.framework.raw import JobError
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.objects.placeencoding import Domain
from controller.reconcile.placing.ungating import PodSetPlaces
from controller.reconcile.placing.ungating_shell import _is_place, _offsets
from kube.testing import eventually
from tests.controller.cluster.process.test_jobs import workload_of
from tests.support.controller.stage import CONFIG, Stage, config, stage, stamp
from tests.support.controller.told import page

HOST = "kubernetes.io/hostname"
GATE = {"name": "kueue.x-k8s.io/topology"}
OTHER = {"name": "example.com/other"}
INDEX = "batch.kubernetes.io/job-completion-index"
DONE = 'tessera_topology_ungated_pods_total{replica_role="standalone",result="%s"'


def hosts(scene: Stage, *names: str, cpus: int = 2) -> None:
    """A queue whose flavor is placed on these nodes."""
    scene.queue(cpus=100)
    for name in names:
        status = {"allocatable": {"cpu": str(cpus), "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {HOST: name, "pool": "gpu"}
        scene.server.create(
            NODES, name, {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels}, "status": status}
        )
    scene.make(TOPOLOGIES, "hosts", {}, spec={"levels": [{"nodeLabel": HOST}]})
    scene.server.merge(FLAVORS, "default", {"spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"}})


def job(scene: Stage, name: str, pods: int = 1, *, completions: int | None = None, mode: str = "NonIndexed") -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "suspend": True,
        "parallelism": pods,
        "completions": completions or pods,
        "completionMode": mode,
        "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    metadata = {"creationTimestamp": stamp(), "labels": {"kueue.x-k8s.io/queue-name": "lq-cq"}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    scene.server.create(JOBS, name, body, namespace="team")


async def started(scene: Stage, name: str) -> dict[str, Any]:
    """The pod template with which the job was started."""
    await eventually(lambda: not read(scene, JOBS, name)["spec"]["suspend"], what=f"{name} started")
    template: dict[str, Any] = read(scene, JOBS, name)["spec"]["template"]
    return template


def read(scene: Stage, resource: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.server.get(resource, name, namespace="team")
    return found


def pod(scene: Stage, name: str, template: dict[str, Any], *, index: int | None = None, **spec: Any) -> None:
    """As the Job controller makes it."""
    more = {**({} if index is None else {INDEX: str(index)}), **spec.pop("labels", {})}
    metadata = {**template["metadata"], "creationTimestamp": stamp(), **spec.pop("metadata", {})}
    metadata["labels"] = {**metadata["labels"], **more}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **spec}}
    scene.server.create(PODS, name, {**body, "status": {"phase": "Pending"}}, namespace="team")


def host(scene: Stage, name: str) -> str:
    """Where the pod may go; empty while it waits."""
    spec = read(scene, PODS, name)["spec"]
    held = GATE in spec.get("schedulingGates", [])
    place: str = spec.get("nodeSelector", {}).get(HOST, "")
    assert held == (not place), "a pod without its gate has its place, and none before"
    return place


def given(scene: Stage, name: str) -> dict[str, int]:
    """Pods by host, as the job's workload was admitted."""
    assignment = workload_of(scene, name)["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    (one,) = assignment["slices"]
    values, counts = one["valuesPerLevel"][0], one["podCounts"]
    if "universal" in values:
        names = [values["universal"]]
    else:
        roots = values["individual"]
        names = [roots.get("prefix", "") + root + roots.get("suffix", "") for root in roots["roots"]]
    return dict(zip(names, counts.get("individual") or [counts["universal"]] * len(names), strict=True))


async def test_the_pods_of_an_indexed_job_go_to_their_nodes_by_rank_and_the_other_gates_stay() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2")
        async with scene.controller(core_only=False) as process:
            job(scene, "a", 4, mode="Indexed")
            template = await started(scene, "a")
            assert GATE in template["spec"]["schedulingGates"]
            names = ["z", "y", "x", "w"]
            for index in (3, 1, 0, 2):
                pod(scene, names[index], template, index=index, schedulingGates=[OTHER, GATE])
            await eventually(lambda: all(host(scene, one) for one in names))
            places = given(scene, "a")
            wanted = [name for name, count in places.items() for _ in range(count)]
            assert [host(scene, one) for one in names] == wanted
            spec = read(scene, PODS, "z")["spec"]
            assert spec["schedulingGates"] == [OTHER]
            assert spec["nodeSelector"]["pool"] == "gpu"
            await eventually(lambda: DONE % "written" in page(process))
            of = 'cluster_queue="cq",is_group="false",name="kueue.x-k8s.io/topology",replica_role="standalone"'
            gone = f"kueue_pod_scheduling_gate_removal_seconds_count{{{of}}} 4"
            await eventually(lambda: gone in page(process))


async def test_a_place_is_given_once_and_again_when_its_pod_has_ended() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2", cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a", 2, completions=4)
            template = await started(scene, "a")
            for name in ("p1", "p2", "p3"):
                pod(scene, name, template)
            await eventually(lambda: sum(bool(host(scene, name)) for name in ("p1", "p2", "p3")) == 2)
            (late,) = [name for name in ("p1", "p2", "p3") if not host(scene, name)]
            first = next(name for name in ("p1", "p2") if name != late)
            scene.server.merge(PODS, first, {"status": {"phase": "Failed"}}, namespace="team")
            await eventually(lambda: host(scene, late) == host(scene, first))


async def test_a_pod_whose_patch_is_refused_keeps_its_place_and_is_tried_again() -> None:
    async with stage() as scene:
        hosts(scene, "n1")
        refusing = True
        scene.server.refuse = lambda method, path: 422 if refusing and method == "PATCH" and "/pods/" in path else None
        async with scene.controller(core_only=False) as process:
            job(scene, "a")
            pod(scene, "p1", await started(scene, "a"))
            await eventually(lambda: DONE % "refused" in page(process))
            assert not host(scene, "p1")
            refusing = False
            await eventually(lambda: bool(host(scene, "p1")))


async def test_a_patch_whose_answer_was_lost_does_not_give_the_place_twice() -> None:
    async with stage() as scene:
        hosts(scene, "n1", cpus=1)
        lost: list[str] = []

        def lose(method: str, path: str) -> bool:
            if method == "PATCH" and "/pods/" in path and not lost:
                lost.append(path)
                return True
            return False

        scene.server.lose_answer = lose
        async with scene.controller(core_only=False) as process:
            job(scene, "a")
            template = await started(scene, "a")
            pod(scene, "p2", template)
            pod(scene, "p1", template)
            await eventually(lambda: DONE % "refused" in page(process))
            assert sorted(bool(host(scene, name)) for name in ("p1", "p2")) == [False, True]


async def test_nobody_is_sent_to_a_node_that_is_lost() -> None:
    async with stage() as scene:
        hosts(scene, "n1")
        async with scene.controller(
            config(CONFIG + "featureGates: {TASFailedNodeReplacement: false}\n"), core_only=False
        ):
            job(scene, "a")
            template = await started(scene, "a")
            name = workload_of(scene, "a")["metadata"]["name"]
            lost = {"status": {"unhealthyNodes": [{"name": "n1"}]}}
            scene.server.merge(WORKLOADS, name, lost, namespace="team")
            await eventually(lambda: bool(scene.core.ledger.get(f"team/{name}").workload.status.unhealthy_nodes))  # type: ignore[arg-type,union-attr]
            pod(scene, "p1", template)
            job(scene, "b")
            other = await started(scene, "b")
            pod(scene, "p2", other)
            await eventually(lambda: bool(host(scene, "p2")))
            assert not host(scene, "p1")
            scene.server.merge(WORKLOADS, name, {"status": {"unhealthyNodes": []}}, namespace="team")
            await eventually(lambda: bool(host(scene, "p1")))


@pytest.mark.parametrize("condition", ["Evicted", "Finished"])
async def test_the_pods_of_a_workload_that_has_ended_stay_where_they_are(condition: str) -> None:
    async with stage() as scene:
        hosts(scene, "n1")
        async with scene.controller(core_only=False):
            job(scene, "a")
            template = await started(scene, "a")
            name = workload_of(scene, "a")["metadata"]["name"]
            # Its quota is not given back as long as pods run.
            running = {"active": 1, "startTime": stamp()}
            scene.server.merge(JOBS, "a", {"status": running}, namespace="team")
            ended = {
                "type": condition,
                "status": "True",
                "reason": "Test",
                "message": "",
                "lastTransitionTime": stamp(),
            }
            scene._condition(name, "team", ended)
            await eventually(
                lambda: any(
                    one.type == condition
                    for one in scene.core.ledger.get(f"team/{name}").workload.status.conditions  # type: ignore[arg-type,union-attr]
                )
            )
            pod(scene, "p1", template)
            job(scene, "b")
            pod(scene, "p2", await started(scene, "b"))
            await eventually(lambda: bool(host(scene, "p2")))
            assert not host(scene, "p1")


async def test_a_new_leader_knows_which_places_are_taken() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2", cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a", 2, mode="Indexed")
            template = await started(scene, "a")
            pod(scene, "p1", template, index=1)
            await eventually(lambda: bool(host(scene, "p1")))
        async with scene.controller(core_only=False, name="two"):
            pod(scene, "p0", template, index=0)
            await eventually(lambda: bool(host(scene, "p0")))
            assert [host(scene, "p0"), host(scene, "p1")] == list(given(scene, "a"))


async def test_with_the_feature_off_no_pod_is_touched() -> None:
    async with stage() as scene:
        hosts(scene, "n1")
        off = config(CONFIG + "featureGates: {TopologyAwareScheduling: false}\n")
        async with scene.controller(off, core_only=False):
            scene.server.merge(FLAVORS, "default", {"spec": {"topologyName": None}})
            job(scene, "a")
            template = await started(scene, "a")
            assert "schedulingGates" not in template["spec"]
            found = workload_of(scene, "a")
            assigned = found["status"]["admission"]["podSetAssignments"][0]
            slices = [{"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 1}}]
            placed = {**assigned, "topologyAssignment": {"levels": [HOST], "slices": slices}}
            admission = {**found["status"]["admission"], "podSetAssignments": [placed]}
            name = found["metadata"]["name"]
            scene.server.merge(WORKLOADS, name, {"status": {"admission": admission}}, namespace="team")
            pod(scene, "p1", template, schedulingGates=[GATE])
            job(scene, "b")
            await started(scene, "b")
            assert not scene.server.seen("PATCH", "/pods/")


async def test_pods_that_are_somebody_elses_or_on_their_way_out_take_no_place() -> None:
    async with stage() as scene:
        hosts(scene, "n1", cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a")
            template = await started(scene, "a")
            pod(scene, "a-plain", template, labels={"kueue.x-k8s.io/managed": "true"})
            pod(scene, "b-going", template, metadata={"deletionTimestamp": stamp(), "finalizers": ["example.com/f"]})
            pod(scene, "c-ours", template)
            await eventually(lambda: bool(host(scene, "c-ours")))
            assert not host(scene, "a-plain")
            assert not host(scene, "b-going")


async def test_an_index_that_two_pods_share_is_no_rank() -> None:
    async with stage() as scene:
        hosts(scene, "n1", "n2", cpus=1)
        async with scene.controller(core_only=False):
            job(scene, "a", 2)
            template = await started(scene, "a")
            for name in ("p1", "p2"):
                pod(scene, name, template, index=0)
            await eventually(lambda: {host(scene, "p1"), host(scene, "p2")} == {"n1", "n2"})


def test_a_pod_keeps_what_its_assignment_still_has_and_none_where_it_has_places_now() -> None:
    placed = PodSetPlaces(name="main", count=1, needed=1, levels=(HOST,), domains=(Domain(("n1",), 1),))
    free = PodSetPlaces(name="other", count=1, needed=1)
    assert [_is_place({HOST: host}, [free, placed]) for host in ("n1", "n2")] == [True, False]
    assert [_is_place({}, sets) for sets in ([placed], [placed, free], [])] == [False, True, False]


@pytest.mark.parametrize("said", ["one", "1.5", ""])
def test_a_first_number_that_is_none_lets_no_pod_go_by_a_wrong_rank(said: str) -> None:
    meta = {"name": "p", "labels": {"kueue.x-k8s.io/podset": "main"}}
    told = decode({"metadata": {**meta, "annotations": {"kueue.x-k8s.io/pod-index-offset": said}}}, Pod)
    with pytest.raises(JobError, match="pod-index-offset"):
        _offsets([told])


def test_the_first_number_is_that_of_the_pods() -> None:
    meta = {"name": "p", "labels": {"kueue.x-k8s.io/podset": "main"}}
    told = decode({"metadata": {**meta, "annotations": {"kueue.x-k8s.io/pod-index-offset": "3"}}}, Pod)
    assert _offsets([decode({"metadata": meta}, Pod), told]) == {"main": 3}
