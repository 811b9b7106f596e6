"""Devices: each in as many hands as it has shares, and none destroyed under a hand."""

from collections.abc import Iterable, Iterator

from history import objects as api
from history.hands import NodeHands
from history.objects import Key
from history.rule import LATE_S, Rule, Scene, Wrong

Held = dict[str, list[str]]
Device = tuple[str, str, str]
"""Driver, pool, name."""


class TwoHands(Rule, name="one-device-two-hands", lasts_s=LATE_S, kinds=(api.DEVICES, "ResourceClaim")):
    """``one-device-two-hands``: a device, a share or an instance that more hold than may; counts after 5 seconds, since
    a kubelet's list, its calls and the end of a pod come by three ways.

    A GPU with ``replicas`` r takes r hands: replicas that a device plugin gave are counted one by one, a device that it
    gave whole takes all of it, and claims take a share each. A GPU held as a whole leaves nothing for its instances.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._own: dict[Key, set[Device]] = {}
        self._having: dict[Device, set[Key]] = {}
        """The claims to which each is allocated; the inverse of ``_own``."""

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        if subject.kind == "ResourceClaim":
            yield from self._allocated_twice(subject)
            return
        node = self.scene.hands.nodes[subject.name]
        held = self.scene.hands.held(node)
        place = (f"Node {subject.name}",)
        for id_, hands in sorted(held.items()):
            shared = id_ in node.known and node.known[id_].replicas > 1 and all(_is_claim(each) for each in hands)
            if len(hands) > 1 and not shared:
                yield Wrong((*sorted(hands), *place), f"{id_} is in {len(hands)} hands")
        for device in sorted({id_.partition("::")[0] for id_ in held}):
            yield from self._overfull(node, device, held, place)

    def _overfull(self, node: NodeHands, device: str, held: Held, place: tuple[str, ...]) -> Iterator[Wrong]:
        ids = {id_: hands for id_, hands in held.items() if id_.partition("::")[0] == device}
        hands = tuple(sorted({hand for each in ids.values() for hand in each}))
        gpu = node.known.get(node.parents.get(device, device))
        most = gpu.replicas if gpu is not None else None
        if device in ids and len(ids) > 1 and most is None:
            yield Wrong((*hands, *place), f"{device} is held as a whole and in shares")
        if most is not None:
            taken = sum(_weight(id_, given, most) for id_, given in ids.items())
            if taken > most and (len(ids) > 1 or all(_is_claim(each) for each in hands)):
                yield Wrong((*hands, *place), f"{taken} shares of {device} are held, it has {most}")
        parent = node.parents.get(device)
        above = tuple(sorted(held.get(parent, ()))) if parent is not None else ()
        if above:
            yield Wrong((*sorted({*hands, *above}), *place), f"{parent} is held as a whole, and its instance {device}")

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        subjects = list(super().subjects(touched))
        near: set[Key] = set()
        for claim in [each for each in subjects if each.kind == "ResourceClaim"]:
            for device in self._own.pop(claim, set()):
                self._having[device].discard(claim)
                near |= self._having[device]
            self._own[claim] = self._devices(claim)
            for device in self._own[claim]:
                self._having.setdefault(device, set()).add(claim)
                near |= self._having[device]
        return iter({*subjects, *near})

    def _allocated_twice(self, subject: Key) -> Iterator[Wrong]:
        for driver, pool, device in sorted(self._own.get(subject, ())):
            claims = sorted(self._having[driver, pool, device])
            if len(claims) > 1 and subject == claims[0]:
                said = f"{device} of pool {pool} of {driver} is allocated to {len(claims)} claims"
                yield Wrong(api.named(claims), said)

    def _devices(self, claim: Key) -> set[Device]:
        """Those that are its own: neither a share nor for an administrator. None of a claim that goes."""
        body = self.world.objects.get(claim)
        if body is None or api.is_leaving(body):
            return set()
        results = api.rows(body, "status", "allocation", "devices", "results")
        own = [each for each in results if not api.text(each, "shareID") and api.value(each, "adminAccess") is not True]
        return {(api.text(each, "driver"), api.text(each, "pool"), api.text(each, "device")) for each in own}


class Destroyed(Rule, name="destroyed-while-held", lasts_s=LATE_S, kinds=(api.DEVICES,)):
    """``destroyed-while-held``: a MIG instance is not there any more and a pod or claim has it; counts after 5 seconds,
    since the hardware may be asked sooner than the kubelet after a pod has ended.
    """

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        node = self.scene.hands.nodes[subject.name]
        for id_, hands in sorted(self.scene.hands.held(node).items()) if node.lost else ():
            device = id_.partition("::")[0]
            if device in node.lost and node.lost[device] in node.known:
                objects = (*sorted(hands), f"Node {subject.name}")
                yield Wrong(objects, f"the instance {device} of {node.lost[device]} is destroyed, and held")


class ResetWhileHeld(Rule, name="reset-while-held", lasts_s=LATE_S, kinds=(api.DEVICES,)):
    """``reset-while-held``: a GPU is reset, and a pod or claim that has had it or an instance of it for 5 seconds has
    it still 5 seconds later: the hardware may be asked sooner than the kubelet, and later.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._since_s: dict[tuple[str, str], dict[str, float]] = {}
        """When each hand got a GPU, by node and GPU; minus infinity once it was reset under that hand."""
        self._resets: dict[tuple[str, str], int] = {}

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        node, now_s = self.scene.hands.nodes[subject.name], self.world.now_s
        having, parents = dict[str, set[str]](), {**node.lost, **node.parents}
        for id_, hands in self.scene.hands.held(node).items():
            device = id_.partition("::")[0]
            having.setdefault(parents.get(device, device), set()).update(hands)
        for uuid, gpu in node.known.items():
            place = (node.name, uuid)
            old, is_reset = self._since_s.get(place, {}), gpu.resets > self._resets.get(place, gpu.resets)
            since = {hand: old.get(hand, now_s) for hand in having.get(uuid, ())}
            hit = {hand: float("-inf") for hand, at_s in since.items() if is_reset and at_s <= now_s - LATE_S}
            self._since_s[place], self._resets[place] = since | hit, gpu.resets
            for hand in sorted(each for each, at_s in self._since_s[place].items() if at_s == float("-inf")):
                yield Wrong((hand, f"Node {node.name}"), f"{uuid} was reset, and it was held")


def _is_claim(hand: str) -> bool:
    return hand.startswith("ResourceClaim ")


def _weight(id_: str, hands: list[str], most: int) -> int:
    claims = sum(map(_is_claim, hands))
    return claims + (0 if claims == len(hands) else 1 if "::" in id_ else most)
