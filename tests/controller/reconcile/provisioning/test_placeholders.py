"""Placeholders: one for each pod whose node is to come, kept until the pod comes, and none too many."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Pod
from controller.objects.decode import decode
from controller.objects.meta import Condition, with_condition
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.claimcopies import ClaimCopy
from controller.reconcile.provisioning.placeholderpods import placeholder_body
from controller.reconcile.provisioning.placeholders import (
    DEVICES_FOUND_S,
    MOST_BOUND_ELSEWHERE,
    SETTLED_S,
    Phase,
    Placeholders,
    phase_of,
    placeholder_of,
    sent_to,
)
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.requests import SpotRule
from inventory.api.names import PLACEHOLDER_CLASS, PLACEHOLDER_FOR, PLACEHOLDER_OF

KEY = WorkloadKey("team/train")
NOW_S = 100.0
"""Long after all were bound."""
RULES = [
    {"key": "zone", "operator": "In", "values": ["a"]},
    {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100"]},
]
SPEC: dict[str, Any] = {
    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "4"}}}],
    "containers": [
        {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "8"}}},
        {"name": "side", "resources": {"requests": {"cpu": "500m"}}},
    ],
    "nodeSelector": {"disk": "fast", "tessera.dev/level": "x"},
    "tolerations": [{"key": "t", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": RULES}]}
        }
    },
    "priorityClassName": "high",
}
POD_SET = {"name": "main", "count": 3, "template": {"metadata": {}, "spec": SPEC}}


def workload(*, uid: str = "w1", placed: dict[str, int] | None = None, delayed: bool = True) -> Workload:
    given_: dict[str, Any] = {"name": "main", "flavors": {"nvidia.com/gpu": "f"}, "count": 3}
    if placed is not None:
        slices = [
            {"domainCount": 1, "valuesPerLevel": [{"universal": node}], "podCounts": {"universal": pods}}
            for node, pods in placed.items()
        ]
        given_["topologyAssignment"] = {"levels": ["kubernetes.io/hostname"], "slices": slices}
    elif delayed:
        given_["delayedTopologyRequest"] = "Pending"
    status = {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admission": {"clusterQueue": "q", "podSetAssignments": [given_]},
    }
    meta = {"name": "train", "namespace": "team", "uid": uid}
    return decode({"metadata": meta, "spec": {"podSets": [POD_SET]}, "status": status}, Workload)


def with_(made: Workload, type_: str, value: str = "True") -> Workload:
    conditions = with_condition(made.status.conditions, Condition(type=type_, status=value, reason="Test"))
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))


def pod(
    name: str, node: str = "", *, uid: str = "w1", phase: str = "", going: bool = False, claims: bool = False
) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "ours", "uid": name, "labels": {PLACEHOLDER_OF: uid}}
    meta["annotations"] = {PLACEHOLDER_FOR: f"{KEY} main"}
    if going:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {"nodeName": node}
    if claims:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "copy"}]
    return decode({"metadata": meta, "spec": spec, "status": {"phase": phase}}, Pod)


def told(*pods: Pod) -> Placeholders:
    found = Placeholders()
    for each in pods:
        found.tell(each.metadata.name, placeholder_of(each), 0.0)
    found.validate()
    return found


def names(*, of: tuple[Any, ...]) -> list[str]:
    return sorted(each.name for each in of)


def test_one_on_a_node_that_has_joined_without_its_devices_provokes_no_further_node() -> None:
    """It has no devices to wait for itself: the node takes it before its drivers have published any."""
    known = told(pod("a", "n1"), pod("b", "n2"))
    later_s = NOW_S + SETTLED_S
    steps = known.decide(
        KEY, workload(), Phase.WAITS, {"main": 2}, later_s, joining=lambda _pod_set, node: node == "n1"
    )
    assert len(steps.create) == 1, "the devices of the other node are others' already"
    assert steps.unsettled
    assert not known.decide(
        KEY, workload(), Phase.WAITS, {"main": 2}, later_s, joining=lambda pod_set, _node: pod_set == "main"
    ).create


def test_one_waits_for_each_pod_whose_node_is_to_come() -> None:
    steps = Placeholders().decide(KEY, workload(), Phase.WAITS, {"main": 2}, NOW_S)
    assert len({name for name, _ in steps.create}) == 2
    assert {pod_set for _, pod_set in steps.create} == {"main"}
    assert not steps.remove


def test_the_same_names_follow_for_every_leader() -> None:
    first, second = (Placeholders().decide(KEY, workload(), Phase.WAITS, {"main": 2}, NOW_S) for _ in range(2))
    assert first == second
    other = Placeholders().decide(KEY, workload(uid="w2"), Phase.WAITS, {"main": 2}, NOW_S)
    assert not {name for name, _ in first.create} & {name for name, _ in other.create}


def test_one_that_is_bound_stays_and_another_waits_in_its_place() -> None:
    """kube-scheduler has put it onto a free node, which the gang counts on: its own pods are gated."""
    steps = told(pod("a", "old"), pod("b")).decide(KEY, workload(), Phase.WAITS, {"main": 2}, NOW_S)
    assert len(steps.create) == 1
    assert not steps.remove


def test_one_that_was_bound_just_now_is_not_followed_by_another_before_its_node_is_known() -> None:
    known = told(pod("a"))
    known.tell("a", placeholder_of(pod("a", "new")), NOW_S)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + 1.0)
    assert (steps.create, steps.unsettled) == ((), True)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 0}, NOW_S + 1.0)
    assert (steps.create, steps.unsettled) == ((), False)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + SETTLED_S)
    assert (len(steps.create), steps.unsettled) == (1, False)


def test_one_too_many_that_waits_goes() -> None:
    steps = told(pod("a"), pod("b"), pod("c", "n1")).decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert names(of=steps.remove) == ["b"]
    assert not steps.create


def test_one_that_has_ended_is_replaced() -> None:
    steps = told(pod("a", "n1", phase="Failed")).decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert names(of=steps.remove) == ["a"]
    assert len(steps.create) == 1


def test_the_name_of_one_that_is_going_is_not_taken() -> None:
    first = Placeholders().decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S).create[0][0]
    steps = told(pod(first, going=True)).decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert [name for name, _ in steps.create] != [first]
    assert not steps.remove


def test_where_even_nodes_to_come_do_not_hold_it_all_stays() -> None:
    steps = told(pod("a"), pod("b", "n1")).decide(KEY, workload(), Phase.WAITS, None, NOW_S)
    assert steps == told().decide(KEY, workload(), Phase.WAITS, None, NOW_S)


def test_free_nodes_that_do_not_suit_are_not_filled_without_end() -> None:
    bound = [pod(f"p{number:03d}", f"n{number}") for number in range(3 + MOST_BOUND_ELSEWHERE)]
    assert not told(*bound).decide(KEY, workload(), Phase.WAITS, {"main": 2}, NOW_S).create


@pytest.mark.parametrize("made", [None, with_(workload(), "Evicted"), with_(workload(), "Finished")])
def test_all_go_with_the_workload_and_at_an_eviction(made: Workload | None) -> None:
    phase = phase_of(made)
    assert phase is Phase.NOTHING
    steps = told(pod("a"), pod("b", "n1")).decide(KEY, made, phase, {"main": 2}, NOW_S)
    assert names(of=steps.remove) == ["a", "b"]
    assert not steps.create


def test_those_of_an_earlier_workload_of_the_name_go() -> None:
    steps = told(pod("a", uid="before"), pod("b")).decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert names(of=steps.remove) == ["a"]


def test_nothing_is_asked_for_before_all_checks_are_ready() -> None:
    made = workload()
    states = [{"name": "license", "state": "Pending"}]
    status = decode({"status": {"admissionChecks": states}}, Workload).status.admission_checks
    held = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, admission_checks=status))
    assert phase_of(held) is Phase.NOTHING
    assert phase_of(made) is Phase.WAITS


def test_they_make_room_pod_by_pod() -> None:
    made = with_(workload(placed={"n1": 2, "n2": 1}), "Admitted")
    assert phase_of(made) is Phase.STARTS
    known = told(pod("a", "n1"), pod("b", "n1"), pod("c", "n2"), pod("d", "other"), pod("e"))
    assert names(of=known.decide(KEY, made, Phase.STARTS, None, NOW_S).remove) == ["d", "e"]
    assert known.tell_pod("team/p1", KEY, "n1")
    assert names(of=known.decide(KEY, made, Phase.STARTS, None, NOW_S).remove) == ["b", "d", "e"]
    known.tell_pod("team/p2", KEY, "n1")
    known.tell_pod("team/p3", KEY, "n2")
    assert names(of=known.decide(KEY, made, Phase.STARTS, None, NOW_S).remove) == ["a", "b", "c", "d", "e"]
    known.validate()


def test_once_its_pods_are_ready_none_is_left() -> None:
    made = with_(with_(workload(placed={"n1": 3}), "Admitted"), "PodsReady")
    assert phase_of(made) is Phase.NOTHING


def test_pods_of_others_are_not_followed() -> None:
    known = told()
    assert not known.tell_pod("team/p1", KEY, "n1")
    known.validate()


def test_a_pod_is_sent_by_its_selector_or_runs() -> None:
    selector = decode({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}}, Pod)
    assert sent_to(selector) == "n1"
    assert sent_to(decode({"spec": {"nodeName": "n2"}}, Pod)) == "n2"
    assert sent_to(decode({}, Pod)) == ""


# -- claims ------------------------------------------------------------------------------------------------------------


def copied(*uids: str) -> tuple[ClaimCopy, ...]:
    return tuple(ClaimCopy(f"copy-{uid}", f"u-{uid}", uid, KEY) for uid in uids)


def with_copies(known: Placeholders, *copies: ClaimCopy) -> Placeholders:
    for each in copies:
        assert known.tell_copy(each.name, each) == [KEY]
    known.validate()
    return known


def test_copies_stay_while_the_workload_waits_and_go_with_its_wait() -> None:
    known = with_copies(told(pod("a", claims=True)), *copied("w1", "before"))
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 0}, NOW_S)
    assert names(of=steps.remove_copies) == ["copy-before"], "of an earlier workload of the name"
    for made, phase in ((None, Phase.NOTHING), (workload(), Phase.NOTHING), (workload(), Phase.STARTS)):
        assert names(of=known.decide(KEY, made, phase, None, NOW_S).remove_copies) == ["copy-before", "copy-w1"]


def test_a_workload_that_has_copies_alone_is_looked_at() -> None:
    known = with_copies(told(), *copied("w1"))
    assert known.has(KEY)
    assert known.workloads() == {KEY}
    assert known.has_copy("copy-w1")
    assert known.tell_copy("copy-w1", None) == [KEY]
    assert not known.has(KEY)
    known.validate()


def test_one_that_has_devices_gives_way_to_a_pod_of_any_workload() -> None:
    """kube-scheduler preempts nobody for the sake of devices."""
    known = told(pod("a", "n1", claims=True), pod("b", "n1"), pod("c", "n2", claims=True))
    other = WorkloadKey("team/other")
    assert known.tell_pod("team/p", other, "n1", waits=True) == [KEY]
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert names(of=steps.remove) == ["a"]
    known.tell("a", None, NOW_S)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + 1.0)
    assert (steps.create, steps.unsettled) == ((), True), "it would get the devices before the pod"
    assert known.tell_pod("team/p", other, "n1") == [], "the pod is there"
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + 2.0)
    assert (len(steps.create), steps.unsettled) == (1, False)
    known.validate()


def test_one_that_has_devices_as_an_extended_resource_gives_way_too() -> None:
    """kube-scheduler makes the claim, which names the pod and not the other way round."""
    known = told(pod("a", "n1"), pod("b", "n1"))
    assert known.tell_claim("a", NOW_S) == [KEY]
    assert known.tell_claim("a", NOW_S) == known.tell_claim("stranger", NOW_S) == []
    known.tell("a", placeholder_of(pod("a", "n1")), NOW_S)
    assert known.tell_pod("team/p", WorkloadKey("team/other"), "n1", waits=True) == [KEY]
    assert names(of=known.decide(KEY, workload(), Phase.WAITS, {"main": 0}, NOW_S).remove) == ["a"]
    known.validate()


def test_a_pod_that_is_gone_keeps_nothing_away() -> None:
    known = told(pod("a", "n1", claims=True))
    known.tell_pod("team/p", WorkloadKey("team/other"), "n1", waits=True)
    known.remove_pod("team/p")
    assert not known.decide(KEY, workload(), Phase.WAITS, {"main": 0}, NOW_S).remove


def test_those_with_devices_leave_a_node_at_the_first_pod_that_comes() -> None:
    """One of another pod set may have the devices of the pod that is sent first."""
    made = with_(workload(placed={"n1": 2}), "Admitted")
    known = told(pod("a", "n1", claims=True), pod("b", "n1", claims=True))
    assert not known.decide(KEY, made, Phase.STARTS, None, NOW_S).remove
    assert known.tell_pod("team/p1", KEY, "n1", waits=True) == [KEY]
    assert names(of=known.decide(KEY, made, Phase.STARTS, None, NOW_S).remove) == ["a", "b"]


def test_one_with_claims_that_is_too_many_waits_on_for_the_devices_of_its_node() -> None:
    """The node of one of both has come: which of them gets it is seen only once kube-scheduler has tried again."""
    known = told(pod("a", claims=True), pod("b", claims=True), pod("c"))
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S)
    assert (names(of=steps.remove), steps.unsettled) == (["c"], True)
    known.tell("c", None, NOW_S)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + DEVICES_FOUND_S)
    assert (names(of=steps.remove), steps.unsettled) == (["b"], False)
    known.tell("b", placeholder_of(pod("b", "n1", claims=True)), NOW_S + 8.0)
    steps = known.decide(KEY, workload(), Phase.WAITS, {"main": 1}, NOW_S + 9.0)
    assert (steps.remove, steps.create, steps.unsettled) == ((), (), False)
    known.validate()


# -- the pod ---------------------------------------------------------------------------------------------------------


def body(
    pod_set: dict[str, Any] = POD_SET, spot: SpotRule | None = None, copies: dict[str, str] | None = None
) -> dict[str, Any]:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = {"nodeLabels": {"pool": "gpu", "nvidia.com/gpu.product": "H100"}, "tolerations": tolerations}
    flavor = decode({"metadata": {"name": "f"}, "spec": spec}, ResourceFlavor)
    made = decode({**to_raw(), "spec": {"podSets": [pod_set]}}, Workload)
    return placeholder_body("p", "ours", "pause", made, pod_set, lambda _: flavor, spot, copies or {})


def to_raw() -> dict[str, Any]:
    given_ = {"name": "main", "flavors": {"nvidia.com/gpu": "f"}, "count": 3}
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": "w1"},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given_]}},
    }


def test_it_requests_what_its_pod_requests_as_a_whole() -> None:
    (container,) = body()["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "1073741824", "nvidia.com/gpu": "8"},
        "limits": {"nvidia.com/gpu": "8"},
    }
    assert container["image"] == "pause"


def test_it_claims_what_its_pod_claims_by_copies_of_the_templates() -> None:
    claims = [
        {"name": "gpus", "resourceClaimTemplateName": "eight"},
        {"name": "nic", "resourceClaimTemplateName": "none-left"},
        {"name": "shared", "resourceClaimName": "by-name"},
    ]
    used = [{"name": "gpus", "request": "r"}, {"name": "nic"}, {"name": "shared"}]
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}, "claims": used}}
    spec = {"containers": [container], "resourceClaims": claims}
    made = body({**POD_SET, "template": {"spec": spec}}, copies={"eight": "copy"})["spec"]
    assert made["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "copy"}]
    (only,) = made["containers"]
    assert only["resources"] == {"requests": {"cpu": "1"}, "claims": [{"name": "gpus", "request": "r"}]}
    assert "resourceClaims" not in body({**POD_SET, "template": {"spec": spec}})["spec"]


def test_labels_that_only_our_agent_writes_are_not_asked_for() -> None:
    spec = body()["spec"]
    assert spec["nodeSelector"] == {"disk": "fast", "pool": "gpu"}
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [rule["key"] for rule in term["matchExpressions"]] == ["zone"]


def test_a_term_of_our_agents_labels_alone_asks_for_nothing() -> None:
    terms = [{"matchExpressions": RULES[1:]}, {"matchExpressions": RULES[:1]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    given_ = {**POD_SET, "template": {"spec": {**SPEC, "affinity": affinity}}}
    assert "affinity" not in body(given_)["spec"]


LABELS = frozenset({("karpenter.sh/capacity-type", "spot"), ("site/kind", "a"), ("site/kind", "b")})
OFF = [
    {"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"]},
    {"key": "site/kind", "operator": "NotIn", "values": ["a", "b"]},
]


def test_for_pods_that_keep_off_spot_it_asks_for_nodes_on_demand() -> None:
    off = SpotRule(wanted=False, required=True, labels=LABELS)

    def expressions(pod_set: dict[str, Any]) -> list[Any]:
        required = body(pod_set, off)["spec"]["affinity"]["nodeAffinity"]
        terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [each.get("matchExpressions") for each in terms]

    assert expressions(POD_SET) == [[RULES[0], *OFF]], "in each term of its own"
    alone = {**POD_SET, "template": {"spec": {"containers": SPEC["containers"]}}}
    assert expressions(alone) == [OFF]
    first = SpotRule(wanted=True, required=False, labels=LABELS)
    assert "affinity" not in body(alone, first)["spec"]


def test_it_tolerates_what_its_pod_and_its_flavor_tolerate() -> None:
    assert [each["key"] for each in body()["spec"]["tolerations"]] == ["t", "nvidia.com/gpu"]


def test_an_autoscaler_may_evict_it_and_any_pod_may_take_its_place() -> None:
    made = body()
    assert made["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
    assert made["metadata"]["labels"] == {PLACEHOLDER_OF: "w1"}
    assert (made["spec"]["priorityClassName"], made["spec"]["terminationGracePeriodSeconds"]) == (PLACEHOLDER_CLASS, 0)
    assert made["metadata"].keys() == {"name", "namespace", "labels", "annotations"}, "it has no owner"
    assert "schedulingGates" not in made["spec"]


# -- nothing leaks -----------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.sampled_from(["missing", "bind", "fail", "evict", "reserve", "admit", "pod", "finish", "again"]),
              st.integers(0, 3)),
    max_size=30,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(EVENTS, st.integers(0, 3))
def test_however_it_goes_and_wherever_it_is_killed_none_is_left(events: list[tuple[str, int]], kills: int) -> None:
    """A leader dies after any write: the next one has what the API server has."""
    there = There({}, {})
    pods = there.pods
    known, made, missing = Placeholders(), workload(), {"main": 2}
    for what, at in events:
        if what == "missing":
            missing = {"main": at}
        elif what == "again":
            known = Placeholders()
            _shown(known, there)
        elif what == "pod":
            known.tell_pod(f"team/p{at}", KEY, f"n{at % 2}")
        elif what in ("bind", "fail"):
            _befalls(pods, what, at)
        else:
            made = _becomes(made, what)
        _turn(known, there, made, missing, most=kills if what == "again" else 99)
        assert there.copies or not any(not each.spec.node_name for each in pods.values()) or what == "again"
        waiting = [each for each in pods.values() if not each.spec.node_name]
        if phase_of(made) is Phase.WAITS and what != "again":
            assert len(waiting) == missing["main"]
    known = Placeholders()
    _turn(known, there, with_(made, "Finished"), missing)
    assert there == There({}, {})


class There(NamedTuple):
    """What the API server has."""

    pods: dict[str, Pod]
    copies: dict[str, ClaimCopy]


def _befalls(pods: dict[str, Pod], what: str, at: int) -> None:
    """kube-scheduler binds a placeholder, or it ends."""
    if pods:
        name = sorted(pods)[at % len(pods)]
        pods[name] = pod(name, f"n{at}", phase="Failed" if what == "fail" else "")


def _becomes(made: Workload, what: str) -> Workload:
    if what == "reserve":
        return workload()
    if what == "admit":
        return with_(workload(placed={"n0": 2, "n1": 1}), "Admitted")
    return with_(made, "Evicted" if what == "evict" else "Finished")


def _turn(known: Placeholders, there: There, made: Workload, missing: dict[str, int], most: int = 99) -> None:
    """One reconciliation of what the watch shows, which is killed after so many writes."""
    _shown(known, there)
    steps = known.decide(KEY, made, phase_of(made), missing, NOW_S)
    (copy,) = copied("w1")
    writes: list[Callable[[], object]] = [partial(there.pods.pop, each.name) for each in steps.remove]
    writes += [partial(there.copies.pop, each.name) for each in steps.remove_copies]
    if steps.create and not known.has_copy(copy.name):
        writes.append(partial(there.copies.__setitem__, copy.name, copy))
    for name, _ in steps.create:
        assert name not in there.pods, "a name is taken"
        writes.append(partial(there.pods.__setitem__, name, pod(name)))
    for write in writes[:most]:
        write()
    _shown(known, there)


def _shown(known: Placeholders, there: There) -> None:
    for name in {*known.names(), *there.pods}:
        known.tell(name, placeholder_of(there.pods[name]) if name in there.pods else None, 0.0)
    for each in copied("w1"):
        known.tell_copy(each.name, there.copies.get(each.name))
    known.validate()
