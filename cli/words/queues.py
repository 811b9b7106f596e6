"""Sentences about mistakes in queues, quotas and workloads that a command names."""

from cli.words.quoting import quoted
from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.COMMANDS, Kind.REFUSAL)


@_refusal
def none_of_that_name(found: str, kind: str) -> str:
    return f"NAME: found {quoted(found)}, expected a {kind} that exists"


@_refusal
def no_cluster_queue(option: str, found: str) -> str:
    return f"{option}: found {quoted(found)}, expected a ClusterQueue's name"


@_refusal
def no_cluster_queue_yet(found: str) -> str:
    return f"-c: found {quoted(found)}, expected a ClusterQueue that exists (--ignore-unknown-cq passes over it)"


@_refusal
def no_local_queue(found: str) -> str:
    return f"--local: found {quoted(found)}, expected a LocalQueue that exists"


@_refusal
def no_queue_to_move_to(found: str, namespace: str) -> str:
    return f"--to: found {quoted(found)}, expected a LocalQueue that exists in {namespace}"


@_refusal
def no_priority_class(found: str) -> str:
    return f"--class: found {quoted(found)}, expected a WorkloadPriorityClass that exists"


@_refusal
def unknown_kind(found: str, known: str) -> str:
    return f"found {quoted(found)}, expected one of {known}"


@_refusal
def several_kinds(name: str, those: str) -> str:
    return f"WORKLOAD: found jobs of several kinds called {name}, expected one of {those}"


@_refusal
def no_workload(name: str) -> str:
    return f"WORKLOAD: found {name}, expected a Workload or a job that exists, or pod/NAME"


@_refusal
def no_namespace(where: str, found: str) -> str:
    return f"{where}: found {quoted(found)}, expected a namespace that exists"


@_refusal
def no_pod(name: str, namespace: str) -> str:
    return f"WORKLOAD: found pod/{name}, expected a pod that exists in {namespace} (-n NAMESPACE)"


@_refusal
def in_no_queue(name: str, kind: str, label: str) -> str:
    return f"WORKLOAD: found {name}, a {kind} in no queue, expected one with the label {label}"


@_refusal
def no_workload_yet(name: str, kind: str, why: str) -> str:
    """``why``: the last Warning about it; empty for none."""
    return f"WORKLOAD: found {name}, a {kind} that has no Workload yet{f': {why}' if why else ''}. See its Events"


@_refusal
def unknown_owner(kind: str, name: str, version: str) -> str:
    return f"{kind} {name}: found a kind of {version} that is not known, expected a kind of job (docs/job-kinds.md)"


@_refusal
def finished(workload: str) -> str:
    return f"{workload}: found a Workload that is finished, expected one that waits or runs"


@_refusal
def finished_not_waiting(workload: str) -> str:
    return f"{workload}: found a Workload that is finished, expected one that waits"


@_refusal
def holds_quota(workload: str) -> str:
    return (
        f"{workload}: found a Workload that holds quota, expected one that waits: "
        f"stop it (tessera workload stop {workload}), move it, and resume it"
    )


@_refusal
def already_there(workload: str, queue: str) -> str:
    return f"{workload}: found in LocalQueue {queue} already, expected another one's name"


@_refusal
def class_stays(workload: str, found: str, expected: str) -> str:
    return (
        f"{workload}: found {found} on a Workload that holds quota, expected a {expected}: "
        "stop it first (tessera workload stop), or wait for its end"
    )


@_refusal
def group_of_pods(workload: str, count: object, label: str) -> str:
    return f"{workload}: found a group of {count} pods, expected a job: label {label} on every pod (kubectl label pod)"


@_refusal
def another_meanwhile(what: str) -> str:
    return f"{what}: found another object of that name, created since; it stays. See it, and run the command again"


@_refusal
def bad_amount(found: str, flavor: str) -> str:
    return f"found {quoted(found)} for flavor {flavor}, expected RESOURCE=AMOUNT"


@_refusal
def twice(resource: str, flavor: str) -> str:
    return f"found {resource} of flavor {flavor} twice, expected it once"


@_refusal
def no_quantity(found: str, resource: str, flavor: str) -> str:
    return f"found {quoted(found)} for {resource} of flavor {flavor}, expected a quantity from 0 on"


@_refusal
def limit_alone(option: str, resource: str, flavor: str) -> str:
    return f"{option}: found {resource} of flavor {flavor}, expected --nominal-quota for it as well"


@_refusal
def other_resources(shared: str, flavor: str) -> str:
    return (
        f"--nominal-quota: found {shared} of flavor {flavor} beside other resources than another flavor has, "
        f"expected the same resources for every flavor of {shared}"
    )


@_refusal
def bad_pair(found: str) -> str:
    return f"found {quoted(found)}, expected KEY=VALUE"


@_refusal
def bad_taint(found: str, effects: str) -> str:
    return f"found {quoted(found)}, expected KEY=VALUE:EFFECT with one of {effects}"
