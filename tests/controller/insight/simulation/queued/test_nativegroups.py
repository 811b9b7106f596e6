"""Kubernetes' own groups in a simulation: who starts, who waits for whom, and what is refused with its line."""

from typing import Any

import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.documents import InputError
from controller.insight.simulation.manifests import scenario
from inventory.api.names import PODS_ABOVE
from tests.controller.foreign.podgroups.test_native import composite, group
from tests.controller.insight.simulation.test_podgroups import HOST, PLACED, QUEUE, RACK, RACKS, TOPOLOGY, places
from tests.controller.insight.simulation.test_podgroups import pod as plain
from tests.support.controller.manifests import cluster_queue, config, given, job, kueue, local_queue, run, told
from tests.support.controller.manifests import plain as plainly

VERSIONS = pytest.mark.parametrize("version", ["v1beta1", "v1alpha3", "v1alpha2"])
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
Json = dict[str, Any]


def flat(gpus: int) -> tuple[Json, ...]:
    return kueue("ResourceFlavor", "a100"), cluster_queue(gpus=gpus), local_queue()


def of(found: Json, version: str = "v1beta1", **labels: str) -> Json:
    """The group as a manifest has it."""
    kind = found["kind"]
    version = "v1alpha3" if kind == "CompositePodGroup" else version
    meta = {"name": found["metadata"]["name"], "namespace": "ns", "labels": labels}
    return {"apiVersion": f"scheduling.k8s.io/{version}", **found, "metadata": meta}


def pods(count: int, name: str = "train", gpus: int = 1, **annotations: Any) -> list[Json]:
    return [member(f"{name}-{at}", name, gpus, **annotations) for at in range(count)]


def member(name: str, of_group: str = "train", gpus: int = 1, **annotations: Any) -> Json:
    found = plain(name, gpus, **annotations)
    found["spec"]["schedulingGroup"] = {"podGroupName": of_group}
    return found


def refused(*manifests: Json) -> str:
    with pytest.raises(InputError) as raised:
        scenario(given(*manifests), config())
    (line,) = raised.value.lines
    return line


@VERSIONS
def test_a_gang_of_four_starts_with_room_for_four_and_not_for_three(version: str) -> None:
    gang = of(group(least=4), version)
    assert told(run(*flat(3), gang, *pods(4))) == ["0 Pending train"]
    assert told(run(*flat(4), gang, *pods(4))) == ["0 Admitted train"]


def test_of_six_pods_above_a_minimum_of_four_five_run_where_five_have_room() -> None:
    result = told(run(*flat(5), of(group(least=4)), *pods(6)))
    assert result == ["0 Admitted train", "0 Admitted train-4", "0 Pending train-5"]


def test_a_gang_whose_pods_are_too_few_is_an_error_that_says_so() -> None:
    assert "PodGroup train has 2 pods, and its minCount is 4" in refused(*flat(9), of(group(least=4)), *pods(2))


@given_(least=st.integers(1, 5), count=st.integers(1, 7), quota=st.integers(0, 8), others=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_gang_runs_with_its_minimum_at_the_least_or_not_at_all(
    least: int, count: int, quota: int, others: int
) -> None:
    beside = [plain(f"other-{at}") for at in range(others)]
    result = run(*flat(quota), *beside, of(group(least=least)), *pods(max(least, count)))
    running = [each.removeprefix("ns/") for each in result.final.running]
    free = quota - min(others, quota)
    gang = sum(least if name == "train" else 1 for name in running if name.startswith("train"))
    assert gang == (min(max(least, count), free) if free >= least else 0)


def saying(found: Json, value: str) -> Json:
    """The group, with what becomes of its pods that get no quota."""
    return {**found, "metadata": {**found["metadata"], "annotations": {PODS_ABOVE: value}}}


def test_pods_of_a_basic_group_start_all_at_once_or_one_by_one_as_it_says() -> None:
    result = run(*flat(2), of(group()), *pods(3))
    assert told(result) == ["0 Pending train-0", "0 Pending train-1", "0 Pending train-2"]
    assert "3 pods of PodGroup train wait, and there is room for 2: kube-scheduler" in str(plainly(result))
    assert told(run(*flat(3), of(group()), *pods(3))) == [f"0 Admitted train-{at}" for at in range(3)]
    by_one = told(run(*flat(2), saying(of(group()), "delete"), *pods(3)))
    assert by_one == ["0 Admitted train-0", "0 Admitted train-1", "0 Pending train-2"]


def starts(result: Any) -> dict[str, tuple[str, float | None]]:
    """Whether each waiting workload is told to start, never or at an unknown time, and the earliest second."""
    found: dict[str, tuple[str, float | None]] = {}
    for each in plainly(result)["final"]["pending"]:
        name, forecast = each["workload"].rpartition("/")[2], each["forecast"]
        word = "never" if forecast["never"] else "unknown" if forecast["fromSeconds"] is None else "starts"
        found[name] = word, forecast["fromSeconds"]
    return found


def test_pods_that_start_together_have_the_forecast_of_the_last() -> None:
    never = run(*flat(3), of(group()), *pods(4))
    assert starts(never) == {f"train-{at}": ("never", None) for at in range(4)}
    assert "unless the pods of PodGroup train ask for at most 3 nvidia.com/gpu altogether" in str(plainly(never))
    endless = plain("other")
    assert starts(run(*flat(4), endless, of(group()), *pods(4))) == {
        f"train-{at}": ("unknown", None) for at in range(4)
    }


def test_pods_above_a_minimum_do_not_start_before_it() -> None:
    never = run(*flat(3), of(group(least=4)), *pods(5))
    assert starts(never) == {"train": ("never", None), "train-4": ("never", None)}
    assert "unless ns/train starts, the minimum of its gang" in str(plainly(never))


def test_slices_above_the_number_that_is_needed_do_not_start_before_the_gang() -> None:
    slices = [of(group(f"s{at}", 2, parent="top")) for at in range(3)]
    members = [each for at in range(3) for each in pods(2, f"s{at}")]
    found = starts(run(*flat(3), of(composite("top", 2)), *slices, *members))
    assert len(found) == 2
    assert set(found.values()) == {("never", None)}


def test_a_key_that_no_node_can_have_is_told_once_where_it_stands() -> None:
    told_once = refused(*flat(3), of(group(least=2, level="a b")), *pods(3))
    assert told_once.endswith('spec.schedulingConstraints.topology[0].key: found "a b", expected a label of nodes')
    assert "PodGroup train" in told_once
    assert "Pod train" not in told_once


def test_a_basic_group_may_be_disrupted_as_a_whole() -> None:
    given_group = of(group(disruptionMode={"all": {}}))
    assert told(run(*flat(3), given_group, *pods(3))) == [f"0 Admitted train-{at}" for at in range(3)]


def test_groups_below_each_other_are_four_levels_deep_at_most() -> None:
    def chain(composites: int) -> list[Json]:
        above = [of(composite(f"c{at}", 1, parent=f"c{at - 1}" if at else "")) for at in range(composites)]
        return [*flat(1), *above, of(group("leaf", 1, parent=f"c{composites - 1}")), *pods(1, "leaf")]

    assert told(run(*chain(3))) == ["0 Admitted c0"]
    assert "PodGroup leaf: expected a tree of 4 levels at most, found more" in refused(*chain(4))


def test_a_gang_that_keeps_its_pods_starts_with_all_that_are_there() -> None:
    kept = saying(of(group(least=4)), "keep")
    waits = run(*flat(5), kept, *pods(6))
    assert told(waits) == ["0 Pending train"]
    assert "All 6 pods of PodGroup train get quota at once, as they are to be kept" in str(plainly(waits))
    assert told(run(*flat(6), kept, *pods(6))) == ["0 Admitted train"]
    late = pods(6)
    late[5]["metadata"].setdefault("annotations", {})["tessera.dev/arrival"] = "60s"
    assert told(run(*flat(5), kept, *late)) == ["0 Admitted train", "60 Pending train-5"]


def test_a_wrong_word_about_pods_without_quota_is_told_with_the_two_that_are_read() -> None:
    notes = scenario(given(*flat(5), saying(of(group(least=1)), "hold"), *pods(1)), config()).warnings
    assert any(
        "PodGroup train: metadata.annotations[tessera.dev/pods-above]: found 'hold', expected delete or keep" in each
        for each in notes
    )


def test_a_topology_key_is_a_required_level() -> None:
    gang = of(group(least=3, level=RACK))
    result = run(*QUEUE, *RACKS, gang, *pods(3))
    assert places(result, "train") == [("r2", "b", 2), ("r2", "c", 1)]
    assert told(run(*QUEUE, *RACKS[:2], gang, *pods(3))) == ["0 Pending train"]


def test_a_pod_above_the_minimum_joins_its_domain_or_waits() -> None:
    gang = of(group(least=3, level=RACK))
    result = told(run(*QUEUE, *RACKS, gang, *pods(5)))
    assert result == ["0 Admitted train", "0 Admitted train-3", "0 Pending train-4"]


def test_a_key_that_is_no_level_is_refused_with_the_levels() -> None:
    line = refused(*QUEUE, *RACKS, of(group(least=2, level="example.com/row")), *pods(2))
    where = "PodGroup train: spec.schedulingConstraints.topology[0].key"
    levels = f"{RACK}, {HOST}"
    assert line.endswith(
        f'{where}: found "example.com/row", expected a level of a Topology: {levels}. Did you mean {RACK}?'
    )
    scheduling = {"schedulingConstraints": {"topology": [{"key": "example.com/rak"}]}}
    line = refused(*QUEUE, *RACKS, job("j", scheduling=scheduling))
    assert "Job j: spec.scheduling.schedulingConstraints.topology[0].key" in line
    assert line.endswith(f"{levels}. Did you mean {RACK}?")


def test_a_job_that_says_its_minimum_starts_with_as_many_as_have_room() -> None:
    gang: Json = {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 4}}}}

    def used(gpus: int, **spec: Any) -> float:
        (queue,) = run(*flat(gpus), job("j", pods=6, **spec)).final.cluster_queues.values()
        return queue.usage["nvidia.com/gpu"]

    assert [used(gpus, **gang) for gpus in (3, 4, 5, 6)] == [0, 4, 5, 6]
    assert used(5) == 0, "without it, all or none"


def test_a_job_lacks_what_its_minimum_lacks() -> None:
    asked = job("j", pods=6, scheduling={"schedulingPolicy": {"gang": {"minCount": 4}}})
    assert "Asks for 4 nvidia.com/gpu" in str(plainly(run(*flat(3), asked)))
    waits = run(*flat(6), plain("other", 3), asked)
    assert "Needs 4 nvidia.com/gpu of flavor a100: 3 free, 1 more needed" in str(plainly(waits))


def test_a_jobs_minimum_may_not_be_above_its_parallelism() -> None:
    line = refused(*flat(9), job("j", pods=2, scheduling={"schedulingPolicy": {"gang": {"minCount": 3}}}))
    assert "spec.scheduling.schedulingPolicy.gang.minCount" in line
    assert "expected at most the parallelism, 2" in line


def test_a_jobs_level_is_required_of_its_pods() -> None:
    scheduling = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    result = run(*QUEUE, *RACKS, job("j", pods=3, scheduling=scheduling))
    assert places(result, "j") == [("r2", "b", 2), ("r2", "c", 1)]


@VERSIONS
def test_a_workload_says_it_for_the_job_that_it_is_for(version: str) -> None:
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}
    spec = {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"}, "podGroupTemplates": [template]}
    whole = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": "Workload", "spec": spec}
    workload = {**whole, "metadata": {"name": "w", "namespace": "ns"}}
    assert told(run(*flat(3), workload, job("j", pods=4))) == ["0 Admitted j"]
    assert told(run(*flat(3), job("j", pods=4))) == ["0 Pending j"]


def test_the_groups_below_a_composite_gang_start_together() -> None:
    whole = (of(composite("top", 2)), of(group("a", 1, parent="top")), of(group("b", 2, parent="top")))
    members = [*pods(1, "a"), *pods(2, "b")]
    assert told(run(*flat(2), *whole, *members)) == ["0 Pending top"]
    assert told(run(*flat(3), *whole, *members)) == ["0 Admitted top"]


def test_slices_above_the_number_that_is_needed_follow_as_a_whole() -> None:
    slices = [of(group(f"s{at}", 2, parent="top")) for at in range(3)]
    members = [each for at in range(3) for each in pods(2, f"s{at}")]
    assert told(run(*flat(5), of(composite("top", 2)), *slices, *members))[0] == "0 Admitted top"
    waits = told(run(*flat(5), of(composite("top", 2)), *slices, *members))[1]
    assert waits.startswith("0 Pending top-s2-")
    assert len(told(run(*flat(6), of(composite("top", 2)), *slices, *members))) == 2


def test_each_slice_is_in_one_domain_of_its_own_level() -> None:
    slices = [of(group(f"s{at}", 2, parent="top", level=HOST)) for at in range(2)]
    members = [each for at in range(2) for each in pods(2, f"s{at}")]
    result = run(*QUEUE, *RACKS, of(composite("top", 2, level=RACK)), *slices, *members)
    assert sorted(places(result, "top")) == [("r2", "b", 2), ("r2", "c", 2)]


def test_pods_are_in_the_queue_of_their_group_or_of_the_object_that_controls_it() -> None:
    bare = pods(2)
    for each in bare:
        del each["metadata"]["labels"][QUEUE_LABEL]
    labelled = of(group(least=2), **{QUEUE_LABEL: "main"})
    assert told(run(*flat(2), labelled, *bare)) == ["0 Admitted train"]
    owned = of(group(least=2))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [reference]
    assert told(run(*flat(2), owned, *bare)) == []
    assert told(run(*flat(3), owned, job("owner"), *bare)) == ["0 Admitted owner", "0 Admitted train"]


def test_a_group_of_volcanos_of_the_same_name_is_another_gang() -> None:
    volcano: Json = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMember": 2}}
    volcano["metadata"] = {"name": "train", "namespace": "ns"}
    theirs = [plain(f"v{at}") for at in range(2)]
    for each in theirs:
        each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "train"
    result = told(run(*flat(4), of(group(least=2)), volcano, *pods(2), *theirs))
    assert result == ["0 Admitted train", "0 Admitted train.podgroup.scheduling.volcano.sh"]


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (
            {**of(group(least=1)), "apiVersion": "scheduling.k8s.io/v1alpha1"},
            "found scheduling.k8s.io/v1alpha1, expected scheduling.k8s.io/v1beta1 or scheduling.k8s.io/v1alpha3 or sch",
        ),
        (of(group(schedulingPolicy={"gang": {"minCount": 0}})), "minCount: expected at least 1, found 0"),
        (of(composite("top", 0, schedulingPolicy={})), "expected one of basic and gang, found neither"),
    ],
)
def test_what_the_api_server_refuses_is_refused(manifest: Json, sentence: str) -> None:
    assert sentence in refused(*flat(1), manifest, plain("p"))


ASKED = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
CLAIM = {"name": "shared", "resourceClaimTemplateName": "one"}
BY_CLAIM: tuple[Json, ...] = (
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "ns"},
        "spec": {
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
        },
    },
)
MAPPED = """
tessera: {policy: tessera}
resources: {deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}]}
"""


def by_claim(spec: Json) -> None:
    """The pod's container gets its GPU by the claim that its group has."""
    spec["resourceClaims"] = [CLAIM]
    for container in spec["containers"]:
        container["resources"] = {"claims": [{"name": "shared"}]}


def test_a_claim_of_a_group_is_charged_once_for_pods_that_start_together() -> None:
    members = pods(4)
    for each in members:
        by_claim(each["spec"])
    result = run(*flat(1), *BY_CLAIM, of(group(resourceClaims=[CLAIM])), *members, using=MAPPED)
    assert told(result) == [f"0 Admitted train-{at}" for at in range(4)]
    assert "Gets 1 nvidia.com/gpu of flavor a100" in str(result.timeline[0])
    assert "Gets nvidia.com/gpu by a claim that another workload is charged" in str(result.timeline[1])


def test_a_claim_of_a_jobs_scheduling_is_charged_once_for_all_of_its_pods() -> None:
    scheduled = job("j", pods=4, scheduling={"resourceClaims": [CLAIM]})
    by_claim(scheduled["spec"]["template"]["spec"])
    assert told(run(*flat(1), *BY_CLAIM, scheduled, using=MAPPED)) == ["0 Admitted j"]
    assert "Asks for 1 nvidia.com/gpu" in str(plainly(run(*flat(0), *BY_CLAIM, scheduled, using=MAPPED)))
    each_its_own = job("j", pods=4)
    by_claim(each_its_own["spec"]["template"]["spec"])
    assert told(run(*flat(3), *BY_CLAIM, each_its_own, using=MAPPED)) == ["0 Pending j"]


def test_a_tree_of_more_groups_than_a_workload_has_pod_sets_is_refused_with_the_number() -> None:
    groups = [of(group(f"g{at}", 1, parent="top"), "v1alpha3") for at in range(19)]
    members = [member(f"p{at}", f"g{at}") for at in range(19)]
    told_ = refused(*flat(19), of(composite("top", 19)), *groups, *members)
    most = (
        "expected at most 18 groups and shapes of pods in one tree, as many as a Workload may have pod sets, found 19"
    )
    assert most in told_


def test_a_pod_whose_group_is_not_there_is_an_error_that_names_it() -> None:
    assert "no PodGroup 'train' of scheduling.k8s.io" in refused(*flat(1), *pods(1))


def test_a_topology_that_is_not_given_refuses_no_level() -> None:
    result = told(run(PLACED, TOPOLOGY, cluster_queue(), local_queue(), *RACKS, of(group(least=1)), *pods(1)))
    assert result == ["0 Admitted train"]
    waits = run(*flat(1), of(group(least=1, level="a/b")), *pods(1))
    assert told(waits) == ["0 Pending train"]
    assert "flavor a100 names no topology and the pod set asks for one with the level a/b" in str(plainly(waits))


def test_a_group_with_more_pods_than_it_needs_is_told_what_becomes_of_the_others() -> None:
    told_ = scenario(given(*flat(5), of(group(least=4)), *pods(6)), config()).warnings
    assert ["PodGroup train: a cluster deletes those of its pods that get no quota" in each for each in told_] == [True]
    assert not scenario(given(*flat(5), of(group(least=4)), *pods(4)), config()).warnings
    (note,) = scenario(given(*flat(5), of(group()), *pods(6)), config()).warnings
    assert "PodGroup train: those of its pods that wait get quota all at once or not at all" in note


def priority_class(value: int) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "hi"}, "value": value}


def test_a_group_and_its_pods_have_one_priority() -> None:
    numbered = group(least=2)
    numbered["spec"]["priority"] = 100
    assert "spec.priority: expected 0, that of its priorityClassName, found 100" in refused(
        *flat(4), of(numbered), *pods(2)
    )
    classed = group(least=1)
    classed["spec"]["priorityClassName"] = "hi"
    assert "expected priority 100, that of PodGroup train" in refused(
        *flat(4), priority_class(100), of(classed), *pods(1)
    )


def test_a_pod_without_the_name_of_its_group_is_refused() -> None:
    nameless = plain("p", 1)
    nameless["spec"]["schedulingGroup"] = {}
    assert "spec.schedulingGroup.podGroupName: expected the name of a PodGroup, found none" in refused(
        *flat(4), nameless
    )


def test_a_group_in_two_versions_is_refused() -> None:
    both = (of(group(least=2)), of(group(least=1), "v1alpha3"))
    assert "found it in scheduling.k8s.io/v1beta1 too" in refused(*flat(4), *both, *pods(2))


def test_groups_above_each_other_are_named() -> None:
    circle = (of(composite("one", 1, parent="two")), of(composite("two", 1, parent="one")))
    assert "found CompositePodGroups above each other: one, two, one" in refused(
        *flat(4), *circle, of(group("train", 1, parent="one"), "v1alpha3"), *pods(1)
    )


def in_group(of_group: str, **notes: str) -> Json:
    found = job("j", pods=4)
    found["spec"]["template"].setdefault("metadata", {})["annotations"] = notes
    found["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": of_group}
    return found


def test_a_job_starts_in_the_group_that_its_template_names_or_is_refused_with_its_name() -> None:
    assert "no PodGroup 'train' of scheduling.k8s.io" in refused(*flat(4), in_group("train"))
    assert "gang.minCount is 8, and the job makes 4 of its pods" in refused(
        *flat(4), of(group(least=8)), in_group("train")
    )
    assert told(run(*flat(4), of(group(least=4)), in_group("train"))) == ["0 Admitted j"]


def test_a_partial_admission_is_not_below_the_gang() -> None:
    found = job("j", pods=4)
    found["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/job-min-parallelism"] = "2"
    found["spec"]["scheduling"] = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    told_ = refused(*flat(4), found)
    assert "expected at least spec.scheduling.schedulingPolicy.gang.minCount, 4, found 2" in told_


GANGS = ("native", "kept", "basic", "by one", "volcano", "labelled")


def world(kind: str, count: int, least: int) -> list[Json]:
    """A group called train of ``count`` pods of one GPU, of which ``least`` are its minimum."""
    names = [f"{kind.replace(' ', '-')}-{at}" for at in range(count)]
    match kind:
        case "native" | "kept":
            made = of(group(kind, least=least))
            return [saying(made, "keep") if kind == "kept" else made, *(member(name, kind) for name in names)]
        case "basic" | "by one":
            called = names[0][:-2]
            made = of(group(called))
            return [saying(made, "delete") if kind == "by one" else made, *(member(name, called) for name in names)]
        case "volcano":
            found = [plain(name) for name in names]
            for each in found:
                each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "native"
            metadata = {"name": "native", "namespace": "ns"}
            spec = {"minMember": least}
            version = "scheduling.volcano.sh/v1beta1"
            return [{"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}, *found]
        case _:
            found = [plain(name) for name in names]
            for each in found:
                each["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "basic"
                each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(count)
            return found


@given_(
    kinds=st.permutations(GANGS).flatmap(lambda order: st.integers(1, 6).map(lambda most: order[:most])),
    counts=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    quota=st.integers(0, 16),
)
@settings(max_examples=60, deadline=None)
def test_groups_of_every_kind_side_by_side_start_whole_or_not_at_all(
    kinds: list[str], counts: list[int], quota: int
) -> None:
    sizes = {kind: (count, max(1, count - 1)) for kind, count in zip(kinds, counts, strict=False)}
    result = run(*flat(quota), *(each for kind in kinds for each in world(kind, *sizes[kind])))
    names = {name.removeprefix("ns/") for name in result.final.running}
    gpus = {kind: running_of(names, kind, kinds, *sizes[kind]) for kind in kinds}
    for kind, (count, least) in sizes.items():
        smallest = {"native": least, "volcano": least, "by one": 1}.get(kind, count)
        assert gpus[kind] == 0 or smallest <= gpus[kind] <= count, kind
    assert sum(gpus.values()) <= quota


def running_of(names: set[str], kind: str, kinds: list[str], count: int, least: int) -> int:
    """The pods of the group that run. Of two groups of one name the second is called by its API group."""
    apart = sum(name.startswith(f"{kind.replace(' ', '-')}-") for name in names)
    whole = {"native": least, "volcano": least, "kept": count, "labelled": count}.get(kind, 0)
    called = {"volcano": "native", "labelled": "basic"}.get(kind, kind)
    both = [each for each in kinds if each in ("native", "volcano")]
    if kind in both[1:]:
        called = f"native.podgroup.scheduling.{'k8s.io' if kind == 'native' else 'volcano.sh'}"
    return apart + (whole if called in names else 0)
