"""Sentences of ``tessera remediation``: what would be done about a GPU, and what became of an order."""

from cli.words.quoting import quoted
from inventory.words.catalog import Kind, Place, said

_refusal = said(Place.COMMANDS, Kind.REFUSAL)
_waiting = said(Place.COMMANDS, Kind.WAITING)
_note = said(Place.COMMANDS, Kind.NOTE)

# -- what would be done now


@_refusal
def no_repair() -> str:
    return (
        "nothing is done: its agent repairs no GPU (remediation.reset is never), the driver asks for no reset, or a "
        "person ended it. See docs/remediation.md"
    )


@_refusal
def resets_never() -> str:
    return (
        "nothing is done: its agent repairs no GPU, found remediation.reset: never there. Set when-free or drain, "
        "or reset it by hand"
    )


@_note
def unrepaired(why: str) -> str:
    return f"nothing is done: {why}"


@_note
def serves() -> str:
    return "nothing is done: containers still get it"


@_note
def waits_for_window(node: str, index: int) -> str:
    return (
        "containers still get it; a reset is due, which the controller orders in a repair window "
        f"(tessera.remediation.repairWindows), or you by tessera remediation start {node} {index}"
    )


@_waiting
def verdict() -> str:
    return "nothing is done: it is on probation"


@_refusal
def nobody_repairs(label: str) -> str:
    return f"nothing is done, by the node's label {label}=false. Remove it to have its GPUs repaired"


@_waiting
def breaker_tripped(flavor: str) -> str:
    return (
        f"it waits: the breaker of flavor {flavor} has tripped, and heals by itself. "
        f"At once by: tessera remediation resume {flavor}"
    )


@_waiting
def tripped(flavor: str) -> str:
    return (
        f"The breaker of flavor {flavor} has tripped: repairs wait, and go on by themselves. "
        f"At once by: tessera remediation resume {flavor}"
    )


@_waiting
def comes_next(step: str) -> str:
    return step


@_waiting
def drain_waits_for_grant(holders: str) -> str:
    return f"once the controller grants it, these pods leave: {holders}"


@_waiting
def waits_for_holders(holders: str) -> str:
    return f"it is reset once nobody has it. Now: {holders}"


@_waiting
def waits_as_told(note: str) -> str:
    return f"it is not reset yet: {note}"


@_waiting
def evicted(holders: str) -> str:
    return f"these pods are asked to leave, and then it is reset: {holders}"


@_waiting
def budget_refuses(budget: str, pods: str, allowed: int, asked: int, healthy: int, desired: int) -> str:
    """``healthy`` and ``desired``: the ready pods that the budget has, and those that it wants at least."""
    return (
        f"PodDisruptionBudget {budget} refuses evictions now: it allows {allowed} of {asked} ({pods}), since {healthy} "
        f"of its pods are healthy and {desired} have to be"
    )


@_waiting
def budget_not_counted(budget: str, pods: str) -> str:
    return (
        f"PodDisruptionBudget {budget} refuses evictions now ({pods}): Kubernetes has not counted its pods since it "
        "was changed"
    )


@_refusal
def budgets_more_than_one(budget: str, pods: str) -> str:
    return (
        f"PodDisruptionBudget {budget} is not the only one of {pods}, and Kubernetes evicts no pod that two of them "
        "select. Remove all but one"
    )


@_note
def budgets_unknown(namespace: str, why: str) -> str:
    return f"whether a disruption budget of {namespace} refuses a drain is not known: {why}"


@_waiting
def reset_now() -> str:
    return "it is reset"


@_waiting
def goes_on(state: str) -> str:
    return f"its repair is in {state}, and goes on by itself"


@_waiting
def wants_reboot(step: str) -> str:
    return f"nothing is done to the GPU, since only a reboot helps: {step}"


@_refusal
def is_retired(node: str, index: object) -> str:
    return f"nothing is done: it is retired. See to the board, then tessera remediation return {node} {index}"


# -- orders


@_refusal
def no_gpu_node(found: str) -> str:
    return f"NODE: found {quoted(found)}, expected a node whose agent has written a GpuNode"


@_refusal
def no_gpu(found: str, node: str, expected: str) -> str:
    return f"GPU: found {quoted(found)}, expected an index or a UUID of {node}: {expected}"


@_refusal
def no_gpus(found: str, node: str) -> str:
    return f"GPU: found {quoted(found)}, expected a node with GPUs: the GpuNode {node} tells of none"


@_refusal
def no_flavor(found: str) -> str:
    return f"FLAVOR: found {quoted(found)}, expected a ResourceFlavor that exists"


@_refusal
def order_stands(gpu: str, found: str) -> str:
    return f"{gpu}: found the order {quoted(found)}, which its agent has not answered. Use --replace to give yours"


@_refusal
def takes_no_orders(gpu: str) -> str:
    return f"{gpu}: its agent takes no orders, found remediation.reset: never there, expected when-free or drain"


@_refusal
def not_answered(gpu: str, order: str, seconds: str) -> str:
    return (
        f"{gpu}: after {seconds} s its agent has not answered the order {order}. It stays on the GpuNode. "
        "See the agent's log, and whether its remediation.reset is never"
    )


@_refusal
def taken_off(gpu: str, order: str, seconds: str) -> str:
    return (
        f"{gpu}: after {seconds} s the order {order} is gone from the GpuNode, and no answer is there. "
        "See tessera remediation list and the agent's log"
    )


@_refusal
def replaced(gpu: str, order: str, found: str) -> str:
    return f"{gpu}: the order {order} was replaced by {quoted(found)}, expected it to stay. See who did that"


@_refusal
def changed_meanwhile(node: str) -> str:
    return f"GpuNode {node}: found it changed at each of several tries, expected it to rest. See the agent's log"


@_note
def ordered(gpu: str, order: str) -> str:
    return f"{gpu}: {order} is ordered"


@_note
def answered(gpu: str, order: str, answer: str) -> str:
    return f"{gpu}: {order}: {answer}"


@_note
def resumed(flavor: str) -> str:
    return f"ResourceFlavor {flavor}: its repairs go on once the controller has read it"


@_note
def resumed_without_flavor() -> str:
    return "Nodes of no flavor: their repairs go on once the controller has read it"


@_refusal
def nothing_to_resume(name: str) -> str:
    return f"FLAVOR: found {name}, expected a breaker that has tripped: no repair on a node of no flavor waits for it"
