"""What a running API server has: each resource that it serves, and each feature gate with stage and whether it is on.

One line each, in an order that depends on nothing else, so that ``diff`` compares the lists of two versions.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hack.cluster.errors import ClusterError

Ask = Callable[[str], str]
"""The body of the answer to GET of a path. Raises ClusterError."""

_GATE = re.compile(r'^kubernetes_feature_enabled\{name="(?P<name>[^"]+)",stage="(?P<stage>[^"]*)"\} (?P<on>[01])$')
_CORE = "/api/v1"


def lines(ask: Ask) -> Iterator[str]:
    """``api GROUP/VERSION RESOURCE``, each group by its name, then ``gate NAME STAGE on|off``. A group that another
    server answers for, which does not, is a line of its own.
    """
    groups = json.loads(ask("/apis"))["groups"]
    served = sorted(version["groupVersion"] for group in groups for version in group["versions"])
    for path in (_CORE, *(f"/apis/{each}" for each in served)):
        try:
            yield from resources(json.loads(ask(path)))
        except ClusterError:
            yield f"api {path.removeprefix('/apis/')} does not answer"
    yield from gates(ask("/metrics"))


def resources(found: Mapping[str, Any]) -> list[str]:
    """The lines of one APIResourceList, subresources among them."""
    return sorted(f"api {found['groupVersion']} {each['name']}" for each in found["resources"])


def gates(metrics: str) -> list[str]:
    """The lines of the gates in the metrics of a Kubernetes program. A stage is ALPHA, BETA, DEPRECATED or GA."""
    found = filter(None, map(_GATE.match, metrics.splitlines()))
    return sorted(f"gate {one['name']} {one['stage'] or 'GA'} {'on' if one['on'] == '1' else 'off'}" for one in found)
