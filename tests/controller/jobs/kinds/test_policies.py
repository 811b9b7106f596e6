"""Each rule is told twice, in Python and in CEL: both refuse the same objects, in the same words."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.cluster.webhooks.jobs import patch
from controller.jobs.framework import names
from controller.jobs.framework.kind import refused
from controller.jobs.framework.podsets import UNCONSTRAINED
from controller.jobs.framework.podview import GROUP_NAME as POD_GROUP
from controller.jobs.framework.podview import GROUP_TOTAL, MANAGED, RETRIABLE
from controller.jobs.framework.raw import Json, at
from controller.jobs.framework.templated import Path, located, replaced
from controller.jobs.framework.topologyrequest import (
    GROUP_NAME,
    PREFERRED,
    REQUIRED,
    SLICE_CONSTRAINTS,
    SLICE_SIZE,
    SLICE_TOPOLOGY,
)
from controller.jobs.kinds.policies import RULED, Ruled, review
from controller.jobs.kinds.table import DECLARED_KINDS
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import MIN_REPLICAS
from tests.support.controller.celpolicies import patched, patches, said
from tests.support.controller.declaredjobs import MODELS as JOB_MODELS
from tests.support.controller.declaredray import RAY_MODELS

HERE = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
BY_KIND: Final = {ruled.kind: ruled for ruled in RULED}
KINDS = pytest.mark.parametrize("name", BY_KIND)
NAMES: Final = st.sampled_from(["a", "b", "a.b", "A_b", "a b", "-a", "x" * 64])
FLAGS: Final = st.sampled_from(["true", "false", "1", "yes", ""])
NUMBERS: Final = st.sampled_from(["0", "1", "2", "3", "4", "-1", "x", "", "1h", "4294967296"])
GATED: Final = ["a.dev/x", "a.dev/y", "a.dev/x, a.dev/y", "a.dev/x,a.dev/x", "a_b/c", "a.dev", "", "a.dev/" + "x" * 60]
LABELS: Final = st.fixed_dictionaries(
    {names.QUEUE_NAME: st.sampled_from(["q", "q", "r", "Q_q", ""])},
    optional={
        names.PRIORITY_CLASS: st.sampled_from(["high", "low"]),
        names.MAX_EXEC_TIME: NUMBERS,
        names.PREBUILT_WORKLOAD: NAMES,
        MANAGED: FLAGS,
        POD_GROUP: NAMES,
        names.ELASTIC_JOB: st.sampled_from(["true", "false"]),
    },
)
ANNOTATIONS: Final = st.fixed_dictionaries(
    {},
    optional={
        names.PREBUILT_WORKLOAD: NAMES,
        names.ELASTIC_JOB: st.sampled_from(["true", "false", "1"]),
        names.ADMISSION_GATED_BY: st.sampled_from(GATED),
        names.MIN_PARALLELISM: NUMBERS,
        names.COMPLETIONS_EQUAL_PARALLELISM: FLAGS,
        POD_GROUP: NAMES,
        GROUP_TOTAL: NUMBERS,
        MIN_REPLICAS: NUMBERS,
        RETRIABLE: st.sampled_from(["true", "false"]),
    },
)
LEVELS: Final = st.sampled_from(["rack", "example.com/rack", "a b", "kubernetes.io/hostname", "/x", ""])
TOPOLOGY: Final = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: LEVELS,
        PREFERRED: LEVELS,
        UNCONSTRAINED: FLAGS,
        SLICE_TOPOLOGY: LEVELS,
        SLICE_SIZE: NUMBERS,
        GROUP_NAME: st.sampled_from(["g", "g", "7", ""]),
    },
)
"""Of one pod template. ``SLICE_CONSTRAINTS`` is not drawn: what stands in it is read by the controller alone."""
COUNTS: Final = st.integers(0, 4)
CONTAINERS: Final = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("c")},
        optional={
            "resources": st.sampled_from([{}, {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}]),
            "ports": st.sampled_from([[{"containerPort": 1}], [{"containerPort": 2}]]),
        },
    ),
    max_size=2,
)
PODS: Final = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": CONTAINERS,
        "nodeSelector": st.sampled_from([{}, {"a": "b"}]),
        "tolerations": st.sampled_from([[], [{"key": "a"}]]),
        "runtimeClassName": st.sampled_from(["", "a"]),
        "priority": st.integers(0, 1),
        "schedulingGates": st.sampled_from([[], [{"name": names.ELASTIC_JOB}]]),
    },
)
TEMPLATES: Final = st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"annotations": TOPOLOGY}), "spec": PODS})
BATCH: Final = st.fixed_dictionaries(
    {"template": TEMPLATES},
    optional={
        "parallelism": COUNTS,
        "completions": COUNTS,
        "completionMode": st.sampled_from(["Indexed", "NonIndexed"]),
        "suspend": st.booleans(),
    },
)
SETS: Final = st.fixed_dictionaries({"template": TEMPLATES}, optional={"replicas": COUNTS})
GROUPS: Final = st.fixed_dictionaries(
    {"leaderWorkerTemplate": st.fixed_dictionaries({"workerTemplate": TEMPLATES}, optional={
        "leaderTemplate": TEMPLATES, "size": st.integers(1, 4),
    })},
    optional={"replicas": st.sampled_from([-1, 0, 1, 1_000_001])},
)  # fmt: skip
STATUS: Final = st.fixed_dictionaries({}, optional={"readyReplicas": st.integers(0, 1), "replicas": st.integers(0, 1)})
PLAIN: Final = {
    "batch/job": BATCH, "pod": PODS, "deployment": SETS, "statefulset": SETS,
    "leaderworkerset.x-k8s.io/leaderworkerset": GROUPS,
}  # fmt: skip
MODELS: Final = {**JOB_MODELS, **RAY_MODELS}
OWN: Final[dict[str, st.SearchStrategy[list[tuple[tuple[str, ...], Any]]]]] = {
    "ray.io": st.lists(st.sampled_from([
        (("spec", "clusterSelector"), {"a": "b"}), (("spec", "submissionMode"), "K8sJobMode"),
        (("spec", "shutdownAfterJobFinishes"), True), (("spec", "managedBy"), "kueue.x-k8s.io/multikueue"),
        (("spec", "upgradeStrategy"), {"type": "None"}),
    ]), max_size=3),
    "sparkoperator.k8s.io": st.lists(st.sampled_from([
        (("spec", "mode"), "client"), (("spec", "dynamicAllocation"), {"enabled": True}),
        (("spec", "sparkConf"), {"spark.dynamicAllocation.enabled": "True", "spark.executor.instances": "3"}),
        (("spec", "restartPolicy"), {"type": "Always"}),
    ]), max_size=3),
    "trainer.kubeflow.org": st.lists(st.sampled_from([
        (("spec", "podSpecOverrides"), [{}]), (("spec", "podTemplateOverrides"), [{}]),
    ]), max_size=2),
}  # fmt: skip
"""Fields that the kinds' own rules are about."""
GROUP_FIELDS: Final = st.fixed_dictionaries(
    {},
    optional={
        "groupName": st.sampled_from(["head", "a"]),
        "replicas": COUNTS,
        "minReplicas": COUNTS,
        "maxReplicas": COUNTS,
        "numOfHosts": st.integers(1, 2),
        "suspend": st.booleans(),
    },
)


def drawn(ruled: Ruled, data: st.DataObject) -> Json:
    """An object of the kind, with anything in the fields that rules are about."""
    if ruled.framework in PLAIN:
        job = {"spec": data.draw(PLAIN[ruled.framework]), "status": data.draw(STATUS)}
        marks = data.draw(TOPOLOGY) if ruled.framework == "pod" else {}
    else:
        job, marks = of_declared(ruled, data), {}
    metadata = {"name": "j", "labels": data.draw(LABELS), "annotations": {**data.draw(ANNOTATIONS), **marks}}
    return {**job, "apiVersion": "v1", "kind": ruled.kind, "metadata": metadata}


def of_declared(ruled: Ruled, data: st.DataObject) -> Json:
    kind = next(kind for kind in DECLARED_KINDS if kind.framework == ruled.framework)
    job = data.draw(MODELS[ruled.framework].samples).job
    for where, value in data.draw(OWN.get(ruled.group, st.just([]))):
        job = replaced(job, where, value)
    if hasattr(kind, "cluster_path"):
        job = in_clusters(job, kind.cluster_path, data)
    if ruled.pod_sets and data.draw(st.booleans()):
        for slot in kind.slots(job):
            own = ("annotations",) if slot.source is not None else ("metadata", "annotations")
            job = replaced(job, (*slot.path, *own), data.draw(TOPOLOGY))
    return replaced(job, kind.suspend_path, data.draw(st.booleans()))


def in_clusters(job: Json, path: tuple[str, ...], data: st.DataObject) -> Json:
    if data.draw(st.integers(0, 4)) == 0:
        job = replaced(job, (*path, "enableInTreeAutoscaling"), True)
    groups = at(job, *path, "workerGroupSpecs") or []
    for index in range(len(groups)):
        here: Path = (*path, "workerGroupSpecs", index)
        job = replaced(job, here, {**located(job, here), **data.draw(GROUP_FIELDS)})
    if groups and data.draw(st.integers(0, 9)) == 0:
        job = replaced(job, (*path, "workerGroupSpecs"), groups[:1] * 18)
    return job


@KINDS
@HERE
@given(data=st.data())
def test_both_halves_of_a_rule_refuse_the_same_in_the_same_words(name: str, data: st.DataObject) -> None:
    ruled = BY_KIND[name]
    job, before = drawn(ruled, data), None
    if data.draw(st.booleans()):
        before = drawn(ruled, data)
        if data.draw(st.booleans()):
            before = {**before, **{key: job[key] for key in data.draw(st.sampled_from([["spec"], ["metadata"]]))}}
    told = [rule for rule in ruled.rules if rule.says]
    found = [f"{each.field}: {each.sentence}" for each in refused(told, review(ruled, job, before))]
    sentence = said(ruled, job, before)
    assert sentence in found if found else sentence == ""


@pytest.mark.parametrize("name", [ruled.kind for ruled in RULED if ruled.defaults])
@HERE
@given(data=st.data())
def test_both_halves_of_a_default_make_the_same_object(name: str, data: st.DataObject) -> None:
    ruled = BY_KIND[name]
    kind = next(kind for kind in DECLARED_KINDS if kind.framework == ruled.framework)
    job = drawn(ruled, data)
    if ruled.kind == "MPIJob":
        job = replaced(job, ("spec", "runLauncherAsWorker"), True)
    made = patched(job, patches(ruled, job))
    assert made == kind.defaulted(job)
    by_webhook = patch(
        job,
        has_default_queue=bool,
        manage_without_queue_name=True,
        suspend_path=kind.suspend_path,
        defaulted=kind.defaulted,
    )
    assert patched(job, by_webhook) == replaced(made, kind.suspend_path, True)
    assert patched(made, patches(ruled, made)) == made


@pytest.mark.parametrize(
    ("kind", "gate"), [("MPIJob", "TopologyAwareScheduling"), ("RayCluster", "ElasticJobsViaWorkloadSlices")]
)
def test_a_default_of_a_gate_that_is_off_is_left_out_by_both_halves(kind: str, gate: str) -> None:
    ruled, off = BY_KIND[kind], FeatureGates({gate: False})
    template = {"spec": {"containers": [{"name": "c"}]}}
    sets = {"Launcher": {"template": template}, "Worker": {"template": template}}
    spec = {"runLauncherAsWorker": True, "mpiReplicaSpecs": sets, "headGroupSpec": {"template": template}}
    job = {"metadata": {"name": "j", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}, "spec": spec}
    own = next(one for one in DECLARED_KINDS if one.framework == ruled.framework)
    assert own.defaulted(job) != job == own.defaulted(job, off)
    assert patches(ruled, job)
    assert patches(ruled, job, off) == []


def test_without_elastic_jobs_no_cluster_is_autoscaled_and_none_needs_their_gates() -> None:
    ruled, off = BY_KIND["RayCluster"], FeatureGates({"ElasticJobsViaWorkloadSlices": False})
    template = {"spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    metadata |= {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    for autoscaled in (True, False):
        spec = {"suspend": True, "enableInTreeAutoscaling": autoscaled, "headGroupSpec": {"template": template}}
        job: Json = {"metadata": metadata, "spec": spec}
        asked = msgspec.structs.replace(review(ruled, job), gates=off)
        found = [each.field for each in refused([rule for rule in ruled.rules if rule.says], asked)]
        assert found == (["spec.enableInTreeAutoscaling"] if autoscaled else [])
        assert bool(said(ruled, job, None, off)) is autoscaled


def test_a_patch_of_one_of_two_equal_places_leaves_the_other() -> None:
    group: Json = {"schedulingGates": []}
    operation = {"op": "add", "path": "/groups/0/schedulingGates/-", "value": {"name": "g"}}
    assert patched({"groups": [group, group]}, [operation]) == {"groups": [{"schedulingGates": [{"name": "g"}]}, group]}


def test_every_kind_has_rules_and_no_two_share_a_sentence_s_name() -> None:
    for ruled in RULED:
        listed = [name for rule in ruled.rules for name in rule.says]
        assert listed
        assert len(set(listed)) == len(listed)
        assert not {*ruled.variables} & {f"{name}Says" for name in listed}


def test_constraints_beside_other_annotations_are_refused_in_the_same_words() -> None:
    ruled = next(ruled for ruled in RULED if ruled.kind == "Job")
    for other in (SLICE_TOPOLOGY, GROUP_NAME):
        marks = {SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 1}]', other: "rack", REQUIRED: "rack"}
        job = {"metadata": {}, "spec": {"template": {"metadata": {"annotations": marks}, "spec": {}}}}
        found = [f"{each.field}: {each.sentence}" for each in refused(ruled.rules, review(ruled, job))]
        assert said(ruled, job) in found


def test_a_pod_of_a_group_of_pod_sets_is_let_in_by_itself() -> None:
    """A group of pods has a pod set for each shape of them: which others there are, no pod tells."""
    ruled = BY_KIND["Pod"]
    pod = {"metadata": {"annotations": {GROUP_NAME: "leader-and-workers", REQUIRED: "rack"}}, "spec": {}}
    assert list(refused(ruled.rules, review(ruled, pod))) == []
    assert said(ruled, pod) == ""
