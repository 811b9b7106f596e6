"""Clusters whose devices are asked for by claim: nodes that publish them, gangs that are placed by what is free."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from controller.objects.core import Pod
from controller.objects.decode import KUEUE, decode, decode_object
from controller.objects.deviceclaims import DeviceClass, ResourceClaimTemplate, ResourceSlice
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.dra.allocation.allocator import sets_of
from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.dra.allocation.offers import Offer, Slices
from controller.scheduler.dra.allocation.requests import PodClaimsRequest, claim_request
from controller.scheduler.dra.allocation.views import Set, State, View
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.deviceclaims import ClaimNames, ClaimRules
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.placement import Topologies
from tests.controller.scheduler.topology.test_topology_in_cycles import topology
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, claiming, device, device_class, node_slice, rules
from tests.support.engine.topologylab import GPU, HOST, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue

TYPE = f"device.attributes['{DRIVER}'].type == 'gpu'"


def gpus(node_name: str, number: int, **more: Any) -> list[dict[str, Any]]:
    """Whole GPUs: two by two they share the attribute ``pair``."""
    return [
        device(f"gpu-{at}", type="gpu", uuid=f"{node_name}-{at}", pair=f"{node_name}-{at // 2}", **more)
        for at in range(number)
    ]


def cluster(
    hosts: Mapping[str, Sequence[Mapping[str, Any]]],
    *objects: KubernetesObject,
    quota: int = 100,
    counted: ClaimRules | None = None,
    **queue: Any,
) -> World:
    """``hosts``: by block/rack/host the devices that its driver publishes. ``counted``: by what claims count, None for
    the usual mapping.
    """
    world = World(EngineConfig(claim_rules=rules() if counted is None else counted))
    world.put(
        topology(),
        flavor("default", topologyName="dc"),
        cluster_queue("q", quota, **queue),
        local_queue("q"),
        device_class(GPU_CLASS, TYPE),
        *(node(path, 0) for path in hosts),
        *(node_slice(path.rpartition("/")[2], *devices) for path, devices in hosts.items()),
        *objects,
    )
    return world


def gang(name: str, count: int, *, level: str = "", **claims: Any) -> Workload:
    """``claims``: ``templates`` or ``claims`` of each of its pods, which without a level go wherever there is room."""
    made = claiming(name, count=count, **claims)
    asked = PodSetTopologyRequest(required=level) if level else PodSetTopologyRequest(unconstrained=True)
    sets = tuple(msgspec.structs.replace(pod_set, topology_request=asked) for pod_set in made.spec.pod_sets)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def asking(name: str, count: int, number: int, *, resource: str = GPU, templates: Sequence[str] = ()) -> Workload:
    """``count`` pods of so many GPUs by the old name, beside claims of these templates."""
    made = to_json(gang(name, count, templates=templates))
    for pod_set in made["spec"]["podSets"]:
        pod_set["template"]["spec"]["containers"][0]["resources"] = {"requests": {resource: str(number)}}
    found = decode_object({"apiVersion": KUEUE, "kind": "Workload", **made})
    assert isinstance(found, Workload)
    return found


def pod_of(name: str, workload: str, host: str, phase: str = "Running", **metadata: Any) -> Pod:
    data = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": {
                "kueue.x-k8s.io/workload": workload,
                "kueue.x-k8s.io/podset-unconstrained-topology": "true",
            },
            "labels": {"kueue.x-k8s.io/podset": "main"},
            **metadata,
        },
        "spec": {"nodeSelector": {HOST: host}, "containers": [{"name": "c"}]},
        "status": {"phase": phase},
    }
    return decode(data, Pod)


def made_for(pod: str) -> dict[str, Any]:
    """Metadata of a claim that was made for a pod."""
    return {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"kind": "Pod", "name": pod, "controller": True}],
    }


def made_by_scheduler(pod: str) -> dict[str, Any]:
    """Metadata of the claim for the extended resources of a pod."""
    return {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"kind": "Pod", "name": pod, "controller": True}],
    }


def supply_of(world: World) -> ClaimSupply:
    placement = world.engine.state.cluster.placement
    assert isinstance(placement, Topologies)
    assert placement.claims is not None
    return placement.claims


def fitting_pods(world: World, host: str, *templates: str, claims: Sequence[str] = ()) -> int:
    """How many pods with these claims find devices on the node now."""
    supply = supply_of(world)
    names = ClaimNames(
        "ns", tuple((f"t{at}", name) for at, name in enumerate(templates)), tuple(("c", name) for name in claims)
    )
    ask = supply.ask(names)
    assert ask is not None
    return supply.fitting_pods(host, ask, empty=False)


def said(world: World, name: str) -> str:
    """Why it waits."""
    pending = world.engine.explain(WorkloadKey(f"ns/{name}"), world.now_s)
    assert pending is not None
    return sentence(pending.record)


# -- one node, without a cluster ---------------------------------------------------------------------------------------

CLASS = device_class(GPU_CLASS, f"device.driver == '{DRIVER}'")


def offered(*slices: object) -> Offer:
    """What they offer on node ``n``."""
    found = Slices()
    for each in slices:
        assert isinstance(each, ResourceSlice)
        found.put(each)
    found.validate()
    return found.offer("n")


def asked(*templates: object) -> PodClaimsRequest:
    assert isinstance(CLASS, DeviceClass)
    claims = []
    for each in templates:
        assert isinstance(each, ResourceClaimTemplate)
        claims.append(claim_request(each.spec.spec, {GPU_CLASS: CLASS}))
    return PodClaimsRequest(tuple(claims))


def names(offer: Offer, one: Set) -> list[str]:
    return [offer.devices[given_.device].name for given_ in one]


def sets_for(ask: PodClaimsRequest, offer: Offer, state: State | None = None) -> list[list[str]]:
    """By pod the devices that it gets."""
    return [names(offer, one) for one in sets_of(View(ask, offer), state or State())]
