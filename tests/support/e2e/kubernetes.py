"""The Kubernetes that scenes run on (``TESSERA_KUBERNETES``, see hack.cluster), and what it has of itself.

A scene asks here for a feature, not for a version.
"""

import os
from typing import Any, Final

from hack.cluster.programs import binaries
from hack.cluster.state import Spec

VERSION: Final = binaries.kubernetes(os.environ.get(binaries.KUBERNETES_ENV, "")).version
MINOR: Final = int(VERSION.split(".")[1])
POLICIES: Final = MINOR >= 36
"""Its API server has MutatingAdmissionPolicies. Before, the controller's webhooks change objects."""
SUSPEND_BY: Final = "policy" if POLICIES else "webhook"
"""The chart's ``controller.jobs.suspendBy`` that fits."""
STARTS_ANEW: Final = MINOR >= 36
"""Its Job controller unsets the start time of a Job that is suspended."""
OF_CLAIMS: Final = ("DRAConsumableCapacity", "DRADeviceTaints", "DRAExtendedResource", "DRAPartitionableDevices")
"""Gates of what claims can ask for: on since 1.36."""
CLAIMS: Final = MINOR >= 36
FLATTENS: Final = MINOR >= 35
"""Policies may call ``flatten`` of CEL: an API server compiles with the functions of the version before its own."""
ZERO_IS_NONE: Final = MINOR >= 35
"""A pod that asks for an extended resource of a class is served by claim where a node offers 0 of it. Before, the node
must never have offered any: its 0 stays.
"""
SHARES: Final = MINOR >= 35
"""A share of a GPU is found. Before, the scheduler compares what a request asks for with the first device of the slice,
whichever is chosen (k8s.io/dynamic-resource-allocation v0.34, allocateDevice).
"""
COUNTERS: Final = MINOR >= 35
"""Its slices have counters or devices, never both. Before, those that consume counters lie beside them."""


def claims(on: bool, **more: Any) -> Spec:
    """A cluster of which all parts have those gates on, or all have them off; ``more``: of its Spec."""
    gates = f"--feature-gates={','.join(f'{name}={str(on).lower()}' for name in OF_CLAIMS)}"
    # Up to 1.34 nobody reads taints of devices before the API of rules for them answers.
    rules = ("--runtime-config=resource.k8s.io/v1alpha3=true",) if on and MINOR < 35 else ()
    return Spec(
        apiserver_args=(gates, *rules),
        controller_manager_args=(gates,),
        scheduler_args=(gates,),
        kubelet_config={"featureGates": dict.fromkeys(OF_CLAIMS, on)},
        **more,
    )
