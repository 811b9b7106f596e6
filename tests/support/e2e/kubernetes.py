"""The Kubernetes that scenes run on (``TESSERA_KUBERNETES``, see hack.cluster), and what it has of itself.

A scene asks here for a feature, not for a version.
"""

import os
from typing import Final

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
LOCKED: Final = ("DRADeviceTaints", "DRAExtendedResource") if MINOR >= 37 else ()
"""Those of them that their own gate does not turn off: DRAExtendedResource is locked, DRADeviceTaintRules asks for
DRADeviceTaints. A control plane that emulates the version before still has them to turn off; a kubelet emulates none,
and does nothing of theirs that the control plane has not begun.
"""


def claims(on: bool) -> Spec:
    """A cluster of which all parts have those gates on, or all have them off."""
    gates = f"--feature-gates={','.join(f'{name}={str(on).lower()}' for name in OF_CLAIMS)}"
    flags = (f"--emulated-version=1.{MINOR - 1}", gates) if LOCKED and not on else (gates,)
    return Spec(
        apiserver_args=flags,
        controller_manager_args=flags,
        scheduler_args=flags,
        kubelet_config={"featureGates": {name: on for name in OF_CLAIMS if on or name not in LOCKED}},
    )
