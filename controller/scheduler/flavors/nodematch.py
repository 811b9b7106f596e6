"""Whether the pods of a set may run on the nodes of a flavor: taints, node selector and required node affinity.

Only what the flavor itself declares is known of its nodes. So selector and affinity are read only where they use a
label key among the flavor's ``nodeLabels``: on any other key the scheduler decides later. Source: the ResourceFlavor
API documentation and facts 9 of the conformance data.
"""

from collections.abc import Callable, Mapping, Sequence

from controller.objects.core import NodeSelector, PodSpec
from controller.objects.meta import LabelSelectorRequirement
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet
from controller.scheduler.model.taints import untolerated


def match_problem(pod_set: PodSet, flavor: ResourceFlavor) -> str | None:
    """Why pods of this set cannot run on nodes of this flavor, in one clause; None when they can."""
    spec, name = pod_set.template.spec, flavor.metadata.name
    taint = untolerated(flavor.spec.node_taints, (*spec.tolerations, *flavor.spec.tolerations))
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f"flavor {name} has the taint {taint.key}{value}:{taint.effect}, which the pod set does not tolerate"
    labels = flavor.spec.node_labels
    for key, wanted in spec.node_selector.items():
        if key in labels and labels[key] != wanted:
            return f"flavor {name} has the label {key}={labels[key]} and the pod set selects {key}={wanted}"
    if not affinity_matches(spec, labels):
        return f"flavor {name} has labels that the pod set's required node affinity does not match"
    return None


def affinity_matches(spec: PodSpec, labels: Mapping[str, str]) -> bool:
    """Whether one term of the required affinity matches, each term reduced to the keys in ``labels``. A term of which
    nothing is left counts as a match: other labels of the nodes decide on it.
    """
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required: NodeSelector | None = None
    if affinity is not None:
        required = affinity.required_during_scheduling_ignored_during_execution
    if required is None or not required.node_selector_terms:
        return True
    return any(
        all(
            _holds(requirement, labels[requirement.key])
            for requirement in term.match_expressions
            if requirement.key in labels
        )
        for term in required.node_selector_terms
    )


def _holds(requirement: LabelSelectorRequirement, value: str) -> bool:
    """Whether a label that exists with this value satisfies the requirement."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return True
        case "Gt":
            return _compared(value, requirement.values, int.__gt__)
        case "Lt":
            return _compared(value, requirement.values, int.__lt__)
    return False  # DoesNotExist, and operators that the API does not have


def _compared(value: str, bounds: Sequence[str], holds: Callable[[int, int], bool]) -> bool:
    """Whether the value compares as wanted. Gt and Lt take one whole number; anything else matches nothing."""
    try:
        return len(bounds) == 1 and holds(int(value), int(bounds[0]))
    except ValueError:
        return False
