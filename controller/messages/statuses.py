"""Sentences about a workload's conditions: admitted, evicted, held back, finished; and about their Events."""

from inventory.words.catalog import Kind, Place, because, plural, said

_admitted = said(Place.ADMITTED, Kind.NOTE)
_unadmitted = said(Place.ADMITTED, Kind.WAITING)
_part = said(Place.ADMITTED, Kind.PART)
_sign = said(Place.EVICTED, Kind.PART)
_evicted = said(Place.EVICTED, Kind.NOTE)
_stopped = said(Place.EVICTED, Kind.REFUSAL)


@_admitted
def holds_quota(queue: str) -> str:
    return f"Holds quota in ClusterQueue {queue}"


@_admitted
def holds_quota_after(queue: str, waited: str) -> str:
    return f"Holds quota in ClusterQueue {queue} after waiting {waited}"


@_admitted
def admitted() -> str:
    return "All requirements of admission are met"


@_admitted
def admitted_by(queue: str) -> str:
    return f"Admitted by ClusterQueue {queue}"


@_unadmitted
def gang_not_scheduled(why: str) -> str:
    return f"The scheduler starts none of its pods{because(why)}"


@_unadmitted
def gang_has_no_group(why: str) -> str:
    return f"Its PodGroup could not be made{because(why)}"


@_unadmitted
def gang_has_group() -> str:
    return "Its PodGroup is made"


@_unadmitted
def gang_preempted_by_scheduler() -> str:
    return "The scheduler has taken its nodes for pods of a higher priority"


@_admitted
def gang_halved(pods: int) -> str:
    return f"It has lost the nodes of {plural(pods, 'pod')}, and its others run"


@_admitted
def runs_with_part(runs: str, of: str, growth: str) -> str:
    return f"It runs with {runs} of {of} pods, and its growth {growth} waits for quota for the rest"


@_admitted
def gang_scheduled() -> str:
    return "The scheduler has started its pods"


@_unadmitted
def checks_not_ready(checks: str) -> str:
    return f"Admission checks are not ready: {checks}"


@_unadmitted
def awaits_nodes(queue: str, count: str, pools: str, coming: str) -> str:
    return f"Holds quota in ClusterQueue {queue}; {plural(count, 'node')} of {pools} {coming}"


@_unadmitted
def without_places(queue: str, why: str) -> str:
    return f"Holds quota in ClusterQueue {queue}; {why}"


@_unadmitted
def topology_pending() -> str:
    return "The topology assignment is pending"


@_unadmitted
def holds_no_quota() -> str:
    return "Holds no quota in its ClusterQueue"


@_admitted
def gate_cleared() -> str:
    return "The workload may queue now"


@_evicted
def preempted(preemptor: str, why: str) -> str:
    return f"Preempted to accommodate {preemptor} {why}"


@_evicted
def moved_to_free(node: str, where: str) -> str:
    return f"Moved so that node {node} is free, {where}"


@_evicted
def price_of_victim(work: str, restart: str) -> str:
    """What a victim loses, in GPU-seconds; ``restart`` is empty where its restart costs nothing."""
    return f"It loses {work} GPU-seconds of work" + (f" and {restart} by its restart" if restart else "")


@_evicted
def victim_loses_nothing() -> str:
    return "It loses no work"


@_evicted
def nodes_interrupted(what: str, notice: str, whose: str, nodes: str) -> str:
    return f"{what} is interrupted and gone in {notice}: {whose} has pods on {nodes}"


@_evicted
def coming_nodes_interrupted(what: str, notice: str, whose: str, nodes: str) -> str:
    return f"{what} is interrupted and gone in {notice}: {whose} waits for {nodes}"


@_evicted
def node_leaves(node: str, sign: str) -> str:
    return f"Node {node} is taken away ({sign}): its whole gang leaves before"


@_sign
def node_deleted() -> str:
    return "being deleted"


@_evicted
def nodes_did_not_come(flavors: str, limit: str) -> str:
    return f"Nodes of {flavors} did not come within {limit}"


@_unadmitted
def nodes_to_come(there: str, count: str, rest: str) -> str:
    """``rest``: when the others come, or that none is needed."""
    return f"{there} of {plural(count, 'node')} {'is' if '1' in (there, count) else 'are'} there, {rest}"


@_part
def rest_comes(after: str) -> str:
    return f"the rest usually after {after}"


@_part
def places_follow() -> str:
    return "its places follow"


@_unadmitted
def gives_up_in(span: str) -> str:
    return f"It gives up in {span}, if nothing in the cluster brings them"


@_part
def pool_rests(pool: str, span: str) -> str:
    """``span``: until it gives some again; empty where that is not known yet."""
    return f"pool {pool} was interrupted and gives no node" + (f" for {span}" if span else " for its cooldown")


@_unadmitted
def no_room_to_come() -> str:
    return "Even the nodes that can still come do not hold it now: it waits until they do, or its time is over"


@_evicted
def migrated(preemptor: str) -> str:
    return f"Evicted to admit {preemptor}, the same job on a better flavor"


@_evicted
def preempted_workload(workload: str, queue: str) -> str:
    return f"Preempted {workload} of ClusterQueue {queue}"


@_evicted
def moved_workload(workload: str, queue: str, where: str) -> str:
    return f"Moved {workload} of ClusterQueue {queue} {where}"


@_evicted
def slice_replaced(by: str) -> str:
    return f"Replaced by the workload slice {by}"


@_evicted
def minimum_gone(minimum: str) -> str:
    return f"{minimum}, the minimum of its gang, holds no quota any more"


@_evicted
def quota_taken(queue: str) -> str:
    return f"Its admission came late: others hold the quota of ClusterQueue {queue} by now"


@_evicted
def queue_stopped(queue: str, policy: str) -> str:
    return f"The {queue} is stopped ({policy})"


@_evicted
def queue_restarted(queue: str) -> str:
    return f"The {queue} is no longer stopped"


@_evicted
def check_retries(check: str, why: str) -> str:
    return f"Admission check {check} is in Retry{because(why)}"


@_evicted
def check_starts_over() -> str:
    return "It starts over with the next reservation"


@_evicted
def pods_not_ready_in_time(what: str, limit: str) -> str:
    return f"Its pods were not {what} within {limit}"


@_evicted
def gang_given_up(lost: str, span: str, why: str) -> str:
    return f"{why}: its {lost} {'is' if lost == 'quota' else 'are'} taken back after {span}"


@_evicted
def below_minimum_for(span: str, why: str) -> str:
    return f"It has run below its minimum for {span}{because(why)}"


@_evicted
def node_of_pods_lost(nodes: str) -> str:
    return f"Lost {nodes}: its pods get another node"


@_stopped
def check_rejected(check: str, why: str) -> str:
    return f"Admission check {check} rejected the workload{because(why)}. Set spec.active to true to try again"


@_stopped
def requeued_too_often(times: object) -> str:
    return (
        f"Its pods were not ready in time, and it was requeued {plural(times, 'time')} already. "
        "See why its pods do not start, then set spec.active to true"
    )


@_stopped
def gang_refused_too_often(times: object) -> str:
    return (
        f"The scheduler did not start its pods, and it was requeued {plural(times, 'time')} already. "
        "See what else runs on its nodes, then set spec.active to true"
    )


@_stopped
def ran_too_long(limit_s: object) -> str:
    return (
        f"It has been admitted for longer than its maximum execution time of {limit_s} s. "
        "Submit it again with a longer one, in the label kueue.x-k8s.io/max-exec-time-seconds"
    )
