"""What the rules about foreign kinds say, and which scheduler binds."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.foreign.rules.kai import KAI_POD_GROUP, KAI_QUEUE
from controller.foreign.rules.ruled import ForeignKind, created, deleted, updated
from controller.foreign.rules.schedulers import bound_by
from controller.foreign.rules.volcanojob import VOLCANO_JOB
from controller.foreign.rules.volcanoqueue import NO_NODE_GROUPS, VOLCANO_POD_GROUP, VOLCANO_QUEUE

Json = dict[str, Any]


def job(*tasks: Json, **spec: Any) -> Json:
    listed = [{"name": f"t{place}", "replicas": 2, **task} for place, task in enumerate(tasks or ({},))]
    return {"metadata": {"name": "j"}, "spec": {"tasks": listed, **spec}}


def told(kind: ForeignKind, given: Json, before: Json | None = None) -> list[str]:
    found = created(kind, given) if before is None else updated(kind, before, given)
    return [f"{each.field}: {each.sentence}" for each in found]


EXAMPLES = Path(__file__).parents[4] / "examples" / "volcano"


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.stem)
def test_an_example_breaks_no_rule(file: Path) -> None:
    kinds = {
        (f"{kind.group}/{kind.version}", kind.kind): kind for kind in (VOLCANO_JOB, VOLCANO_QUEUE, VOLCANO_POD_GROUP)
    }
    ruled = [each for each in yaml.safe_load_all(file.read_text()) if each["kind"] != "Pod"]
    assert ruled
    assert {sentence for each in ruled for sentence in told(kinds[each["apiVersion"], each["kind"]], each)} == set()


RESTART = {"event": "PodFailed", "action": "RestartJob"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (job({}, {"name": "t0"}), "spec.tasks: expected each name once, found again 't0'"),
        (job({"minAvailable": 3}), "spec.tasks[0].minAvailable: expected at most 2, the task's replicas, found 3"),
        (job({}, minAvailable=3), "spec.minAvailable: expected at most 2, the replicas of all tasks, found 3"),
        (
            job({"name": "x" * 61}),
            "spec.tasks[0].name: expected names of pods of at most 63 characters, found 65",
        ),
        (
            job({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}),
            (
                "spec.tasks[0].partitionPolicy: expected totalPartitions times partitionSize to be the task's replicas"
                " (2), found 4"
            ),
        ),
        (
            job({"dependsOn": {"name": ["t1"]}}, {"dependsOn": {"name": ["ps"]}}),
            "spec.tasks[1].dependsOn.name: expected names of other tasks, found 'ps'",
        ),
        (
            job(plugins={"nccl": []}),
            "spec.plugins: expected one of svc, ssh, env, pytorch, tensorflow, mpi, ray, hcclrank, found 'nccl'",
        ),
        (
            job(plugins={"mpi": ["--master=boss"]}),
            "spec.plugins.mpi: expected a task called 'boss', the master, found none",
        ),
        (
            job(volumes=[{"mountPath": "/a", "volumeClaimName": "c"}, {"mountPath": "/a", "volumeClaim": {}}]),
            "spec.volumes: expected each mountPath once, found again '/a'",
        ),
        (
            job(volumes=[{"mountPath": "/a"}]),
            "spec.volumes[0]: expected volumeClaim or volumeClaimName, found neither",
        ),
        (
            job(networkTopology={"highestTierAllowed": 1, "highestTierName": "rack"}),
            "spec.networkTopology: expected highestTierAllowed or highestTierName, found both",
        ),
        (
            job({"topologyPolicy": "best-effort", "template": {"spec": {"containers": [{"name": "c"}]}}}),
            "spec.tasks[0].topologyPolicy: expected whole CPUs in every container with topologyPolicy",
        ),
        (
            job({"topologyPolicy": "restricted"}),
            (
                "spec.tasks[0].topologyPolicy: no scheduler places pods on NUMA nodes here: expected none or"
                " best-effort, with tessera.dev/required-gpu-link for GPUs, found 'restricted'"
            ),
        ),
        (
            job(policies=[{**RESTART, "exitCode": 3}]),
            "spec.policies[0]: expected an event or an exitCode, found both",
        ),
        (
            job(policies=[{"event": "OutOfSync", "action": "RestartJob"}]),
            (
                "spec.policies[0].events: expected one of *, PodPending, PodFailed, PodEvicted, Unknown, TaskCompleted,"
                " TaskFailed, JobUpdated, found 'OutOfSync'"
            ),
        ),
        (
            job({"policies": [{"event": "PodFailed", "action": "SyncJob"}]}),
            (
                "spec.tasks[0].policies[0].action: expected one of AbortJob, RestartJob, RestartTask, RestartPod,"
                " RestartPartition, TerminateJob, CompleteJob, ResumeJob, found 'SyncJob'"
            ),
        ),
        (
            job(policies=[{"exitCode": 0, "action": "AbortJob"}]),
            "spec.policies[0].exitCode: expected a number other than 0, found 0",
        ),
        (
            job(policies=[RESTART, {"events": ["PodEvicted", "PodFailed"], "action": "AbortJob"}]),
            "spec.policies: expected each event and each exitCode once, found again 'PodFailed'",
        ),
        (
            job(policies=[RESTART, {"event": "*", "action": "AbortJob"}]),
            "spec.policies: expected the event * alone, found others beside it",
        ),
    ],
)
def test_a_job_is_refused_with_one_sentence(given: Json, sentence: str) -> None:
    assert told(VOLCANO_JOB, given) == [sentence]


def test_minimums_replicas_and_the_priority_class_may_change_and_nothing_else() -> None:
    before = job({"minAvailable": 1, "template": {"spec": {}}}, minAvailable=1, queue="a")
    after = job({"minAvailable": 3, "replicas": 3, "template": {"spec": {}}}, minAvailable=3, queue="a")
    assert told(VOLCANO_JOB, {**after, "spec": {**after["spec"], "priorityClassName": "p"}}, before) == []
    assert told(VOLCANO_JOB, job({"template": {"spec": {"a": 1}}}, queue="a"), before) == [
        (
            "spec.tasks[0].template: expected no change: of a job only minAvailable, priorityClassName and the tasks'"
            " replicas and minAvailable change"
        )
    ]
    assert [each.partition(":")[0] for each in told(VOLCANO_JOB, job({}, {}, queue="b"), before)] == [
        "spec.queue",
        "spec.tasks",
    ]


def test_the_name_that_the_controller_wrote_for_a_claim_is_no_change() -> None:
    claim = {"mountPath": "/a", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}
    named = job(volumes=[{**claim, "volumeClaimName": "j-pvc-1"}])
    assert told(VOLCANO_JOB, job(volumes=[claim]), named) == []
    other = job(volumes=[{"mountPath": "/a", "volumeClaimName": "mine"}])
    assert [each.partition(":")[0] for each in told(VOLCANO_JOB, other, named)] == ["spec.volumes"]


def queue(name: str = "q", status: Json | None = None, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec, "status": status or {}}


def test_a_queue_deserves_what_it_is_guaranteed_and_is_not_its_own_parent() -> None:
    lacking = queue(deserved={"cpu": "1"}, guarantee={"resource": {"cpu": "1500m", "memory": "1Gi"}})
    assert told(VOLCANO_QUEUE, lacking) == [
        "spec.guarantee.resource[cpu]: expected at most what is deserved ('1'), found '1500m'"
    ]
    assert told(VOLCANO_QUEUE, queue(parent="q")) == ["spec.parent: expected another queue, found the queue itself"]


def test_the_root_has_what_the_cluster_has() -> None:
    changed = told(VOLCANO_QUEUE, queue("root", capability={"cpu": 1}), queue("root"))
    assert changed == ["spec.capability: expected no change: the root queue has what the cluster has"]
    assert told(VOLCANO_QUEUE, queue("q", capability={"cpu": 1}), queue("q")) == []


def test_queues_that_are_needed_are_not_deleted() -> None:
    def sentences(kind: ForeignKind, given: Json) -> list[str]:
        return [f"{each.field}: {each.sentence}" for each in deleted(kind, given)]

    stays = "metadata.name: expected a queue other than default and root: they are there for jobs without a queue"
    assert sentences(VOLCANO_QUEUE, queue("default")) == sentences(VOLCANO_QUEUE, queue("root")) == [stays]
    groups = {"running": 2, "pending": 1, "completed": 4}
    assert sentences(VOLCANO_QUEUE, queue(status=groups)) == ["status: expected a queue without pod groups, found 3"]
    assert sentences(VOLCANO_QUEUE, queue(status={"completed": 4})) == []
    children = sentences(KAI_QUEUE, queue(status={"childQueues": ["a"]}))
    assert children == ["status.childQueues: expected a queue without child queues, found 'a'"]


def test_pod_groups_of_volcano_name_a_tier_in_one_way() -> None:
    both = {"mode": "soft", "highestTierAllowed": 1, "highestTierName": "rack"}
    given = {"spec": {"subGroupPolicy": [{"name": "a", "networkTopology": both}, {"name": "a"}]}}
    assert told(VOLCANO_POD_GROUP, given) == [
        "spec.subGroupPolicy[0].networkTopology: expected highestTierAllowed or highestTierName, found both",
        "spec.subGroupPolicy: expected each name once, found again 'a'",
    ]


def test_a_queue_of_kai_says_its_resources() -> None:
    assert told(KAI_QUEUE, queue()) == ["spec.resources: expected quotas of gpu, cpu and memory, found none"]
    assert told(KAI_QUEUE, queue(resources={"gpu": {"quota": 1}})) == []


def test_subgroups_of_kai_are_a_tree_with_pods_in_its_leaves() -> None:
    def of(*groups: Json, before: Json | None = None, **spec: Any) -> list[str]:
        return told(KAI_POD_GROUP, {"spec": {"subGroups": list(groups), **spec}}, before)

    leaf = {"name": "leaf", "minMember": 1, "parent": "top"}
    assert of({"name": "top", "minSubGroup": 1}, leaf) == []
    assert of(leaf) == ["spec.subGroups[0].parent: expected the name of another subgroup, found 'top'"]
    assert of(minMember=1, minSubGroup=1) == ["spec: expected minMember or minSubGroup, found both"]
    assert of({"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}) == [
        "spec.subGroups: expected each name once, found again 'a'"
    ]
    assert of({"name": "a"}) == [
        "spec.subGroups[0].minMember: expected a number of pods: no subgroup has this one for its parent"
    ]
    inner = ({"name": "top", "minMember": 2}, leaf)
    assert of(*inner) == [
        "spec.subGroups[0].minMember: expected none: pods are in the subgroups that have this one for their parent"
    ]
    assert of(*inner, before={"spec": {"subGroups": list(inner)}}) == []


def test_pods_of_a_scheduler_that_does_not_decide_are_bound_by_the_default_one() -> None:
    assert bound_by("volcano") == bound_by("") == bound_by("kai-scheduler", "kai") == "default-scheduler"
    assert bound_by("mine") == "mine"
    assert bound_by("vc", names=["vc"]) == "default-scheduler"


def test_a_scheduler_that_is_kept_binds_its_pods() -> None:
    assert bound_by("volcano", keep=True) == bound_by("", keep=True) == "volcano"
    assert bound_by("mine", keep=True) == "mine"


@pytest.mark.parametrize("which", ["nodeGroupAffinity", "nodeGroupAntiAffinity"])
def test_required_node_groups_of_a_queue_are_refused(which: str) -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    said = told(VOLCANO_QUEUE, queue(affinity={which: {key: ["g"]}}))
    assert said == [f"spec.affinity.{which}.{key}: {NO_NODE_GROUPS}"]
    assert told(VOLCANO_QUEUE, queue(affinity={which: {key: [], key.replace("required", "preferred"): ["g"]}})) == []
