"""The hands that have each device of a node, as kubelets and hardware say.

A hand is a pod or a claim. An id is a device's UUID, or ``UUID::n``, one of its replicas. The kubelet's list of pod
resources replaces what was known of a node's pods; what it allocates after that counts beside it until the next list.
"""

from msgspec import Struct

from history.objects import Key, is_over
from history.record import Gpu, HardwareFact, KubeletFact
from history.world import World


class NodeHands(Struct):
    """``listed``: by pod; ``granted``: since the last list. ``claims``: by claim. ``known``: GPUs by UUID, ``parents``:
    by instance its GPU. ``lost``: instances that were there and are not.
    """

    listed: dict[str, tuple[str, ...]] = {}
    granted: list[tuple[str, tuple[str, ...]]] = []
    claims: dict[str, tuple[str, ...]] = {}
    known: dict[str, Gpu] = {}
    parents: dict[str, str] = {}
    lost: dict[str, str] = {}


class Hands:
    """``nodes`` by name. ``heard``: sources that have said anything."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.nodes: dict[str, NodeHands] = {}
        self.heard: set[str] = set()

    def take(self, fact: KubeletFact | HardwareFact) -> Key:
        """The node's key."""
        node = self.nodes.setdefault(fact.node, NodeHands())
        if isinstance(fact, HardwareFact):
            self.heard.add("hardware")
            node.known = {each.uuid: each for each in fact.gpus}
            now = {mig: each.uuid for each in fact.gpus for mig in each.mig}
            node.lost = {mig: gpu for mig, gpu in {**node.lost, **node.parents}.items() if mig not in now}
            node.parents = now
            return Key("NodeDevices", "", fact.node)
        self.heard.add("kubelet")
        match fact.call:
            case "PodResources":
                node.listed, node.granted = {pod: ids for pod, ids in fact.hands if ids}, []
            case "Allocate":
                node.granted = [*node.granted, (fact.pod or "", fact.devices)]
            case "NodePrepareResources":
                node.claims[fact.claim] = fact.devices
            case _:
                node.claims.pop(fact.claim, None)
        return Key("NodeDevices", "", fact.node)

    def held(self, node: NodeHands) -> dict[str, list[str]]:
        """The hands that have a device, by its id: ``Pod team/p``, ``ResourceClaim team/c``."""
        found: dict[str, list[str]] = {}
        for pod, ids in [*node.listed.items(), *node.granted]:
            if pod and self._is_there(pod):
                for id_ in ids:
                    hands = found.setdefault(id_, [])
                    if f"Pod {pod}" not in hands:
                        hands.append(f"Pod {pod}")
        for claim, ids in node.claims.items():
            for id_ in ids:
                found.setdefault(id_, []).append(f"ResourceClaim {claim}")
        return found

    def _is_there(self, pod: str) -> bool:
        """A kubelet may list a pod for a while after its end. In a record without pods it is there."""
        space, _, name = pod.partition("/")
        body = self._world.get("Pod", space, name)
        return not is_over(body) if body is not None else not self._world.all("Pod")
