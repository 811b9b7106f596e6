"""Sentences about jobs and pods: their Events, and why a Workload of theirs ended."""

from inventory.words.catalog import Kind, Place, because, plural, said

_note = said(Place.JOB_EVENTS, Kind.NOTE)
_waiting = said(Place.JOB_EVENTS, Kind.WAITING)
_refusal = said(Place.JOB_EVENTS, Kind.REFUSAL)


@_note
def created_workload(workload: str) -> str:
    return f"Created workload {workload}"


@_note
def deleted_workload(workload: str) -> str:
    return f"Deleted workload {workload}"


@_note
def updated_workload(workload: str, fields: str) -> str:
    return f"Updated workload {workload}: {fields}"


@_note
def adapted_workload(workload: str) -> str:
    return f"Updated workload {workload} to what the job asks for"


@_note
def slice_replaced(workload: str) -> str:
    return f"Replaced by workload {workload}"


@_note
def growth_created(workload: str, pods: int, base: str) -> str:
    return f"Created workload {workload}, by which the gang may grow to {plural(pods, 'pod')}, to replace {base}"


@_note
def job_grown(before: int, now: int) -> str:
    return f"The gang grows from {plural(before, 'pod')} to {now}"


@_note
def admission_gated_now(gates: str) -> str:
    return f"Admission is now gated by {gates}"


@_note
def finished_workload(workload: str, message: str) -> str:
    return f"Workload {workload} is finished: {message}"


@_note
def workload_was_deleted(workload: str) -> str:
    return f"Workload {workload} was deleted"


@_note
def workload_being_deleted(workload: str) -> str:
    return f"Workload {workload} is being deleted"


@_note
def started(queue: str) -> str:
    return f"Admitted by cluster queue {queue}"


@_note
def no_match_any_more(workload: str) -> str:
    return f"The job does not match workload {workload} any more"


@_note
def pods_given_back(workload: str) -> str:
    return f"The job needs pods again that workload {workload} has given back"


@_note
def excess_pod(group: str, total: object) -> str:
    return f"Group {group} has all {plural(total, 'pod')} that were asked for"


@_note
def pods_complete(needed: object) -> str:
    return f"All {plural(needed, 'pod')} exist"


@_waiting
def owner_not_admitted() -> str:
    return "Suspended until the job that owns it is admitted"


@_waiting
def no_workload_yet() -> str:
    return "The job has no workload yet"


@_waiting
def not_admitted(workload: str) -> str:
    return f"Workload {workload} is not admitted by a cluster queue"


@_waiting
def on_hold() -> str:
    return "The job is on hold"


@_waiting
def waits_for_predecessor() -> str:
    return "The pod whose quota it takes over has not ended yet"


@_waiting
def waits_for_sisters(group: str, pods: str) -> str:
    return f"Its gates stay until it is decided about all pods of PodGroup {group}: {pods}"


@_waiting
def quota_given_back(group: str, pods: str) -> str:
    why = f"kube-scheduler starts none of PodGroup {group} while a pod of it waits"
    return f"Its quota is given back, as {why} and there is none for {pods}"


@_note
def group_removed(group: str) -> str:
    return f"PodGroup {group} of the Job controller's is no gang, and makes way for one"


@_note
def held_back_its_group(group: str) -> str:
    return f"There is no quota for it, and kube-scheduler starts none of PodGroup {group} while a pod of it waits"


@_note
def sisters_deleted(group: str, pods: str) -> str:
    why = f"kube-scheduler starts none of PodGroup {group} while a pod of it waits"
    return f"Pods without quota were deleted, as {why}: {pods}"


@_waiting
def pods_missing(missing: object, needed: object) -> str:
    return f"{missing} of {plural(needed, 'pod')} have failed or were deleted, and are not replaced yet"


@_refusal
def no_prebuilt_workload(workload: str) -> str:
    label = "kueue.x-k8s.io/prebuilt-workload-name"
    return f"Workload {workload} does not exist yet. Create it, or correct the label {label}"


@_refusal
def other_than_prebuilt() -> str:
    return "The job asks for something else than its prebuilt workload. Create both anew, so that they agree"


@_note
def not_of_these_pods(workload: str) -> str:
    return f"Workload {workload} is not one for these pods"


@_refusal
def pods_other_than_prebuilt(workload: str) -> str:
    """``not_of_these_pods``, if the Workload was made by hand."""
    return f"Workload {workload} is not one for these pods: they ask for something else. Correct one of the two"


@_refusal
def unreadable_topology(problem: str) -> str:
    return f"The pods cannot start: {problem}. See status.admission of the Workload"


@_waiting
def no_such_child(owner: str, child: str) -> str:
    return f"Its owner is of kind {owner}, which makes no {child}"


@_waiting
def beyond_the_charge(workload: str, count: int, requests: str, left: str) -> str:
    more = plural(count, "more pod that asks", "more pods that ask")
    return f"Workload {workload} has no room for {more} for {requests}: left are {left}"


@_waiting
def owner_is_not_readable(owner: str, right: str) -> str:
    return f"Its owner {owner} cannot be read: the controller lacks the right to {right}"


@_note
def started_beside_its_owner(workload: str) -> str:
    return f"Started within what workload {workload} is charged for"


@_refusal
def no_group_made(why: str) -> str:
    return (
        f"The job does not start yet: its PodGroup could not be made{because(why)}. "
        "Set tessera.nativeGangs to off to start jobs without"
    )
