"""What kwok plays: nodes that are ready and stay so, pods that run, end where told to, and go when deleted.

The bare kwok binary brings no behaviour; each Stage (kwok.x-k8s.io/v1alpha1) names the objects that it applies to and
the status that it gives them. Templates are Go's, filled with the object.
"""

import json
from collections.abc import Mapping
from typing import Any

from hack.cluster.controlplane.controlplane import KWOK_ANNOTATION

COMPLETE_AFTER = "tessera.test/complete-after"
"""Pod annotation: a duration such as ``5s`` after which a played pod succeeds. Without it the pod runs on."""

_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_HEARTBEAT_MS = 20_000
_DELETED = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
_NOT_DELETED = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}

_NODE_STATUS = """\
{{ $now := Now | Quote }}
phase: Running
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
- {type: Hostname, address: {{ .metadata.name | Quote }}}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now }}
  lastTransitionTime: {{ or $.metadata.creationTimestamp Now | Quote }}
{{ end }}
"""

_RUNNING = """\
{{ $now := Now | Quote }}
phase: Running
startTime: {{ $now }}
podIP: 192.0.2.1
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "True", lastTransitionTime: {{ $now }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now }}}}
{{ end }}
"""

_SUCCEEDED = """\
{{ $now := Now | Quote }}
phase: Succeeded
conditions:
{{ range $type := list "ContainersReady" "Ready" }}
- {type: {{ $type }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: {terminated: {exitCode: 0, reason: Completed, finishedAt: {{ $now }}}}
{{ end }}
"""


def _stage(
    name: str,
    kind: str,
    when: list[dict[str, Any]],
    then: dict[str, Any],
    delay: dict[str, Any] | None = None,
    *,
    repeats: bool = False,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": when},
        "next": then,
    }
    if delay:
        spec["delay"] = delay
    if repeats:
        # A heartbeat changes nothing that selects a stage: without this it would beat once.
        spec["immediateNextStage"] = True
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _is(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def stages() -> str:
    """All stages as a stream of documents."""
    phase = ".status.phase"
    complete_after = f'.metadata.annotations["{COMPLETE_AFTER}"]'
    all_stages = [
        _stage("node-ready", "Node", [_is(_READY, "NotIn", "True")], {"statusTemplate": _NODE_STATUS}),
        _stage(
            "node-heartbeat",
            "Node",
            [_is(phase, "In", "Running"), _is(_READY, "In", "True")],
            {"statusTemplate": _NODE_STATUS},
            {"durationMilliseconds": _HEARTBEAT_MS, "jitterDurationMilliseconds": _HEARTBEAT_MS + 5_000},
            repeats=True,
        ),
        _stage("pod-ready", "Pod", [_NOT_DELETED, _is(phase, "In", "Pending")], {"statusTemplate": _RUNNING}),
        _stage(
            "pod-complete",
            "Pod",
            [_NOT_DELETED, _is(phase, "In", "Running"), {"key": complete_after, "operator": "Exists"}],
            {"statusTemplate": _SUCCEEDED},
            {"durationFrom": {"expressionFrom": complete_after}},
        ),
        _stage("pod-delete", "Pod", [_DELETED], {"delete": True}),
    ]
    return "---\n".join(json.dumps(stage, indent=2) + "\n" for stage in all_stages)


def nodes(count: int, capacity: Mapping[str, str]) -> str:
    """A List of nodes kwok-0 and on, each with ``capacity`` over 128 cores, 2 TiB and 110 pods."""
    resources = {"cpu": "128", "memory": "2Ti", "pods": "110", **capacity}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"kwok-{index}",
                "labels": {"kubernetes.io/hostname": f"kwok-{index}", "kubernetes.io/os": "linux", "type": "kwok"},
                "annotations": dict([KWOK_ANNOTATION]),
            },
            "status": {"capacity": resources, "allocatable": resources},
        }
        for index in range(count)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
