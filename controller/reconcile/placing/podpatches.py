"""Patches of pods of queued jobs (RFC 6902). Each tests the state by which it was decided, so that one of two contrary
patches fails.

They are tied to the pod's uid and gates, not to its version: the scheduler writes the status meanwhile.
"""

from collections.abc import Mapping
from typing import Any

from controller.jobs.framework import names
from controller.jobs.framework.podview import MANAGED
from controller.jobs.framework.raw import Json
from controller.objects.core import Pod
from inventory.api.names import ABOVE_MINIMUM_OF, DEVICES


def ungated(pod: Pod, place: Mapping[str, str], devices: str) -> list[Json]:
    """The patch that removes the pod's gate and sets its place. ``devices``: those planned for it, empty for none.

    The API server lets a pod with a gate gain keys of its node selector, and refuses to change one.
    """
    gates = _gates(pod)
    body = _tied(pod, gates)
    body.append({"op": "replace", "path": "/spec/schedulingGates", "value": _less(gates)})
    if place and not pod.spec.node_selector:
        body.append({"op": "add", "path": "/spec/nodeSelector", "value": dict(place)})
    else:
        # "add" replaces an existing key: another value is refused, the same one is no change.
        body += [{"op": "add", "path": f"/spec/nodeSelector/{_escaped(key)}", "value": place[key]} for key in place]
    if devices:  # the pod has annotations: one of them names its workload
        body.append(_annotated(DEVICES, devices))
    return body


def marked_above(pod: Pod, minimum: str, queue: str) -> list[Json]:
    """The patch that marks a pod as above the minimum of its job: it is queued by itself from there on.

    ``minimum``: the job's Workload. The pod's own is named at its start.
    """
    return [
        *_tied(pod, _gates(pod)),
        _annotated(ABOVE_MINIMUM_OF, minimum),
        {"op": "remove", "path": f"/metadata/annotations/{_escaped(names.WORKLOAD)}"},
        {"op": "add", "path": f"/metadata/labels/{_escaped(MANAGED)}", "value": "true"},
        {"op": "add", "path": f"/metadata/labels/{_escaped(names.QUEUE_NAME)}", "value": queue},
    ]


def taken_back(pod: Pod) -> list[Json]:
    """The patch that takes the pod back into the minimum. It is still watched as a queued pod, which lets go of it
    (``controller.pods``).
    """
    minimum = pod.metadata.annotations[ABOVE_MINIMUM_OF]
    return [*_tied(pod, _gates(pod)), _annotated(ABOVE_MINIMUM_OF, ""), _annotated(names.WORKLOAD, minimum)]


def _tied(pod: Pod, gates: list[Json]) -> list[Json]:
    """The tests of a patch. A pod of a job that grows has its mark from the beginning, empty for one in the minimum."""
    body: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
        {"op": "test", "path": "/spec/schedulingGates", "value": gates},
    ]
    above = pod.metadata.annotations.get(ABOVE_MINIMUM_OF)
    if above is not None:
        path = f"/metadata/annotations/{_escaped(ABOVE_MINIMUM_OF)}"
        body.append({"op": "test", "path": path, "value": above})
    return body


def _gates(pod: Pod) -> list[Json]:
    return [{"name": gate.name} for gate in pod.spec.scheduling_gates]


def _less(gates: list[Json]) -> list[Json]:
    return [gate for gate in gates if gate["name"] != names.TOPOLOGY_GATE]


def _annotated(key: str, value: Any) -> Json:
    return {"op": "add", "path": f"/metadata/annotations/{_escaped(key)}", "value": value}


def _escaped(key: str) -> str:
    """A step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
