"""A real Kubernetes for tests and demos: ``hack/cluster/cluster up``, or ``Cluster.up(...)``.

Needs nothing but the standard library and psutil. ``cluster`` holds the handle that callers use, ``startup`` and
``sweep`` what goes up and comes down, ``nodeinit`` what runs inside a node; the rest is pure (``render``,
``controlplane``, ``layout``, ``state``, ``stages``) or one tool each.
"""

from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.nodes.node import NodeHost
from hack.cluster.processes import Identity
from hack.cluster.state import Spec

__all__ = ["TEST_IMAGE", "Cluster", "ClusterError", "Identity", "NodeHost", "Spec", "UsageError"]
