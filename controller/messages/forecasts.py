"""Sentences of a forecast beside its range: what would have to change for a start, and which workloads come first."""

from inventory.words.catalog import Kind, Place, plural, said

_part = said(Place.FORECASTS, Kind.PART)


_note = said(Place.FORECASTS, Kind.NOTE)


@_note
def repairs_assumed(gpus: str, lasts: str) -> str:
    return f"{gpus} in repair: back {lasts} after the fault is assumed, since no repair has been seen yet"


@_note
def repairs_last(gpus: str, lasts: str, repairs: str) -> str:
    return f"{gpus} in repair: back {lasts} after the fault, the median of the last {repairs}"


@_note
def waits_for_repair() -> str:
    return "It waits for devices that are out of service, and starts when the first is back at the earliest"


@_note
def waits_for_back_off(flavors: str, span: str) -> str:
    """``span``: the time until nodes of the flavors are counted on again."""
    return f"Nodes of {flavors} did not come in time: it is tried again in {span}, and starts once they have come"


@_note
def waits_for_promised() -> str:
    return "It waits for places that others have, on nodes that are there or on nodes that can come"


@_part
def asks_for_less(most: str) -> str:
    return f"unless it asks for at most {most}, or the quota is raised"


@_part
def sisters_ask_for_less(group: str, most: str) -> str:
    return f"unless the pods of PodGroup {group} ask for at most {most} altogether, or the quota is raised"


@_part
def minimum_starts(minimum: str) -> str:
    return f"unless {minimum} starts, the minimum of its gang"


@_part
def has_quota(resources: str) -> str:
    return f"unless the queue gets quota of {resources}"


@_part
def bound_raised(why: str) -> str:
    return f"unless it asks for less, or the bound of its Queue is raised ({why})"


@_part
def matches_a_flavor(flavors: str) -> str:
    return f"unless its pods match a flavor of the queue ({flavors}), or the queue gets another one"


@_part
def queue_covers(resources: str, meant: str) -> str:
    """``meant``: a resource that the queue covers and whose name is near; empty: none."""
    instead = f"the name is corrected (did you mean {meant}?)" if meant else "its pods do not ask for it"
    return f"unless the queue covers {resources}, or {instead}"


@_part
def nodes_take_it() -> str:
    return "unless it asks for fewer or smaller pods, or nodes come that take them"


@_part
def nodes_take_none() -> str:
    return "unless nodes come that take its pods: those that are there take none of any size (labels, taints, devices)"


@_part
def nodes_take_less(most: str) -> str:
    return f"unless it asks for at most {most}, or nodes come that take more"


@_part
def quota_and_nodes_take_less(most: str) -> str:
    return f"unless it asks for at most {most}: quota and nodes have no more"


@_part
def without_what_is_out(clause: str) -> str:
    return f"{clause} while some nodes or devices are out of service"


@_part
def so_many_pods(count: int, pod_set: str) -> str:
    return f"{plural(count, 'pod')} of {pod_set}"


@_part
def so_many_devices(count: int, resource: str, pod_set: str) -> str:
    return in_each_pod(f"{count} {resource}", pod_set)


@_part
def in_each_pod(most: str, pod_set: str) -> str:
    return f"{most} in each pod of {pod_set}"


@_part
def flavor_has_nodes() -> str:
    return "unless a node comes that the flavor selects"


@_part
def never_starts(why_waits: str, clause: str) -> str:
    return f"{why_waits}. It never starts, {clause}"


@_part
def admitted_in_vain(too_large: str) -> str:
    return f"Quota admits it at once, and its pods never start: {too_large}"


@_part
def local_queue_created() -> str:
    return "the LocalQueue is created"


@_part
def local_queue_created_anew() -> str:
    return "the LocalQueue is created anew"


@_part
def local_queue_resumed() -> str:
    return "the LocalQueue is resumed"


@_part
def cluster_queue_created() -> str:
    return "the ClusterQueue is created"


@_part
def cluster_queue_created_anew() -> str:
    return "the ClusterQueue is created anew"


@_part
def cluster_queue_resumed() -> str:
    return "the ClusterQueue is resumed"


@_part
def cluster_queue_active() -> str:
    return "the ClusterQueue is active"


@_part
def flavors_created() -> str:
    return "the flavor is created"


@_part
def topologies_created() -> str:
    return "the topology is created"


@_part
def checks_created() -> str:
    return "the admission check is created"


@_part
def next_in_line(first: str) -> str:
    return f"{first}, which is next"


@_part
def ends(holders: str, verb: str) -> str:
    return f"When {holders} {verb}"


@_part
def ends_after(holders: str, verb: str, ahead: str) -> str:
    return f"When {holders} {verb}, after {ahead}"


@_part
def after(ahead: str, verb: str) -> str:
    return f"After {ahead}, once {verb} ended"
