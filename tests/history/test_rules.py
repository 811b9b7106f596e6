"""Each rule speaks where something is wrong for long enough, and is silent one step before."""

from typing import Any

from history.judge import Finding
from tests.support.history.told import (
    Json,
    Told,
    admitted,
    cluster_queue,
    ended,
    having,
    job,
    leaving,
    local_queue,
    meta,
    owner,
    pod,
    spec_of,
    workload,
)

Words = list[tuple[str, str]]


def words(found: list[Finding]) -> Words:
    return [(each.rule, each.message) for each in found]


def queues(**spec: object) -> Told:
    told = Told()
    told.put(cluster_queue(**spec), local_queue())  # type: ignore[arg-type]
    told.later(1)
    return told


def end(told: Told, seconds: float = 400) -> Words:
    """What is found once so much more time has gone by."""
    told.later(seconds)
    told.put({"kind": "Node", "metadata": {"name": "n1"}})
    return words(told.found())


# -- ran-without-admission -------------------------------------------------------------------------------------------


def test_a_pod_of_a_job_with_a_queue_needs_an_admitted_workload() -> None:
    told = queues()
    one = job("j")
    told.put(one, workload(one), pod("p", one))
    assert end(told, 4) == []
    assert end(told, 2) == [("ran-without-admission", "it runs on n1 and no Workload of it is admitted")]


def test_a_pod_that_has_quota_and_waits_for_checks_may_not_run() -> None:
    told = queues()
    one = job("j")
    told.put(one, admitted(workload(one), checks=True), pod("p", one))
    assert end(told, 6)[0][0] == "ran-without-admission"


def test_a_workload_is_not_admitted_while_a_check_that_it_lists_is_not_ready() -> None:
    told = queues()
    one = job("j")
    body = admitted(workload(one))
    body["status"]["admissionChecks"] = [{"name": "c", "state": "Ready"}, {"name": "d", "state": "Pending"}]
    told.put(one, body)
    assert end(told, 4) == []
    assert end(told, 2) == [("ran-without-admission", "it was admitted before its checks were ready: d")]


def test_a_check_that_comes_to_an_admitted_workload_is_no_wrong() -> None:
    told = queues()
    one = job("j")
    told.put(one, admitted(workload(one)))
    body = admitted(workload(one))
    body["status"]["admissionChecks"] = [{"name": "late", "state": "Pending"}]
    told.later(1)
    told.put(body)
    assert end(told, 20) == []


def test_a_label_on_an_owners_owner_counts_and_none_is_nobodys_business() -> None:
    told = queues()
    outer = {"kind": "JobSet", "metadata": meta("set", labels={"kueue.x-k8s.io/queue-name": "lq"}), "spec": {}}
    inner = job("j", queue="")
    inner["metadata"]["ownerReferences"] = [owner(outer)]
    free = job("free", queue="")
    told.put(outer, inner, pod("p", inner), free, pod("q", free))
    found = [each for each in told_for(told, 6) if each.rule == "ran-without-admission"]
    assert [each.objects for each in found] == [("Pod team/p",)]
    assert found[0].message == "it runs on n1 and has no Workload"


def told_for(told: Told, seconds: float) -> list[Finding]:
    told.later(seconds)
    told.put({"kind": "Node", "metadata": {"name": "n1"}})
    return told.found()


def test_a_plain_pod_is_queued_by_the_managed_label_or_where_pods_are_queued() -> None:
    told = queues()
    told.put(pod("p", labels={"kueue.x-k8s.io/queue-name": "lq"}))
    assert end(told, 6) == []
    told.line("recorder", type="SETTINGS", settings={"queuesPods": True})
    told.put(pod("p", labels={"kueue.x-k8s.io/queue-name": "lq"}))
    told.put(pod("m", labels={"kueue.x-k8s.io/managed": "true"}))
    assert [rule for rule, _ in end(told, 6)] == ["ran-without-admission"] * 2


def test_a_pod_that_is_deleted_or_over_does_not_run() -> None:
    told = queues()
    one = job("j")
    told.put(one, workload(one), leaving(pod("p", one)), ended(pod("q", one)))
    assert end(told, 50) == []


def test_members_of_a_pod_group_belong_to_the_workload_of_its_name() -> None:
    told = queues()
    labels = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "job-j"}
    told.put(admitted(workload(job("j"))), pod("p", labels=labels))
    assert end(told, 50) == []


# -- released-early ----------------------------------------------------------------------------------------------------


def test_quota_goes_back_after_the_pods() -> None:
    told = queues()
    one = job("j")
    told.put(one, admitted(workload(one)), pod("p", one))
    told.later(20)
    told.put(workload(one))
    assert end(told, 9) == []
    assert end(told, 2) == [("released-early", "its Workload has no quota any more, and it runs on")]


def test_a_workload_is_not_finished_while_its_pods_run() -> None:
    told = queues()
    one = job("j")
    told.put(one, admitted(workload(one)), pod("p", one))
    told.later(20)
    told.put(having(one, "Complete"), having(admitted(workload(one)), "Finished"))
    assert end(told, 11) == [("released-early", "its Workload is finished, and it runs on")]


def preempted_after(seconds: float, told: Told, reason: str = "Preempted") -> Words:
    one = job("j")
    told.put(one, workload(one))
    told.later(1)
    told.put(admitted(workload(one)))
    told.later(seconds)
    told.put(having(admitted(workload(one)), "Evicted", reason))
    told.later(1)
    told.put(having(workload(one), "Evicted", reason))
    return words(told.found())


def test_a_minimum_runtime_protects_from_preemption_and_from_nothing_else() -> None:
    notes = {"tessera.dev/minimum-runtime-before-preemption": "1m30s"}
    said = [("released-early", "it was preempted 60 s after its admission, the minimum is 90 s")]
    assert preempted_after(60, queues(notes=notes)) == said
    assert preempted_after(89, queues(notes=notes)) == []
    assert preempted_after(60, queues(notes=notes), "NodeFailures") == []
    assert preempted_after(60, queues()) == []


def test_the_minimum_runtime_of_the_configuration_counts_without_an_annotation() -> None:
    told = queues()
    told.line("recorder", type="SETTINGS", settings={"minimumRuntimeS": 30, "minimumRuntimeByClass": {"low": 5}})
    assert preempted_after(20, told) != []
    told = queues(notes={"tessera.dev/minimum-runtime-before-preemption": "0s"})
    told.line("recorder", type="SETTINGS", settings={"minimumRuntimeS": 30})
    assert preempted_after(20, told) == []


def test_an_annotation_that_has_just_come_protects_nobody_yet() -> None:
    told = queues()
    one = job("j")
    told.put(one, admitted(workload(one)))
    told.later(5)
    told.put(workload(one))
    told.later(1)
    told.put(admitted(workload(one)))
    told.later(5)
    told.put(cluster_queue(notes={"tessera.dev/minimum-runtime-before-preemption": "1h"}))
    told.later(3)
    told.put(having(admitted(workload(one)), "Evicted", "Preempted"))
    assert words(told.found()) == []


def test_no_more_move_in_an_hour_than_the_budget_has() -> None:
    told = queues(quota=9)
    told.line("recorder", type="SETTINGS", settings={"movesPerHour": 1})
    for name in ("a", "b"):
        one = job(name)
        told.put(one, admitted(workload(one)))
        told.later(700)
        moved = having(having(admitted(workload(one)), "Evicted", "Preempted"), "Preempted", "Consolidation")
        told.put(having(moved, "tessera.dev/Moved"))
        told.later(1)
        told.put(workload(one))
    assert words([each for each in told.found() if each.rule == "released-early"]) == [
        ("released-early", "it is the 2th that moves in an hour, 1 may")
    ]


def test_the_budget_of_moves_begins_anew_with_the_settings() -> None:
    """A new controller knows nothing of the moves of workloads that are gone."""
    told = queues(quota=9)
    for name in ("a", "b"):
        told.line("recorder", type="SETTINGS", settings={"movesPerHour": 1})
        one = job(name)
        told.put(one, admitted(workload(one)))
        told.later(700)
        moved = having(having(admitted(workload(one)), "Evicted", "Preempted"), "Preempted", "Consolidation")
        told.put(having(moved, "tessera.dev/Moved"))
        told.later(1)
        told.put(workload(one))
    assert [each for each in told.found() if each.rule == "released-early"] == []


# -- half-gang ---------------------------------------------------------------------------------------------------------


def test_all_pods_of_a_gang_have_a_node_or_none() -> None:
    told = queues()
    one = job("j", count=3)
    told.put(one, admitted(workload(one, count=3)), pod("p0", one), pod("p1", one))
    assert end(told, 119) == []
    assert end(told, 2) == [("half-gang", "2 of 3 pods of pod set main have a node")]


def test_pods_that_have_ended_or_are_needed_no_more_are_not_missed() -> None:
    told = queues()
    one = job("j", count=3)
    held = admitted(workload(one, count=3))
    held["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    told.put(one, held, pod("p0", one), ended(pod("p1", one), "Failed"))
    assert end(told) == []


def test_a_gang_of_kubernetes_own_starts_whole_or_not_at_all() -> None:
    told = queues()
    one = job("j", count=3, spec=spec_of(schedulingGroup={"podGroupName": "g"}))
    told.put(one, admitted(workload(one, count=3)), pod("p0", one), pod("p1", one), pod("p2", one, node=""))
    assert end(told, 29) == []
    assert end(told, 2) == [("half-gang", "2 of 3 pods of pod set main have a node")]


def test_a_gang_of_kubernetes_own_that_waits_whole_is_no_half_one() -> None:
    told = queues()
    one = job("j", count=2, spec=spec_of(schedulingGroup={"podGroupName": "g"}))
    told.put(one, admitted(workload(one, count=2)), pod("p0", one, node=""), pod("p1", one, node=""))
    assert [each for each in end(told) if each[0] == "half-gang"] == []


def test_a_pod_that_a_started_gang_loses_may_take_as_long_as_any_other() -> None:
    told = queues()
    one = job("j", count=2, spec=spec_of(schedulingGroup={"podGroupName": "g"}))
    lost = pod("p1", one)
    told.put(one, admitted(workload(one, count=2)), pod("p0", one), lost)
    told.later(5)
    told.drop(lost)
    told.put(pod("p2", one, node=""))
    assert end(told, 119) == []
    assert end(told, 2) == [("half-gang", "1 of 2 pods of pod set main have a node")]


def test_a_gang_is_not_admitted_below_its_minimum() -> None:
    told = queues()
    one = job("j", count=4)
    whole = workload(one, count=4)
    told.put(one, admitted(whole, count=3))
    assert ("half-gang", "pod set main is admitted with 3 of at least 4 pods") in end(told, 121)
    told = queues()
    whole["spec"]["podSets"][0]["minCount"] = 3
    told.put(one, admitted(whole, count=3))
    assert end(told, 121) == []


def test_pods_behind_the_gate_while_others_run_are_told() -> None:
    told = queues()
    one = job("j", count=2)
    gated = pod("p1", one, node="", spec=spec_of(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]))
    told.put(one, admitted(workload(one, count=2)), pod("p0", one), gated)
    found = end(told, 121)
    assert ("half-gang", "1 of 2 pods of pod set main have a node, 1 wait behind a gate") in found
    assert ("forgotten", "its Workload is admitted, and it waits behind the queue's gate") in found


# -- out-of-order ------------------------------------------------------------------------------------------------------


def two(told: Told, first: int = 0, second: int = 0, **later: object) -> None:
    """``a`` came first; ``b`` is let in and ``a`` is not. With priorities."""
    one, other = job("a"), job("b", **later)  # type: ignore[arg-type]
    told.put(one, workload(one, at=1, priority=first))
    told.later(10)
    told.put(other, workload(other, at=11, priority=second))
    told.later(10)
    told.put(admitted(workload(other, at=11, priority=second)))


def orders(told: Told, seconds: float = 50) -> list[tuple[str, ...]]:
    return [each.objects[:2] for each in told_for(told, seconds) if each.rule == "out-of-order"]


def test_among_those_that_ask_for_the_same_the_oldest_comes_first() -> None:
    told = queues(quota=1)
    two(told)
    assert orders(told, 9) == []
    assert orders(told, 2) == [("Workload team/job-a", "Workload team/job-b")]


def test_a_higher_priority_comes_first_whatever_the_age() -> None:
    told = queues(quota=1)
    two(told, first=0, second=5)
    assert orders(told) == []


def test_who_asks_for_something_else_may_pass_unless_the_queue_is_strict() -> None:
    told = queues(quota=1, queueingStrategy="StrictFIFO")
    two(told, spec=spec_of(2))
    assert orders(told) == []
    told = queues(quota=1, queueingStrategy="StrictFIFO")
    told.line("recorder", type="SETTINGS", settings={"backfill": False})
    two(told, spec=spec_of(2))
    assert orders(told) == [("Workload team/job-a", "Workload team/job-b")]


def test_who_is_held_back_is_not_passed() -> None:
    told = queues(quota=1)
    one, other = job("a"), job("b")
    told.put(one, having(workload(one, at=1), "Requeued", "Backoff", "False"), other, workload(other, at=11))
    told.later(20)
    told.put(admitted(workload(other, at=11)))
    assert orders(told) == []


# -- forgotten ---------------------------------------------------------------------------------------------------------


def test_a_job_with_a_queue_gets_a_workload() -> None:
    told = queues()
    told.put(job("j", suspend=True), job("free", suspend=True, queue=""))
    assert end(told, 59) == []
    assert end(told, 2) == [("forgotten", "it names a queue and has no Workload")]


def test_a_gated_pod_gets_a_workload() -> None:
    told = queues()
    told.put(pod("p", node="", spec=spec_of(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])))
    assert end(told, 61) == [("forgotten", "it waits behind the queue's gate and has no Workload")]


def test_who_waits_is_told_why() -> None:
    told = queues(quota=0)
    one = job("j", suspend=True)
    told.put(one, {**workload(one), "status": {}})
    assert end(told, 61) == [("forgotten", "it waits and no reason is told")]


def test_who_waits_for_quota_that_is_free_has_been_forgotten() -> None:
    told = queues(quota=2)
    one, other = job("j", suspend=True), job("k", suspend=True, spec=spec_of(2))
    told.put(one, workload(one), other, admitted(workload(other)))
    told.later(300)
    told.put(having(other, "Complete"), having(admitted(workload(other)), "Finished"))
    assert [each for each in end(told, 59) if "free" in each[1]] == []
    found = [each for each in told_for(told, 2) if "free" in each.message]
    assert [each.objects for each in found] == [("Workload team/job-j", "ClusterQueue cq")]


def test_quota_that_others_wait_for_too_may_be_kept_for_them() -> None:
    told = queues(quota=2)
    one, other = job("j", suspend=True), job("k", suspend=True, spec=spec_of(2))
    told.put(one, workload(one), other, workload(other))
    assert end(told) == []


def test_an_admitted_job_is_started() -> None:
    told = queues()
    one = job("j", suspend=True)
    told.put(one, admitted(workload(one)))
    assert end(told, 61) == [("forgotten", "it is admitted, and its job is suspended")]


def test_quota_that_nothing_needs_goes_back() -> None:
    told = queues()
    done, gone, out = job("done"), job("gone"), job("out", suspend=True)
    told.put(done, gone, out, *(admitted(workload(each)) for each in (done, gone)))
    told.put(having(admitted(workload(out)), "Evicted", "Preempted"))
    told.later(5)
    told.put(having(done, "Complete"))
    told.drop(gone)
    assert sorted(message for _, message in end(told, 61)) == [
        "it is evicted, none of its pods runs, and it has quota",
        "its job is over, and it has quota",
        "its owners are deleted, and it has quota",
    ]


# -- pod sets, slices, and what is forgotten ---------------------------------------------------------------------------


def two_sets(kind: str = "JobSet", **spec: Any) -> tuple[Told, Json]:
    """A job of a leader and two workers, admitted."""
    told = queues()
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    one = {"kind": kind, "metadata": meta("j", labels=labels), "spec": {"template": {"spec": spec_of()}, **spec}}
    waiting = workload(one)
    row = waiting["spec"]["podSets"][0]
    waiting["spec"]["podSets"] = [{**row, "name": "leader"}, {**row, "name": "workers", "count": 2}]
    told.put(one, admitted(waiting))
    return told, one


def member(name: str, of: Json, part: str, node: str = "n1") -> Json:
    return pod(name, of, node=node, labels={"kueue.x-k8s.io/podset": part})


def test_all_pod_sets_of_a_gang_run_or_none() -> None:
    told, one = two_sets()
    told.put(member("l", one, "leader"), member("a", one, "workers", ""), member("b", one, "workers", ""))
    assert end(told, 119) == []
    assert end(told, 2) == [("half-gang", "0 of 2 pods of pod set workers have a node")]
    told, one = two_sets()
    told.put(member("l", one, "leader", ""), member("a", one, "workers"), member("b", one, "workers"))
    assert end(told, 121) == [("half-gang", "0 of 1 pods of pod set leader have a node")]
    told, one = two_sets()
    told.put(member("l", one, "leader"), member("a", one, "workers"), member("b", one, "workers"))
    assert end(told) == []


def test_a_pod_set_without_pods_is_missed_only_where_all_are_made_at_once() -> None:
    told, one = two_sets()
    told.put(member("l", one, "leader"))
    assert end(told, 121) == [("half-gang", "0 of 2 pods of pod set workers have a node")]
    later: dict[str, dict[str, Any]] = {
        "in order": {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        "depends": {"replicatedJobs": [{"name": "workers", "dependsOn": [{"name": "leader"}]}]},
    }
    for spec in later.values():
        told, one = two_sets(**spec)
        told.put(member("l", one, "leader"))
        assert end(told) == []
    told, one = two_sets("RayJob")
    told.put(member("l", one, "leader"))
    assert end(told) == []


def test_a_pod_that_has_lost_the_queues_gate_without_a_workload_may_not_run() -> None:
    told = queues()
    told.put(pod("p", node="", spec=spec_of(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])))
    told.later(1)
    told.put(pod("p"))
    assert end(told, 6) == [("ran-without-admission", "it runs on n1 and has no Workload")]


def test_a_workload_that_is_finished_at_the_first_line_was_admitted() -> None:
    told = Told()
    one = job("j")
    told.put(cluster_queue(), local_queue(), one, having(admitted(workload(one)), "Finished"), pod("p", one))
    assert end(told, 11) == [("released-early", "its Workload is finished, and it runs on")]


def test_a_suspended_job_of_any_kind_gets_a_workload() -> None:
    told = queues()
    for kind, spec in (("PyTorchJob", {"runPolicy": {"suspend": True}}), ("RayJob", {"suspend": True})):
        about = meta(kind.lower(), labels={"kueue.x-k8s.io/queue-name": "lq"})
        told.put({"kind": kind, "metadata": about, "spec": spec})
        told.put({"kind": kind, "metadata": {**about, "name": f"free-{kind}"}, "spec": {}})
    assert end(told, 59) == []
    assert end(told, 2) == [("forgotten", "it names a queue and has no Workload")] * 2


def test_a_gated_pod_of_a_deployment_gets_a_workload_and_one_of_a_group_waits_for_the_others() -> None:
    gate = spec_of(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    replicas = {"kind": "ReplicaSet", "metadata": meta("rs"), "spec": {}}
    told = queues()
    told.put(replicas, pod("g", replicas, node="", spec=gate, labels={"kueue.x-k8s.io/pod-group-name": "group"}))
    assert end(told) == []
    told.put(pod("p", replicas, node="", spec=gate))
    assert end(told, 61) == [("forgotten", "it waits behind the queue's gate and has no Workload")]


def test_a_workload_whose_checks_are_ready_is_admitted() -> None:
    said = [("forgotten", "it has quota, no check of it is open, and it is not admitted")]
    for state, expected in (("Ready", said), ("Pending", [])):
        told = queues()
        one = job("j", suspend=True)
        body = admitted(workload(one), checks=True)
        body["status"]["admissionChecks"] = [{"name": "c", "state": state}]
        told.put(one, body)
        assert end(told, 59) == []
        assert end(told, 2) == expected


def test_a_workload_that_is_held_back_comes_back_at_its_time() -> None:
    told = queues()
    one = job("j", suspend=True)
    body = having(workload(one), "Requeued", "PodsReadyTimeout", "False")
    body["status"]["conditions"][-1]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    body["status"]["requeueState"] = {"count": 1, "requeueAt": "2026-01-01T00:05:00Z"}
    told.put(one, body)
    assert end(told, 359) == []
    assert end(told, 2) == [("forgotten", "the time at which it comes back is over")]
    told = queues()
    told.put(one, having(workload(one), "Requeued", "EvictedByDeactivation", "False"))
    assert end(told) == []


def pending(message: str) -> Told:
    told = queues(quota=2)
    one = job("j", suspend=True)
    body = workload(one)
    body["status"]["conditions"][0] |= {"reason": "Pending", "message": message}
    told.put(one, body)
    told.later(400)
    told.put({"kind": "Node", "metadata": {"name": "n1"}})
    return told


def test_kueues_words_for_missing_quota_are_read_and_others_are_not_seen() -> None:
    unseen = "free quota for workloads that wait as Pending and do not say that quota is missing"
    told = pending("couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor f")
    assert [each.rule for each in told.found()] == ["forgotten"]
    assert unseen not in told.verdict().unseen
    told = pending("topology forbids it")
    assert told.found() == []
    assert unseen in told.verdict().unseen


# -- grants of CapacityRequests --------------------------------------------------------------------------------------


def grant(units: int) -> Json:
    """The admitted Workload of a request, a pod for each unit."""
    request = {"kind": "CapacityRequest", "metadata": meta("ask"), "spec": {"template": {"spec": spec_of()}}}
    return admitted(workload(request, count=units))


def of_grant(name: str, node: str = "n1", by: str = "job-ask") -> Json:
    """A pod that names the request; it has waited behind the queue's gate."""
    notes = {"kueue.x-k8s.io/workload": by} if by else {}
    body = pod(name, node=node, labels={"tessera.dev/capacity-request": "ask"}, annotations=notes)
    gates = {} if node else {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    return {**body, "spec": {**body["spec"], **gates}}


def test_units_of_a_grant_that_nobody_uses_are_no_half_of_a_gang_and_its_pods_may_wait() -> None:
    told = queues()
    told.put(grant(3), of_grant("a"), of_grant("b", node="", by=""))
    assert end(told) == []


def test_pods_that_say_they_are_inside_of_a_grant_run_by_its_workload_alone() -> None:
    told = queues()
    told.put(of_grant("b", node="", by=""))
    told.later(1)
    told.put(of_grant("b"))
    assert end(told, 6) == [("ran-without-admission", "it runs on n1 and has no Workload")]


def test_more_pods_than_a_grant_has_units_are_counted_against_the_quota() -> None:
    told = queues()
    told.put(grant(4), *(of_grant(f"p{number}") for number in range(5)))
    assert [rule for rule, _ in end(told, 6)] == ["over-quota"]


def test_groups_of_one_object_that_pods_name_in_an_annotation_are_charged_each_for_its_own() -> None:
    """A LeaderWorkerSet has a Workload for each group: all of them are the set's, and each pod is of one."""
    told = queues()
    made = {"kind": "LeaderWorkerSet", "metadata": meta("set"), "spec": {"template": {"spec": spec_of(2)}}}
    for number in range(2):
        held = admitted(workload(made))
        name = f"group-{number}"
        held["metadata"] = {**held["metadata"], "name": name, "uid": f"uid-{name}"}
        notes = {"kueue.x-k8s.io/pod-group-name": name}
        told.put(held, pod(f"p{number}", made, annotations=notes))
    assert end(told, 6) == []
