"""All targets."""

from typing import Final

from hack.fuzz import cluster, common, node
from hack.fuzz.target import Target

TARGETS: Final = {target.name: target for target in (*common.TARGETS, *node.TARGETS, *cluster.TARGETS)}


def named(name: str) -> Target:
    return TARGETS[name]
