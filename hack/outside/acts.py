"""What a story consists of, and the names that occur in it."""

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
CPU: Final = "cpu"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
PRIORITIES: Final = {"low": -10, "high": 100}
FLAVORS: Final = ("first", "second")
CPU_FLAVOR: Final = "cpus"
CHECK: Final = "provisioned"
RUNTIME_CLASS: Final = "sandboxed"
OVERHEAD: Final = {CPU: "1"}
SPACES: Final = ("alpha", "beta")
NODES: Final = 12
GPUS_OF_NODE: Final = 8


class Act(Struct, frozen=True):
    """``kind`` and ``namespace`` say where ``body`` goes: whole for create, a merge patch for merge, empty for delete.

    Two kinds are not Kubernetes' own. ``WorkloadOf``: the Workloads of the Job ``name``. ``PendingChecks``: the state
    of the AdmissionCheck ``name`` in all Workloads of the namespace that have quota and wait for it.
    """

    at_s: float
    verb: Literal["create", "merge", "delete"]
    kind: str
    name: str
    namespace: str = ""
    body: Json = {}

    def told(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.at_s:6.2f} s: {self.verb} {self.kind} {where} {msgspec.json.encode(self.body).decode()}"


class Story(Struct, frozen=True):
    """``acts`` are in the order of their times; those at 0 are there before the controller is. ``tessera``: the
    controller's policy is ``tessera``.
    """

    seed: int
    fair: bool
    acts: tuple[Act, ...]
    tessera: bool = False
