"""The pod of a placeholder: what an autoscaler has to know to bring a node on which the pod that it stands for fits,
and nothing that the pod would do.

It has the requests of that pod as one container, its node rules with those of the flavors, its tolerations, and claims
for the same devices. Labels that only our agent writes are left out: no autoscaler knows them of a node that is not
there, and it would bring none.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from controller.jobs.framework.offspot import off_spot, with_affinity
from controller.jobs.framework.raw import Json, mapping, sequence
from controller.objects.core import PodSpec
from controller.objects.decode import decode
from controller.objects.quantity import Quantity
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.claimcopies import claims_by_template, used_claims
from controller.reconcile.provisioning.requests import NeededPodSet, flavored_template
from controller.scheduler.model.podrequests import pod_requests
from controller.scheduler.topology.requests import SpotRule
from inventory.api.names import PLACEHOLDER_CLASS, PLACEHOLDER_FOR, PLACEHOLDER_OF, PREFIX

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_AGENTS: Final = ("nvidia.com/", PREFIX)
"""Prefixes of labels that our agent writes once the node is there."""
_OVERCOMMITTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of which a container may request less than its limit."""


def placeholder_body(
    name: str,
    namespace: str,
    image: str,
    workload: Workload,
    pod_set: Json,
    flavor: Callable[[str], ResourceFlavor | None],
    spot: SpotRule | None = None,
    copies: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """A placeholder for one pod of a pod set, given as in the Workload's spec. ``spot``: what the workload wants of
    nodes. ``copies``: by claim template the name of its copy; claims of others are left out. Raises FlavorMissingError.
    """
    named = str(pod_set.get("name"))
    template = flavored_template(pod_set, NeededPodSet(named, 1, flavors_of(workload, named)), flavor)
    claims = {name: copies[each] for name, each in claims_by_template(template).items() if each in copies}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {PLACEHOLDER_OF: workload.metadata.uid},
            "annotations": {PLACEHOLDER_FOR: f"{workload.key} {named}", SAFE_TO_EVICT: "true"},
        },
        "spec": _spec(mapping(template, "spec"), image, off_spot(spot), claims),
    }


def flavors_of(workload: Workload, pod_set: str) -> tuple[str, ...]:
    """The flavors that a pod set has got, sorted."""
    admission = workload.status.admission
    assignments = admission.pod_set_assignments if admission is not None else ()
    return tuple(sorted({flavor for each in assignments if each.name == pod_set for flavor in each.flavors.values()}))


def _spec(given: Json, image: str, off: Sequence[Json], claims: Mapping[str, str]) -> Json:
    hardened = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    container = {
        "name": "placeholder",
        "image": image,
        "resources": _resources(decode(given, PodSpec), list(used_claims(given, claims))),
        "securityContext": hardened,
    }
    spec: Json = {
        "containers": [container],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "priorityClassName": PLACEHOLDER_CLASS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 0,
    }
    if claims:
        spec["resourceClaims"] = [
            {"name": name, "resourceClaimTemplateName": template} for name, template in claims.items()
        ]
    if selector := {key: value for key, value in mapping(given, "nodeSelector").items() if not _is_agents(key)}:
        spec["nodeSelector"] = selector
    if tolerations := sequence(given, "tolerations"):
        spec["tolerations"] = list(tolerations)
    if (affinity := _node_affinity(given)) is not None:
        spec["affinity"] = {"nodeAffinity": affinity}
    with_affinity(spec, off)
    return spec


def _resources(spec: PodSpec, claims: Sequence[Json]) -> Json:
    """The request of the pod as a whole. What may not be overcommitted is its own limit."""
    requests = {str(name): str(Quantity(nanos)) for name, nanos in pod_requests(spec).items() if nanos > 0}
    limits = {name: amount for name, amount in requests.items() if name not in _OVERCOMMITTED}
    return {
        "requests": requests,
        **({"limits": limits} if limits else {}),
        **({"claims": list(claims)} if claims else {}),
    }


def _node_affinity(given: Json) -> Json | None:
    """The required node affinity without rules about our agent's labels. Where a term consists of such rules alone
    every node may turn out to meet it, and nothing is required.
    """
    required = mapping(given, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Json] = []
    for term in sequence(required, "nodeSelectorTerms"):
        rules = [rule for rule in sequence(term, "matchExpressions") if not _is_agents(_key(rule))]
        fields = sequence(term, "matchFields")
        if not rules and not fields:
            return None
        terms.append({**({"matchExpressions": rules} if rules else {}), **({"matchFields": fields} if fields else {})})
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}} if terms else None


def _key(rule: Any) -> str:
    return str(rule.get("key", "")) if isinstance(rule, Mapping) else ""


def _is_agents(label: str) -> bool:
    return label.startswith(_AGENTS)
