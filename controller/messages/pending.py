"""Sentences on why a workload holds no quota: the condition QuotaReserved=False, its Event, ``tessera explain``."""

from inventory.words.catalog import Kind, Place, because, plural, said

_refusal = said(Place.PENDING, Kind.REFUSAL)
_waiting = said(Place.PENDING, Kind.WAITING)
_part = said(Place.PENDING, Kind.PART)


@_refusal
def no_local_queue(local_queue: str) -> str:
    return f"There is no LocalQueue {local_queue}. Create it, or correct the label kueue.x-k8s.io/queue-name"


@_waiting
def local_queue_deleted(local_queue: str) -> str:
    return f"LocalQueue {local_queue} is being deleted"


@_refusal
def no_cluster_queue(queue: str) -> str:
    return f"There is no ClusterQueue {queue}. Create it, or name another one in the LocalQueue"


@_waiting
def cluster_queue_deleted(queue: str) -> str:
    return f"ClusterQueue {queue} is being deleted"


@_refusal
def unknown_operator(queue: str, expected: str, found: str) -> str:
    return f"ClusterQueue {queue}: spec.namespaceSelector: expected one of {expected} as operator, found {found}"


@_refusal
def wrong_namespace(queue: str, namespace: str) -> str:
    return (
        f"ClusterQueue {queue} does not take workloads of namespace {namespace}. "
        "Use another queue, or change its spec.namespaceSelector"
    )


@_refusal
def bad_requests(problem: str) -> str:
    return f"Its requests are not valid: {problem}. Correct the job and submit it again"


@_refusal
def uncounted_claims(problem: str) -> str:
    return f"Its claims of devices cannot be counted: {problem}. Correct what is named; it queues then"


@_refusal
def checks_failed(checks: str) -> str:
    return f"Admission checks rejected it: {checks}. Read their messages in status.admissionChecks"


@_waiting
def queue_inactive(queue: str, problem: str) -> str:
    """``problem`` is one of those of the queue, with its next step."""
    return f"ClusterQueue {queue} is not active: {problem}"


@_refusal
def not_active() -> str:
    return "The workload is not active (spec.active is false). Set spec.active to true to queue it again"


@_refusal
def admission_gated(gates: str) -> str:
    return f"Held back by {gates}. Remove the gate from the annotation kueue.x-k8s.io/admission-gated-by to queue it"


@_refusal
def preemption_gated(gates: str) -> str:
    return f"Needs preemption, and its preemption gates are closed: {gates}. Open them in status.preemptionGates"


@_part
def flavor_given_up(flavor: str) -> str:
    return f"nodes of flavor {flavor} were requested too often in vain"


@_part
def beyond_quota(amount: str, resource: str, flavor: str, most: str) -> str:
    asks = f"asks for {amount} {resource} of flavor {flavor} where the queue can have {most} at most"
    return f"{asks} (ask for less, or raise its quota)"


@_part
def short_of_quota(amount: str, resource: str, flavor: str, free: str, missing: str) -> str:
    return f"needs {amount} {resource} of flavor {flavor}: {free} free, {missing} more needed"


@_waiting
def nothing_fits(queue: str) -> str:
    return f"Nothing fits in ClusterQueue {queue} now"


@_waiting
def waits_for_preempted(count: str, verb: str, names: str) -> str:
    return f"Waits for {count} to {verb}: {names}"


@_waiting
def gpus_in_repair(count: str, which: str) -> str:
    return f"{plural(count, 'GPU')} of its queue's flavors in repair: {which}"


@_part
def gpu_in_repair(gpu: str, node: str, state: str, lasts: str) -> str:
    """``lasts``: until it is likely back; empty where that is not known."""
    back = f", likely back in {lasts}" if lasts else ""
    return f"{gpu} of node {node} ({state}{back})"


@_waiting
def calendar_window(owner: str, line: str, until: str) -> str:
    return f"{owner} has the quota of its calendar's window {line} until {until}"


@_waiting
def calendar_change(owner: str, line: str, at: str) -> str:
    return f"{owner} has its own quota; the next window of its calendar, {line}, begins {at}"


@_refusal
def calendar_wrong(owner: str, problem: str) -> str:
    return f"{owner}: {problem}. Correct the entry; the others hold"


@_waiting
def evictions_held(count: str, span: str) -> str:
    return f"It evicts {count} in {span}; what ends by itself until then is spared"


@_waiting
def fits_after_preemption() -> str:
    return "Fits once the workloads that are being preempted for others have stopped"


@_waiting
def same_victims() -> str:
    return "Another workload preempts the same victims; it is tried again in the next cycle"


@_waiting
def capacity_taken() -> str:
    return "Another workload was admitted to the capacity it needs; it is tried again in the next cycle"


@_waiting
def pods_not_ready() -> str:
    return "Waits until the pods of all admitted workloads are ready"


@_waiting
def slice_gone(workload: str) -> str:
    return f"The workload slice it replaces is being evicted: {workload}"


@_waiting
def better_variant_admitted(workload: str) -> str:
    return f"A variant of the same job on a better flavor holds quota: {workload}"


@_waiting
def variant_not_acceptable(queue: str, flavor: str) -> str:
    return f"ClusterQueue {queue} takes no variant on flavor {flavor} while another one runs"


@_waiting
def not_placed(problem: str) -> str:
    return f"No place for its pods yet: {problem}"


@_waiting
def node_lost(problem: str) -> str:
    return f"A node is lost and no other takes its pods: {problem}"


@_waiting
def would_delay(workload: str) -> str:
    return f"Fits, but would delay {workload}"


@_part
def checkpoint_due(victims: object, moment: str) -> str:
    of = plural(victims, "workload that it would preempt", "workloads that it would preempt")
    return f"until {moment} it waits for checkpoints of {of}"


@_part
def starts_by(workload: str, moment: str) -> str:
    return f"{workload}, which is to start by {moment}"


@_waiting
def write_failed(problem: str) -> str:
    return f"The admission could not be written: {problem}"


@_waiting
def below_minimum(workload: str) -> str:
    return f"Waits for {workload}, the minimum of its gang, to hold quota"


@_waiting
def starts_together(group: str, room: int, pods: int) -> str:
    """``room``: for how many of its pods there is room without victims."""
    why = "kube-scheduler starts all or none"
    ways = "Raise the quota, make fewer pods, or annotate it with tessera.dev/pods-above: delete"
    return f"{pods} pods of PodGroup {group} wait, and there is room for {room}: {why}. {ways}"


@_waiting
def gang_is_kept(group: str, pods: int) -> str:
    ways = "Raise the quota, make fewer pods, or annotate it with tessera.dev/pods-above: delete"
    return f"All {plural(pods, 'pod')} of PodGroup {group} get quota at once, as they are to be kept. {ways}"


@_waiting
def not_tried() -> str:
    return "It has not been tried yet"


@_waiting
def waits_in_turn() -> str:
    return "It fits by itself, and waits for workloads before it in the queue"


@_part
def full_nodes(holders: str) -> str:
    return f"full nodes are taken by {holders}"


@_part
def unfit_nodes(numbers: str) -> str:
    return f"nodes that do not fit: {numbers}"


@_part
def no_free_capacity(wanted: str, where: str, nodes: str, largest: str) -> str:
    """``nodes``: the topology, or the flavor, whose nodes these are."""
    return f"no room for {wanted} {where} {nodes}: {largest}"


@_waiting
def flavor_interrupted(flavor: str, rate: str) -> str:
    return f"Nodes of flavor {flavor} are taken away {rate} times per node-day"


@_waiting
def flavor_comes_last(flavor: str, rate: str) -> str:
    return f"Nodes of flavor {flavor} are taken away {rate} times per node-day, so other flavors are tried first"


@_part
def flavor_is_spot(flavor: str) -> str:
    return f"flavor {flavor} is spot, and tessera.dev/spot is never"


@_part
def flavor_breaks_floor(flavor: str) -> str:
    return f"flavor {flavor} is spot, and tessera.dev/on-demand-floor would not be kept"


@_part
def no_node_has(labels: str) -> str:
    return f"no node has {labels}"


@_part
def nodes_rest(flavor: str, until: str) -> str:
    """``until``: a moment, at which the flavor is tried again."""
    return f"nodes of flavor {flavor} did not come in time, and none is counted on until {until}"


@_part
def every_node_has_come(flavor: str, most: object) -> str:
    return f"flavor {flavor} has as many nodes as its template allows ({most})"


@_part
def node_to_come_too_small(flavor: str, resource: str, offered: str, asked: str) -> str:
    return f"a node to come of flavor {flavor} has {offered} {resource}, and a pod asks for {asked}"


@_part
def promised_to_others(flavor: str, nodes: object) -> str:
    those = plural(nodes, "node")
    return f"the {those} of flavor {flavor} that can come {'is' if str(nodes) == '1' else 'are'} promised to others"


@_part
def so_many_can_come(flavor: str, nodes: object, promised: int) -> str:
    """``promised``: further nodes that can come, which others count on."""
    others = f" ({promised} more {'is' if promised == 1 else 'are'} promised to others)" if promised else ""
    return f"at most {plural(nodes, 'more node')} of flavor {flavor} can come{others}"


@_part
def fit_with_these(can_come: str, fitting: int, pods: int) -> str:
    return f"{can_come}, and at most {fitting} of {plural(pods, 'pod')} {'fits' if fitting == 1 else 'fit'} then"


@_part
def lacks_with_these(can_come: str, problem: str) -> str:
    return f"{can_come}; then {problem}"


@_part
def no_nodes() -> str:
    return "there is no node"


@_part
def flavor_without_nodes(flavor: str, lacks: str) -> str:
    return f"Flavor {flavor}: {lacks}"


@_part
def closed_nodes(closed: object, every: object, reasons: str) -> str:
    return f"{closed} of {plural(every, 'node is', 'nodes are')} closed to these pods{because(reasons)}"


@_part
def nodes_too_full(full: object, open_nodes: object) -> str:
    return f"{full} of {plural(open_nodes, 'open node has', 'open nodes have')} no room for one of them"


@_part
def pod_too_large(pod_set: str, flavors: str, asked: str, largest: str) -> str:
    return f"No node of {flavors} is large enough for a pod of {pod_set}: it asks for {asked}, {largest}"


@_part
def largest_node_has(most: str) -> str:
    return f"and the largest node has {most}"


@_part
def no_node_has_all() -> str:
    return "and no node has all of that at once"


@_part
def starts_with(fewest: int, pods: int) -> str:
    return (
        f"it starts with {fewest} of its {plural(pods, 'pod')} as soon as there is room for these, or with more of them"
    )


@_part
def grows_with(fewest: int, pods: int) -> str:
    of = plural(pods, "pod")
    return f"the gang grows to {fewest} of its {of} as soon as there is room for these, or to more of them"
