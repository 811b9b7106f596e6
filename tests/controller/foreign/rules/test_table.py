"""Rules about foreign kinds are told twice, in Python and in CEL: both refuse the same objects, in the same words."""

import copy
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.foreign.rules import volcanodefaults
from controller.foreign.rules.lifecycle import ACTIONS, EVENTS
from controller.foreign.rules.ruled import ForeignKind, deleted
from controller.foreign.rules.table import FOREIGN_KINDS
from controller.foreign.rules.volcanojob import VOLCANO_JOB
from controller.jobs.framework.kind import Review, refused
from controller.jobs.framework.raw import Json
from tests.support.controller.celpolicies import evaluated, patched, patches, said

HERE = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
NAMES: Final = st.sampled_from(["a", "b", "master", "root", "default", "x" * 61])
COUNTS: Final = st.integers(0, 4)
POLICIES: Final = st.lists(
    st.fixed_dictionaries(
        {"action": st.sampled_from([*ACTIONS[:3], "SyncJob"])},
        optional={
            "event": st.sampled_from([*EVENTS[:4], "OutOfSync", ""]),
            "events": st.lists(st.sampled_from([*EVENTS[:4], "PodRunning"]), max_size=2),
            "exitCode": st.integers(0, 2),
            "timeout": st.just("1m"),
        },
    ),
    max_size=2,
)
TOPOLOGY: Final = st.fixed_dictionaries(
    {}, optional={"highestTierAllowed": st.integers(0, 2), "highestTierName": st.sampled_from(["", "rack"])}
)
CPUS: Final = st.sampled_from([{}, {"cpu": "2"}, {"cpu": "2500m"}, {"cpu": 0}, {"cpu": "2000m"}])
RESOURCES: Final = st.fixed_dictionaries({}, optional={"requests": CPUS, "limits": CPUS})
CONTAINERS: Final = st.lists(
    st.fixed_dictionaries({"name": st.just("c")}, optional={"resources": RESOURCES}), max_size=1
)
TASKS: Final = st.lists(
    st.fixed_dictionaries(
        {"replicas": COUNTS},
        optional={
            "name": NAMES,
            "minAvailable": COUNTS,
            "maxRetry": COUNTS,
            "template": st.fixed_dictionaries(
                {"spec": st.fixed_dictionaries({"containers": CONTAINERS}, optional={"hostNetwork": st.booleans()})}
            ),
            "policies": POLICIES,
            "topologyPolicy": st.sampled_from(["none", "best-effort", "restricted"]),
            "dependsOn": st.fixed_dictionaries({"name": st.lists(NAMES, max_size=2)}),
            "partitionPolicy": st.fixed_dictionaries(
                {"totalPartitions": COUNTS, "partitionSize": COUNTS},
                optional={"minPartitions": COUNTS, "networkTopology": TOPOLOGY},
            ),
        },
    ),
    max_size=2,
)
VOLUMES: Final = st.lists(
    st.fixed_dictionaries(
        {"mountPath": st.sampled_from(["/a", "/b"])},
        optional={"volumeClaimName": st.sampled_from(["", "c"]), "volumeClaim": st.just({"accessModes": ["x"]})},
    ),
    max_size=2,
)
ARGUMENTS: Final = st.sampled_from([[], ["--master=a"], ["--master", "b"], ["--port=1"]])
AMOUNTS: Final = st.dictionaries(
    st.sampled_from(["cpu", "nvidia.com/gpu"]), st.sampled_from(["1", "2", 3, "1500m", "x"]), max_size=2
)
SUBGROUPS: Final = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"parent": NAMES, "minMember": COUNTS, "minSubGroup": COUNTS}),
    max_size=3,
)
SPECS: Final[dict[tuple[str, str], st.SearchStrategy[Json]]] = {
    ("volcano", "Job"): st.fixed_dictionaries(
        {"tasks": TASKS},
        optional={
            "minAvailable": st.integers(0, 9),
            "maxRetry": COUNTS,
            "queue": NAMES,
            "priorityClassName": NAMES,
            "policies": POLICIES,
            "plugins": st.dictionaries(st.sampled_from(["svc", "mpi", "ray", "nccl"]), ARGUMENTS, max_size=2),
            "volumes": VOLUMES,
            "networkTopology": TOPOLOGY,
        },
    ),
    ("volcano", "Queue"): st.fixed_dictionaries(
        {},
        optional={
            "parent": NAMES,
            "deserved": AMOUNTS,
            "guarantee": st.fixed_dictionaries({"resource": AMOUNTS}),
            "capability": AMOUNTS,
        },
    ),
    ("volcano", "PodGroup"): st.fixed_dictionaries(
        {},
        optional={
            "networkTopology": TOPOLOGY,
            "subGroupPolicy": st.lists(
                st.fixed_dictionaries({}, optional={"name": NAMES, "networkTopology": TOPOLOGY}), max_size=2
            ),
        },
    ),
    ("kai", "Queue"): st.fixed_dictionaries({}, optional={"resources": st.sampled_from([{}, {"gpu": {"quota": 1}}])}),
    ("kai", "PodGroup"): st.fixed_dictionaries(
        {"subGroups": SUBGROUPS}, optional={"minMember": COUNTS, "minSubGroup": COUNTS}
    ),
}
STATUS: Final = st.fixed_dictionaries(
    {}, optional={"running": COUNTS, "pending": COUNTS, "childQueues": st.lists(NAMES, max_size=2)}
)
KINDS = pytest.mark.parametrize("kind", FOREIGN_KINDS, ids=lambda kind: f"{kind.system}-{kind.kind}")


def drawn(kind: ForeignKind, data: st.DataObject) -> Json:
    return {
        "metadata": {"name": data.draw(NAMES)},
        "spec": data.draw(SPECS[kind.system, kind.kind]),
        "status": data.draw(STATUS),
    }


@KINDS
@HERE
@given(data=st.data())
def test_both_halves_of_a_foreign_rule_refuse_the_same_in_the_same_words(
    kind: ForeignKind, data: st.DataObject
) -> None:
    given, before = drawn(kind, data), None
    if data.draw(st.booleans()):
        before = drawn(kind, data)
        if data.draw(st.booleans()):
            changed = data.draw(st.sampled_from(sorted(given["spec"]) or ["none"]))
            kept = {key: value for key, value in given["spec"].items() if key != changed}
            of_before = {key: value for key, value in before["spec"].items() if key == changed}
            before = {**given, "spec": {**kept, **of_before}}
    found = [f"{each.field}: {each.sentence}" for each in refused(kind.rules, Review(new=given, before=before))]
    sentence = said(kind, given, before)
    assert sentence in found if found else sentence == ""


@KINDS
@HERE
@given(data=st.data())
def test_both_halves_refuse_the_same_deletions(kind: ForeignKind, data: st.DataObject) -> None:
    gone = drawn(kind, data)
    found = [f"{each.field}: {each.sentence}" for each in deleted(kind, gone)]
    asked: dict[str, Any] = {"object": None, "oldObject": gone, "variables": {}}
    sentences = [str(evaluated(said, asked)) for said in kind.deletion_says.values()]
    assert [each for each in sentences if each] == found


@HERE
@given(data=st.data())
def test_a_job_is_filled_in_alike_by_the_policy_and_here(data: st.DataObject) -> None:
    job = drawn(VOLCANO_JOB, data)
    before = copy.deepcopy(job)
    made = volcanodefaults.defaulted(job)
    assert job == before
    assert patched(job, patches(VOLCANO_JOB, job)) == made
    assert volcanodefaults.defaulted(made) is made
