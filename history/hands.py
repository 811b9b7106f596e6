"""The hands that have each device of a node, as kubelets and hardware say.

A hand is a pod or a claim. An id is a device's UUID, or ``UUID::n``, one of its replicas. The kubelet's list of pod
resources replaces what was known of a node's pods; what it allocates after that counts beside it until the next list.
"""

from msgspec import Struct

from history.objects import DEVICES, Key, is_over, text
from history.record import Gpu, HardwareFact, KubeletFact
from history.world import World

_LISTED_S = 30.0


class NodeHands(Struct):
    """``listed``: by pod, at ``listed_s``; ``granted``: since then. ``claims``: by claim. ``known``: GPUs by UUID,
    ``parents``: by instance its GPU. ``lost``: instances that were there and are not.
    """

    name: str
    listed_s: float = 0.0
    listed: dict[str, tuple[str, ...]] = {}
    granted: dict[str, tuple[str, ...]] = {}
    claims: dict[str, tuple[str, ...]] = {}
    known: dict[str, Gpu] = {}
    parents: dict[str, str] = {}
    lost: dict[str, str] = {}


class Hands:
    """``nodes`` by name. ``heard``: sources that have said anything. ``_on``: nodes by the pods that kubelets named
    there; ``_gone_s``: when a pod of that name was deleted, or another took its name.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.nodes: dict[str, NodeHands] = {}
        self.heard: set[str] = set()
        self._on: dict[str, set[str]] = {}
        self._gone_s: dict[str, float] = {}

    def take(self, fact: KubeletFact | HardwareFact) -> Key:
        """The node's key."""
        node = self.nodes.setdefault(fact.node, NodeHands(fact.node))
        if isinstance(fact, HardwareFact):
            self.heard.add("hardware")
            node.known = {each.uuid: each for each in fact.gpus}
            now = {mig: each.uuid for each in fact.gpus for mig in each.mig}
            node.lost = {mig: gpu for mig, gpu in {**node.lost, **node.parents}.items() if mig not in now}
            node.parents = now
            return Key(DEVICES, "", fact.node)
        self.heard.add("kubelet")
        match fact.call:
            case "PodResources":
                node.listed, node.granted = {pod: ids for pod, ids in fact.hands if ids}, {}
                node.listed_s = fact.t
                for pod in node.listed:
                    self._on.setdefault(pod, set()).add(fact.node)
            case "Allocate" if fact.pod:  # for others the next list says whose they are
                node.granted[fact.pod] = (*node.granted.get(fact.pod, ()), *fact.devices)
                self._on.setdefault(fact.pod, set()).add(fact.node)
            case "NodePrepareResources":
                node.claims[fact.claim] = fact.devices
                self.heard |= set() if fact.devices else {"claims without devices"}
            case "NodeUnprepareResources":
                node.claims.pop(fact.claim, None)
        return Key(DEVICES, "", fact.node)

    def changed(self, key: Key, *, is_gone: bool) -> set[Key]:
        """Takes in a pod of the API. ``is_gone``: the one of that name that was there is not any more, and nor are its
        hands. The nodes to be looked at again.
        """
        pod = f"{key.namespace}/{key.name}"
        nodes = self._on.get(pod, set())
        if is_gone:
            self._gone_s[pod] = self._world.now_s
            for each in nodes:
                self.nodes[each].listed.pop(pod, None)
                self.nodes[each].granted.pop(pod, None)
        return {Key(DEVICES, "", each) for each in nodes}

    def held(self, node: NodeHands) -> dict[str, list[str]]:
        """The hands that have a device, by its id: ``Pod team/p``, ``ResourceClaim team/c``."""
        holders: dict[str, list[str]] = {}
        for pod in [each for each in {**node.listed, **node.granted} if self._is_there(each, node)]:
            for id_ in {*node.listed.get(pod, ()), *node.granted.get(pod, ())}:
                holders.setdefault(id_, []).append(f"Pod {pod}")
        for claim, ids in node.claims.items():
            for id_ in ids:
                holders.setdefault(id_, []).append(f"ResourceClaim {claim}")
        return holders

    def _is_there(self, pod: str, node: NodeHands) -> bool:
        """A kubelet may list a pod for a while after its end, but not for 30 seconds after it was deleted. In a record
        without pods it is there.
        """
        space, _, name = pod.partition("/")
        body = self._world.get("Pod", space, name)
        if body is not None:
            return not is_over(body) and text(body, "spec", "nodeName") in ("", node.name)
        listed_s = node.listed_s if pod in node.listed else float("-inf")
        return "Pod" not in self._world.of_kind or listed_s >= self._gone_s.get(pod, float("inf")) + _LISTED_S
