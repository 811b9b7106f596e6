"""Fleets with pools, in a few words: pools with the Node manifests of all nodes that they may have."""

from typing import Any

from controller.insight.simulation.pools.specs import Interruption, Pool, PoolFleet
from tests.support.controller.manifests import GPU, Json


def node(name: str, gpus: int = 8, *, taints: tuple[Json, ...] = (), **labels: str) -> Json:
    """A Node manifest. ``labels``: with ``__`` for each slash and ``_`` for each dot of a key."""
    named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **named}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "64", "memory": "1Ti", "pods": "110", **({GPU: str(gpus)} if gpus else {})},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class Fleet:
    """A fleet to which pools and interruptions are added. ``nodes``: the manifests of all that it may have."""

    def __init__(self, *fixed: Json) -> None:
        self.nodes: list[Json] = [*fixed]
        self._pools: list[Pool] = []
        self._interruptions: list[Interruption] = []

    def pool(
        self,
        name: str,
        most: int,
        gpus: int = 8,
        *,
        delay: float = 300.0,
        remove_after: float = 120.0,
        taints: tuple[Json, ...] = (),
        labels: dict[str, str] | None = None,
        **other: Any,
    ) -> "Fleet":
        made = [node(f"{name}-{at}", gpus, taints=taints, **(labels or {})) for at in range(1, most + 1)]
        self.nodes += made
        names = tuple(each["metadata"]["name"] for each in made)
        self._pools.append(Pool(name=name, nodes=names, delay_s=delay, remove_after_s=remove_after, **other))
        return self

    def interrupted(self, at: float, notice: float, *, pool: str = "", node: str = "") -> "Fleet":
        self._interruptions.append(Interruption(at_s=at, notice_s=notice, pool=pool, node=node))
        return self

    def __repr__(self) -> str:
        return repr(self.comes)

    @property
    def comes(self) -> PoolFleet:
        return PoolFleet(pools=tuple(self._pools), interruptions=tuple(self._interruptions))
