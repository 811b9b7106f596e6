"""Devices by claim in few words: classes, templates, claims, slices, and workloads that name them."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.objects.decode import KUEUE, decode_object
from controller.objects.deviceclaims import RESOURCE
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.workload import Workload
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.deviceclaims import ClaimRules, DeviceClassMapping
from controller.scheduler.model.resources import ResourceName
from tests.support.engine.world import workload

DRIVER = "gpu.example.com"
GPU_CLASS = "gpu.example.com"
MIG_CLASS = "mig.example.com"
GPUS = DeviceClassMapping(resource=ResourceName("gpu"), classes=(GPU_CLASS,))


def rules(*mappings: DeviceClassMapping, every_kind: bool = True, **more: bool) -> ClaimRules:
    return ClaimRules(mappings=mappings or (GPUS,), every_kind=every_kind, **more)


def counting(*mappings: DeviceClassMapping, every_kind: bool = True, **more: bool) -> EngineConfig:
    return EngineConfig(claim_rules=rules(*mappings, every_kind=every_kind, **more))


def asks(device_class: str = GPU_CLASS, count: int = 1, *selectors: str, **more: Any) -> dict[str, Any]:
    listed = [{"cel": {"expression": selector}} for selector in selectors]
    return {"deviceClassName": device_class, "count": count, "selectors": listed, **more}


def _requests(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One that has ``firstAvailable`` stands as it is."""
    return {
        "devices": {
            "requests": [
                {"name": f"r{number}", **(each if "firstAvailable" in each else {"exactly": each})}
                for number, each in enumerate(requests)
            ]
        }
    }


def template(
    name: str, *requests: Mapping[str, Any], namespace: str = "ns", constraints: Sequence[Mapping[str, Any]] = ()
) -> KubernetesObject:
    spec = _requests(requests)
    spec["devices"]["constraints"] = list(constraints)
    return _object("ResourceClaimTemplate", name, {"spec": spec}, namespace)


def claim(
    name: str,
    *requests: Mapping[str, Any],
    given: Sequence[str] | None = None,
    at: str = "node",
    devices: Sequence[str] = (),
    **metadata: Any,
) -> KubernetesObject:
    """``given``: the requests of its devices, once it is allocated. ``at``: their pool; ``devices``: their names."""
    called = devices or ["d"] * len(given or ())
    results = [
        {"request": request, "driver": DRIVER, "pool": at, "device": device}
        for request, device in zip(given or (), called, strict=True)
    ]
    status = {} if given is None else {"allocation": {"devices": {"results": results}}}
    return _object("ResourceClaim", name, _requests(requests), "ns", status=status, **metadata)


def device_class(
    name: str, *selectors: str, extended: str = "", created: str = "2025-01-01T00:00:00Z"
) -> KubernetesObject:
    spec = {"selectors": [{"cel": {"expression": each}} for each in selectors], "extendedResourceName": extended}
    return _object("DeviceClass", name, spec, "", creationTimestamp=created)


def device(
    name: str,
    *,
    capacity: Mapping[str, Any] | None = None,
    counters: Mapping[str, Any] | None = None,
    taint: str = "",
    shared: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """``more``: attributes, as strings. ``taint``: the key of one with the effect NoSchedule."""
    return {
        "name": name,
        "allowMultipleAllocations": shared,
        "taints": [{"key": taint, "effect": "NoSchedule"}] if taint else [],
        "attributes": {key: {"string": value} for key, value in more.items()},
        "capacity": {
            key: value if isinstance(value, dict) else {"value": value} for key, value in (capacity or {}).items()
        },
        "consumesCounters": [
            {"counterSet": "set", "counters": {key: {"value": value} for key, value in counters.items()}}
        ]
        if counters
        else [],
    }


def slice_of(
    name: str,
    *devices: Mapping[str, Any],
    driver: str = DRIVER,
    pool: str = "node",
    generation: int = 1,
    count: int = 1,
    node: str = "",
    counters: Mapping[str, int] | None = None,
) -> KubernetesObject:
    """``counters``: those of the set that devices consume."""
    said = {"name": pool, "generation": generation, "resourceSliceCount": count}
    shared = [{"name": "set", "counters": {key: {"value": str(value)} for key, value in (counters or {}).items()}}]
    spec = {"driver": driver, "pool": said, "nodeName": node, "devices": list(devices)}
    return _object("ResourceSlice", name, spec | ({"sharedCounters": shared} if counters else {}), "")


def node_slice(node: str, *devices: Mapping[str, Any], **more: Any) -> KubernetesObject:
    """All that a node has, in a pool of its own."""
    return slice_of(f"slice-{node}", *devices, pool=node, node=node, **more)


def _object(kind: str, name: str, spec: Mapping[str, Any], namespace: str, **more: Any) -> KubernetesObject:
    status = more.pop("status", {})
    metadata = {"name": name, "namespace": namespace, **more}
    return decode_object({"apiVersion": RESOURCE, "kind": kind, "metadata": metadata, "spec": spec, "status": status})


def claiming(name: str, *, templates: Sequence[str] = (), claims: Sequence[str] = (), **more: Any) -> Workload:
    """A workload of ``world.workload``'s form in queue ``q`` that asks for nothing but these claims."""
    made = to_json(workload(name, more.pop("queue", "q"), **more))
    listed = [{"name": f"t{at}", "resourceClaimTemplateName": each} for at, each in enumerate(templates)]
    listed += [{"name": f"c{at}", "resourceClaimName": each} for at, each in enumerate(claims)]
    for pod_set in made["spec"]["podSets"]:
        pod_set["template"]["spec"]["resourceClaims"] = listed
        pod_set["template"]["spec"]["containers"][0]["resources"] = {}
    found = decode_object({"apiVersion": KUEUE, "kind": "Workload", **made})
    assert isinstance(found, Workload)
    return found
