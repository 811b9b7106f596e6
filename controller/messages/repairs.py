"""Sentences about repairs of GPUs: which may go on, which wait, and who leaves the GPU before."""

from inventory.words.catalog import Kind, Place, because, plural, said

_note = said(Place.REPAIRS, Kind.NOTE)
_waiting = said(Place.REPAIRS, Kind.WAITING)
_refusal = said(Place.REPAIRS, Kind.REFUSAL)
_part = said(Place.REPAIRS, Kind.PART)


@_note
def step_granted(gpu: str, step: str) -> str:
    return f"GPU {gpu}: {step} may begin"


@_note
def reset_planned(gpu: str, node: str, until: str) -> str:
    return f"GPU {gpu} of node {node} works, and a reset is due: it is ordered in the repair window that ends {until}"


@_waiting
def budget_spent(gpu: str, step: str, budget: str, flavor: str, window: str) -> str:
    return f"GPU {gpu}: {step} waits: {plural(budget, 'GPU')} of {flavor} may be repaired in {window}"


@_waiting
def domain_taken(gpu: str, step: str, node: str, label: str, window: str) -> str:
    return f"GPU {gpu}: {step} waits: node {node}, of the same {label}, is repaired, or was in the last {window}"


@_waiting
def grants_full(gpu: str, step: str, window: str) -> str:
    return f"GPU {gpu}: {step} waits: as many GPUs as a node can have were repaired here in the last {window}"


@_refusal
def nobody_repairs(gpu: str, step: str, label: str) -> str:
    return f"GPU {gpu}: {step} does not begin, by the node's label {label}=false. Remove it to have GPUs repaired"


@_part
def drained_for_repair(gpu: str, node: str, cause: str) -> str:
    return f"GPU {gpu} of node {node} is drained for its repair{because(cause)}"


@_part
def drained_for_reboot(node: str, gpu: str, cause: str) -> str:
    return f"Node {node} is drained for the reboot that repairs GPU {gpu}{because(cause)}"


@_waiting
def may_finish(drained: str, until: str) -> str:
    return f"{drained}; the pod may finish until {until}, then it has to leave"


@_note
def drain_evicted(drained: str) -> str:
    return f"{drained}; the pod is evicted"


@_note
def drain_requeued(drained: str, workload: str) -> str:
    return f"{drained}; workload {workload} is requeued"


@_note
def drain_starts_again(drained: str, workload: str, when: str) -> str:
    return f"{drained}; workload {workload} is requeued, likely start: {when}"


@_refusal
def drain_refused(drained: str, minutes: str, why: str) -> str:
    return f"{drained}; its eviction is refused for {minutes} ({why}). End the pod, or have its budget allow it"


@_refusal
def drain_held_up(drained: str, pod: str, time: str, why: str) -> str:
    return (
        f"{drained}; the eviction of pod {pod} is refused for {time} ({why}). End the pod, or have its budget allow it"
    )


@_waiting
def reboot_planned(gpu: str, cause: str) -> str:
    return f"GPU {gpu} is repaired by a reboot of its node alone{because(cause)}"


@_note
def reboot_over() -> str:
    return "No GPU of the node wants a reboot any more"


@_waiting
def node_unreachable() -> str:
    return "The node is unreachable: its agent's last word may be old"


@_waiting
def no_agent_runs(seconds: str) -> str:
    return f"No agent has run on the node for {seconds}: its last word may be old"


@_waiting
def no_gpunode() -> str:
    return "No GpuNode of this name exists: no agent speaks for the node"


@_refusal
def order_without_resets(gpu: str, order: str, node: str) -> str:
    return (
        f"GPU {gpu}: {order} is not obeyed: node {node} has remediation.reset: never. Set it before a repair is ordered"
    )


@_refusal
def reset_never(node: str) -> str:
    return f"Found {node} in spec.nodeName, expected a node whose agent has another remediation.reset than never"


@_refusal
def reset_without_agent(node: str) -> str:
    return f"Found {node} in spec.nodeName, expected a node with an agent"


@_refusal
def reset_without_gpus(node: str) -> str:
    return f"Found {node} in spec.nodeName, expected a node with GPUs"


@_refusal
def reset_selector(field: str, found: str, node: str) -> str:
    return f"Found {found} in spec.selector.{field}, expected a GPU of node {node}"


@_note
def reset_stuck(gpu: str, state: str, note: str) -> str:
    return f"GPU {gpu} is in {state}{because(note)}"


@_note
def reset_answered(gpu: str, answer: str) -> str:
    return f"GPU {gpu}, the agent says: {answer}"


@_note
def reset_too_long(minutes: str) -> str:
    return f"The reset has taken longer than {minutes}"


@_waiting
def breaker_tripped(waiting: str, budget: str, window: str, annotation: str) -> str:
    waits = f"{plural(waiting, 'repair waits', 'repairs wait')}: {plural(budget, 'GPU')} may be repaired in {window}"
    return f"{waits}; they go on by themselves, or at once with the annotation {annotation}: resume"


@_waiting
def breaker_tripped_without_flavor(waiting: str, budget: str, window: str, name: str) -> str:
    waits = f"{plural(waiting, 'repair waits', 'repairs wait')}: {plural(budget, 'GPU')} of the nodes of no flavor"
    return f"{waits} may be repaired in {window}; they go on by themselves, or by: tessera remediation resume {name}"


@_note
def breaker_healed() -> str:
    return "No repair of a GPU waits for the budget any more"


@_note
def breaker_lifted() -> str:
    return "The breaker of repairs is lifted: the window counts from now on"


@_refusal
def breaker_of_a_flavor(annotation: str, flavors: str) -> str:
    return f"{annotation}: found it on a node of {flavors}, expected a node of no flavor. Annotate the ResourceFlavor"


@_refusal
def breaker_annotation(annotation: str, found: str) -> str:
    return f"{annotation}: found {found}, expected resume"
