"""Rooms for claims without an engine around them: objects in, places in and out, and each time all is recomputed."""

from collections.abc import Sequence

from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.scheduler.devices.cache import HeldPlace
from controller.scheduler.devices.grants import GrantOwner, PodFacts
from controller.scheduler.devices.pods import KnownPods
from controller.scheduler.dra.allocation.claimsupply import ClaimSupply
from controller.scheduler.dra.allocation.requests import PodClaimsRequest
from controller.scheduler.model.deviceclaims import ClaimNames
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage
from tests.support.engine.claimsupply import names
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, device_class


class Lab:
    """Rooms without an engine: ``put`` and ``drop`` take objects, ``place`` and ``leave`` places on nodes."""

    def __init__(self, *objects: KubernetesObject) -> None:
        self.undo = UndoLog()
        self.pods = KnownPods()
        self.places: list[HeldPlace] = []
        self.touched: list[str] = []
        self.supply = ClaimSupply(self.undo, self.pods, lambda: self.places, self.touched.extend)
        self.classes(GPU_CLASS)
        for each in objects:
            self.put(each)

    def classes(self, *names: str) -> None:
        for name in names:
            self.put(device_class(name, f"device.driver == '{DRIVER}'"))

    def put(self, given: KubernetesObject) -> tuple[str, ...]:
        changed = self.supply.put(given)
        self.supply.validate()
        return changed

    def drop(self, kind: type[KubernetesObject], namespace: str, name: str) -> tuple[str, ...]:
        changed = self.supply.drop(kind, namespace, name)
        self.supply.validate()
        return changed

    def pod(self, name: str, owner: str = "w", node: str = "a", *, leaving: bool = False) -> tuple[str, ...]:
        facts = PodFacts(owner_of(owner), node, (), leaving)
        return self.supply.pods_changed(self.pods.tell(f"ns/{name}", facts))

    def over(self, name: str) -> tuple[str, ...]:
        return self.supply.pods_changed(self.pods.tell(f"ns/{name}", None))

    def ask(self, *templates: str, claims: Sequence[str] = ()) -> PodClaimsRequest:
        found = self.supply.ask(claim_names(*templates, claims=claims))
        assert found is not None
        return found

    def fitting_pods(self, node_name: str, *templates: str, claims: Sequence[str] = (), empty: bool = False) -> int:
        return self.supply.fitting_pods(node_name, self.ask(*templates, claims=claims), empty=empty)

    def place(self, owner: str, usage: TopologyUsage) -> None:
        self.places.append((FlavorName("f"), usage, owner_of(owner)))
        self.supply.add(usage, owner_of(owner))
        self.supply.validate()

    def leave(self, owner: str, usage: TopologyUsage) -> None:
        self.places.remove((FlavorName("f"), usage, owner_of(owner)))
        self.supply.remove(usage, owner_of(owner))
        self.supply.validate()

    def planned(self, owner: str, node_name: str) -> list[list[str]]:
        return [names(offer, one) for _, offer, one, _ in self.supply.plan(owner_of(owner), node_name)]


def owner_of(workload: str) -> GrantOwner:
    return GrantOwner(WorkloadKey(f"ns/{workload}"), "main")


def claim_names(*templates: str, claims: Sequence[str] = ()) -> ClaimNames:
    by_template = tuple((f"t{at}", name) for at, name in enumerate(templates))
    return ClaimNames("ns", by_template, tuple((f"c{at}", name) for at, name in enumerate(claims)))


def usage(*templates: str, claims: Sequence[str] = (), **pods: int) -> TopologyUsage:
    """``pods``: how many are on each node."""
    domains = tuple(Domain((name,), number) for name, number in pods.items())
    asked_for = claim_names(*templates, claims=claims)
    return TopologyUsage(levels=(HOSTNAME_LABEL,), domains=domains, single_pod={}, claims=asked_for)
