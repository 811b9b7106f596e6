"""Why nothing runs on a cluster: what a failed test says besides, and what a test asks for before it begins."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hack.cluster import processes
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.waiting import tail, until

FIT_S = 120.0
"""Nodes of a cluster that has just started lose their last taint a moment after they are Ready."""
MOST = 8
"""Lines about nodes, and about workloads."""


def await_fit(cluster: Cluster) -> None:
    """Return once kwok runs, every node is Ready and none is tainted for its state; AssertionError saying what is."""
    spec = cluster.state.spec
    if not spec.nodes and not spec.kwok_nodes:
        return
    try:
        until(lambda: not unfit(cluster), "nodes that take pods", timeout_s=FIT_S, every_s=0.5)
    except ClusterError as error:
        raise AssertionError(f"{error}: {unfit(cluster)[:MOST]}; cluster: {cluster.problems()}") from None


def unfit(cluster: Cluster) -> list[str]:
    """A line for kwok if it has ended, and for each node that takes no pods: what it says of itself, and its taints."""
    state = cluster.state
    dead = bool(state.spec.kwok_nodes) and not processes.alive(state.processes.get("kwok"))
    found = ["kwok has ended: " + tail(cluster.log("kwok"))] if dead else []
    try:
        nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    except ClusterError as error:  # an API server that was just ended, or is
        return [*found, str(error)]
    for node in nodes:
        conditions = {one["type"]: one for one in node["status"].get("conditions", [])}
        ready = conditions.get("Ready", {"status": "never told"})
        # A test's own taints and its cordons are its own matter.
        taints = [one for one in node["spec"].get("taints", []) if one["key"] in _STATES]
        if ready["status"] != "True" or taints:
            said = " ".join(str(ready[key]) for key in ("status", "reason", "message") if key in ready)
            marks = ", ".join(f"{one['key']}:{one['effect']}" for one in taints)
            found.append(f"node {node['metadata']['name']}: Ready is {said}; taints: {marks or 'none'}")
    return found


_STATES = {f"node.kubernetes.io/{state}" for state in ("not-ready", "unreachable", "network-unavailable")}


def told(cluster: Cluster, workloads: Mapping[str, Mapping[str, Any]], logs: Iterable[Path]) -> str:
    """The cluster's parts, its nodes, the workloads' conditions, and the ends of logs: theirs and the controllers'."""
    nodes = unfit(cluster)
    lines = [f"cluster: {'; '.join(cluster.problems()) or 'all parts run'}"]
    lines += [f"nodes that take no pods: {len(nodes)}", *nodes[:MOST]]
    lines += [f"workloads: {len(workloads)}"]
    lines += [f"{name}: {_conditions(one)}" for name, one in sorted(workloads.items())][:MOST]
    parts = [tail(cluster.log(name), 5) for name in ("kwok", "scheduler", "controller-manager")]
    return "\n".join(filter(None, [*lines, *parts, *(tail(path, 30) for path in logs)]))


def _conditions(workload: Mapping[str, Any]) -> str:
    found = workload.get("status", {}).get("conditions", [])
    shown = (f"{one['type']}={one['status']}/{one['reason']} ({one.get('message', '')[:200]})" for one in found)
    return ", ".join(shown) or "no condition"
