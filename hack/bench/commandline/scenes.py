"""Every command that asks a server, with words that lead it to its first request."""

from enum import StrEnum
from typing import Final

from hack.bench.compiled import ROOT

_LAYOUT: Final = str(ROOT / "examples/layouts/mig.yaml")
_JOB: Final = str(ROOT / "examples/queues/job-four-workers.yaml")


class Asked(StrEnum):
    """Whom a command asks first."""

    API = "the API server"
    NODE = "a process of this node"
    PROMETHEUS = "Prometheus"
    NOBODY = "nobody"
    """Before a browser comes: its first line counts."""


_OF_API: Final = (
    "audit",
    "create clusterqueue q --nominal-quota a100:cpu=96",
    "create localqueue l -c q",
    "create resourceflavor f",
    "delete workload w --yes",
    "explain w",
    f"layout apply -f {_LAYOUT} --yes",
    f"layout plan -f {_LAYOUT}",
    "list clusterqueue",
    "list localqueue",
    "list pods --for job/w",
    "list resourceflavor",
    "list workload",
    "queue list",
    "queue pending",
    "queue resume q",
    "queue stop q",
    "remediation list",
    "remediation plan",
    "remediation resume f",
    "remediation retire n 0",
    "remediation return n 0",
    "remediation start n 0",
    "remediation stop n 0",
    "resume clusterqueue q",
    "resume localqueue l",
    "resume workload w",
    "stop clusterqueue q",
    "stop localqueue l",
    "stop workload w",
    f"submit {_JOB}",
    "capacity q --unit cpu=1",
    f"submit --dry-run {_JOB}",
    "support-bundle",
    "top",
    "version",
    "workload list",
    "workload move w --to l",
    "workload raise w --class c",
    "workload resume w",
    "workload show w",
    "workload stop w",
    "workload story w",
)
_OF_NODE: Final = (
    "doctor",
    "node",
    "node release --gpu 0",
    "release-nvml",
    "sim xid --gpu 0 79",
    "sim status",
)

SCENES: Final[dict[str, Asked]] = {
    **dict.fromkeys(_OF_API, Asked.API),
    **dict.fromkeys(_OF_NODE, Asked.NODE),
    "advise": Asked.PROMETHEUS,
    "page --no-browser": Asked.NOBODY,
}
"""Words of a command, without the options that say where its server is: whom it asks."""

ENGINE: Final = ("advise --pack", "queue list --offline")
"""What computes in this process with the API server's objects: it imports the engine, whoever is asked first."""

HANDED_OVER: Final = frozenset({"describe", "edit", "get", "patch"})
"""kubectl asks: these run it in their own place."""
