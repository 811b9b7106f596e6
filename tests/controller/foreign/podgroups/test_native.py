"""What Kubernetes' own PodGroups and CompositePodGroups say about their pods."""

from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from controller.foreign.podgroups.group import SHARED, ForeignGroup, as_member, chosen, lacking, subgroup_of
from controller.foreign.podgroups.native import BELOW, levels_named, marks_of, read, sharing, tree_of
from controller.jobs.framework.marks import priority_class, queue_name
from controller.jobs.framework.names import workload_name
from controller.jobs.framework.podview import GroupName, SeenPod, key_of, workload_of
from controller.jobs.framework.raw import JobError
from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.reconcile.pods.group import group_of, template
from inventory.api.names import COMPOSITE_GROUP, OUT_OF_GROUP
from tests.support.controller.podworld import pod

TRAIN = GroupName(None, "train")
QUEUE, CLASS = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
REF: dict[str, Any] = {"workloadRef": {"workloadName": "w", "templateName": "t"}}


def group(name: str = "train", least: int = 0, *, parent: str = "", level: str = "", **spec: Any) -> dict[str, Any]:
    """A PodGroup: a gang of ``least`` pods, basic for 0."""
    policy = {"gang": {"minCount": least}} if least else {"basic": {}}
    spec = {"schedulingPolicy": policy, **(_level(level) if level else {}), **spec}
    spec |= {"parentCompositePodGroupName": parent, **REF} if parent else {}
    return {"kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def composite(name: str, least: int = 0, *, parent: str = "", level: str = "", **spec: Any) -> dict[str, Any]:
    policy = {"gang": {"minGroupCount": least}} if least else {"basic": {}}
    spec = {"schedulingPolicy": policy, **REF, **(_level(level) if level else {}), **spec}
    spec |= {"parentCompositePodGroupName": parent} if parent else {}
    return {"kind": "CompositePodGroup", "metadata": {"name": name}, "spec": spec}


def _level(key: str) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def member(name: str = "p", of: str = "train", **marks: Any) -> SeenPod:
    found = pod(name, **{"schedulingGroup": {"podGroupName": of}, **marks})
    found["metadata"]["uid"] = name
    return SeenPod(found)


def finder(*groups: dict[str, Any]) -> Any:
    known = {(each["metadata"]["name"], each["kind"] == "CompositePodGroup"): each for each in groups}
    return lambda name, whole: known.get((name, whole))


def tree(top: str, *groups: dict[str, Any]) -> ForeignGroup:
    by_kind = [[each for each in groups if each["kind"] == kind] for kind in ("PodGroup", "CompositePodGroup")]
    return read(GroupName(None, top, composite=True), tree_of(top, *by_kind))


def test_a_pod_is_in_the_group_of_its_spec_under_a_name_that_no_other_systems_group_has() -> None:
    own, theirs = member(), SeenPod(pod("v", notes={"scheduling.k8s.io/group-name": "train"}))
    assert own.foreign_group == TRAIN
    assert key_of(own)[1].startswith("podgroup-train-")
    assert key_of(theirs)[1] == "train"
    assert key_of(own) == key_of(member("q"))
    assert key_of(member(of="other")) != key_of(own)


SYSTEMS: dict[str, dict[str, Any]] = {
    "native": {"schedulingGroup": {"podGroupName": "train"}},
    "volcano": {"notes": {"scheduling.k8s.io/group-name": "train"}},
    "kai": {"notes": {"pod-group-name": "train"}, "labels": {"kai.scheduler/queue": "q"}},
    "labels": {"labels": {"kueue.x-k8s.io/pod-group-name": "train"}},
    "job": {"schedulingGroup": {"podGroupName": "train"}, "notes": {"kueue.x-k8s.io/workload": "job-train-12345"}},
}
"""A pod of a group called train, by whose word it is."""


@drawn(st.lists(st.tuples(st.sampled_from(sorted(SYSTEMS)), st.sampled_from(["a", "b"])), min_size=2, max_size=8))
def test_in_a_mixed_world_a_native_group_is_of_its_own_pods_alone(drawn_pods: list[tuple[str, str]]) -> None:
    """Also beside pods that were started with a PodGroup of Tessera's: those belong to their job's Workload."""
    keys: dict[tuple[str, str], set[Any]] = {}
    for number, (system, namespace) in enumerate(drawn_pods):
        body = pod(f"p{number}", **SYSTEMS[system])
        body["metadata"] |= {"uid": f"p{number}", "namespace": namespace}
        body["metadata"].setdefault("labels", {})["kueue.x-k8s.io/managed"] = "true"
        keys.setdefault((system, namespace), set()).add(workload_of(decode(body, Pod)))
    for (system, namespace), found in keys.items():
        assert len(found) == 1, "pods of one group are of one Workload"
        others = set().union(*(each for (other, at), each in keys.items() if (other, at) != (system, namespace)))
        assert system != "native" or not found & others


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"notes": {"scheduling.k8s.io/group-name": "v"}}, TRAIN),
        ({"schedulerName": "volcano", "notes": {"scheduling.k8s.io/group-name": "v"}}, "v"),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "k"}}, None),
        ({"notes": {OUT_OF_GROUP: "true"}}, None),
        ({"notes": {COMPOSITE_GROUP: "top"}}, GroupName(None, "top", composite=True)),
    ],
    ids=["its spec goes first", "another scheduler's pod", "a pod group by labels", "queued by itself", "a tree"],
)
def test_which_group_counts_where_a_pod_names_several(marks: dict[str, Any], expected: Any) -> None:
    found = member(**marks).foreign_group
    assert (found.name if isinstance(expected, str) and found else found) == expected


def test_a_gang_is_its_minimum_its_level_its_class_and_its_queue() -> None:
    given = group(least=4, level="dc/rack", priorityClassName="high")
    given["metadata"]["labels"] = {QUEUE: "q", CLASS: "urgent"}
    found = read(TRAIN, given)
    assert (found.minimum, found.queue, found.priority_class, found.title) == (4, "q", "high", "train")
    assert found.shape({}).required_level == "dc/rack"
    joined = as_member(SeenPod(member(labels={QUEUE: ""}).raw), found)
    assert (queue_name(joined.raw), priority_class(joined.raw)) == ("q", "urgent")
    assert queue_name(as_member(member(), found).raw) == "q", "the pod's own queue stays"


def test_a_group_without_a_queue_has_that_of_the_object_that_controls_it() -> None:
    given = group(least=1)
    given["metadata"]["ownerReferences"] = [{"kind": "Run", "name": "r", "uid": "u", "controller": True}]
    owner = {"metadata": {"labels": {QUEUE: "theirs"}}}
    assert read(TRAIN, given, owner_of=lambda reference: owner if reference.uid == "u" else None).queue == "theirs"
    assert read(TRAIN, given, owner_of=lambda _: None).queue == ""


def test_both_spellings_of_a_template_are_one_group() -> None:
    old: dict[str, Any] = {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}}
    assert read(TRAIN, group(least=2, **old)) == read(TRAIN, group(least=2, **REF))


@pytest.mark.parametrize(
    ("one", "other", "sentence"),
    [
        ({"priority": 7}, {"priority": 5}, "PodGroup train: spec.priority: expected 7, that of pod a, found 5"),
        ({"schedulerName": "mine"}, {}, "spec.schedulerName: the pods of a group must agree, found 'mine' on a and ''"),
        ({"preemptionPolicy": "Never"}, {}, "spec.preemptionPolicy: the pods of a group must agree, found 'Never'"),
    ],
)
def test_pods_that_kube_scheduler_starts_none_of_are_refused(one: Any, other: Any, sentence: str) -> None:
    found = read(TRAIN, group(least=2, priority=5))
    with pytest.raises(JobError, match=sentence):
        group_of([member("a", **one), member("b", **other)], found)
    assert group_of([member("a", priority=5), member("b")], found).total == 2


def test_a_pod_on_a_node_counts_for_the_workload_of_its_group() -> None:
    for marks in ({}, {COMPOSITE_GROUP: "top"}, {OUT_OF_GROUP: "true"}):
        found = member(notes=marks)
        typed = workload_of(decode(found.raw, Pod))
        single = OUT_OF_GROUP in marks
        name = workload_name("Pod", "", "p", "p") if single else key_of(found)[1]
        assert typed == f"default/{name}"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "spec.schedulingGroup.podGroupName: no PodGroup 'train' of scheduling.k8s.io"),
        (
            group(schedulingPolicy={}),
            "PodGroup train: spec.schedulingPolicy: expected one of basic and gang, found neither",
        ),
        ({"spec": {"schedulingPolicy": {"gang": {"minCount": "4"}}}}, "PodGroup train: Expected"),
        (
            group(least=1, level="a b"),
            r"PodGroup train: spec.schedulingConstraints.topology\[0\].key: expected a label of nodes, found 'a b'",
        ),
    ],
)
def test_a_group_that_cannot_be_read_is_refused_in_one_line(given: Any, sentence: str) -> None:
    with pytest.raises(JobError, match=sentence):
        read(TRAIN, given)


def test_pods_of_a_basic_group_are_marked_as_queued_by_themselves_unless_one_domain_has_them_all() -> None:
    assert marks_of(member(), finder(group())) == {OUT_OF_GROUP: "true"}
    assert marks_of(member(), finder(group(level="dc/rack"))) == {}
    assert read(TRAIN, group(level="dc/rack")).minimum == 1, "the others join its domain"
    assert marks_of(member(), finder(group(least=2))) == {}
    assert marks_of(member(), finder()) == {}, "it may come later"


def test_pods_below_a_composite_gang_are_marked_with_the_top_of_its_tree() -> None:
    whole = (composite("top", 1), composite("mid", 1, parent="top"), group(least=2, parent="mid"))
    assert marks_of(member(), finder(*whole)) == {COMPOSITE_GROUP: "top"}
    loose = (composite("top"), composite("mid", 1, parent="top"), group(least=2, parent="mid"))
    assert marks_of(member(), finder(*loose)) == {COMPOSITE_GROUP: "mid"}
    assert marks_of(member(), finder(composite("top"), group(least=2, parent="top"))) == {}


def test_a_group_whose_composite_is_missing_or_in_a_circle_is_refused() -> None:
    with pytest.raises(JobError, match=r"no CompositePodGroup 'top' of scheduling\.k8s\.io"):
        marks_of(member(), finder(group(least=1, parent="top")))
    circle = (composite("a", 1, parent="b"), composite("b", 1, parent="a"), group(least=1, parent="a"))
    with pytest.raises(JobError, match="expected a tree, found CompositePodGroups above each other: a, b, a"):
        marks_of(member(), finder(*circle))


def test_unlike_children_are_subgroups_of_one_gang_with_outer_and_inner_levels() -> None:
    made = tree(
        "top",
        composite("top", 2, level="dc/block"),
        group("driver", 1, parent="top"),
        group("workers", 2, parent="top", level="dc/rack"),
    )
    assert made.minimum == 3
    pods = [as_member(member(f"p{at}", of), made) for at, of in enumerate(("driver", "workers", "workers", "workers"))]
    assert [subgroup_of(each) for each in pods] == ["driver", "workers", "workers", "workers"]
    assert lacking(made, pods[:2]) == "1 of 2 pods of workers"
    assert [each.name for each in chosen(made, pods, made.minimum)] == ["p0", "p1", "p2"]
    shape = made.shape({"x": "driver", "y": "workers"})
    assert (shape.required_level, shape.minimum) == ("dc/block", 2)
    assert {each.name: each.required_level for each in shape.groups} == {"driver": "", "workers": "dc/rack"}


def test_equal_children_start_with_as_many_as_are_needed_and_the_others_follow_as_a_whole() -> None:
    made = tree("top", composite("top", 2), *(group(f"slice-{at}", 2, parent="top") for at in range(3)))
    assert made.minimum == 4
    pods = [as_member(member(f"p{at}", f"slice-{at // 2}"), made) for at in range(6)]
    assert [each.name for each in chosen(made, pods, made.minimum)] == ["p0", "p1", "p2", "p3"]
    assert made.above(["slice-2"], ["slice-0", "slice-1"]) == {"slice-2": "slice-2"}


def test_a_composite_gang_waits_until_as_many_groups_are_there_as_it_needs() -> None:
    with pytest.raises(JobError, match="CompositePodGroup top: expected at least 2 groups below it, found 1"):
        tree("top", composite("top", 2), group("a", 1, parent="top"))
    assert tree_of("top", [group("a", 1, parent="top")], []) is None
    with pytest.raises(JobError, match=r"no CompositePodGroup 'top' of scheduling\.k8s\.io"):
        tree("top", group("a", 1, parent="top"))


def test_a_tree_has_only_the_groups_below_it() -> None:
    made = tree_of(
        "top",
        [group("a", 1, parent="mid"), group("b", 1, parent="other"), group("c", 1)],
        [composite("top", 1), composite("mid", 1, parent="top"), composite("other", 1)],
    )
    assert made is not None
    assert [each["metadata"]["name"] for each in made[BELOW]] == ["mid", "a"]


def test_a_claim_of_the_group_is_shared_by_the_pods_that_name_it_in_the_same_words() -> None:
    given = group(least=2, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "four"}])
    given["status"] = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "train-gpus-x"}]}
    found = read(TRAIN, given)
    same = member(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "four"}])
    other = member(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}])
    assert as_member(same, found).raw.get(SHARED) == {"gpus": "train-gpus-x"}
    assert sharing(same, finder(given)).raw.get(SHARED) == {"gpus": "train-gpus-x"}
    assert template(as_member(same, found))["spec"]["resourceClaims"] == [
        {"name": "gpus", "resourceClaimName": "train-gpus-x"}
    ]
    for pod_ in (as_member(other, found), sharing(other, finder(given)), sharing(same, finder())):
        assert SHARED not in pod_.raw
    del given["status"]
    assert SHARED not in as_member(same, read(TRAIN, given)).raw, "none was made yet"


def test_every_level_that_an_object_names_is_told_with_its_path() -> None:
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 1}}, **_level("dc/row")}
    workload = {"spec": {"compositePodGroupTemplates": [{**_level("dc/block"), "podGroupTemplates": [template]}]}}
    where = "spec.compositePodGroupTemplates[0]"
    assert list(levels_named(workload)) == [
        (f"{where}.schedulingConstraints.topology[0].key", "dc/block"),
        (f"{where}.podGroupTemplates[0].schedulingConstraints.topology[0].key", "dc/row"),
    ]
    job = {"spec": {"scheduling": _level("dc/rack")}}
    assert list(levels_named(job)) == [("spec.scheduling.schedulingConstraints.topology[0].key", "dc/rack")]
    assert list(levels_named({"spec": {"schedulingConstraints": [1], "podGroupTemplates": 3}})) == []
