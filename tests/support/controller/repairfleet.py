"""A fleet whose agents ask for repairs, and the breaker of the controller that leads; time is the test's."""

from collections.abc import Iterable
from typing import Any

import msgspec

from controller.cluster.config.settings import RemediationRules
from controller.reconcile.repairs.breaker import Decisions, RepairBreaker, RepairFlavor, RepairNode, Why
from controller.reconcile.repairs.grantrecords import due_text, read_record
from controller.reconcile.repairs.grants import Grant, entries, node_repairs
from inventory.api.gpunode import GpuNodeStatus, RepairEntry
from tests.support.controller.gpunodes import full_status

BEGIN_S = 1_000_000.0


class Fleet:
    """GpuNodes of four GPUs, their agents, and the controller that leads; its writes arrive with ``land``."""

    def __init__(
        self,
        rules: RemediationRules,
        nodes: Iterable[str] = ("n1", "n2", "n3"),
        gpus: int = 4,
        *,
        validates: bool = True,
    ) -> None:
        """``validates``: after each event; a fleet of thousands is validated by its test."""
        self.rules = rules
        self.validates = validates
        self.gpus = gpus
        self.now_s = BEGIN_S
        self.labels: dict[str, dict[str, str]] = {name: {"pool": "a"} for name in nodes}
        self.maintenance: set[str] = set()
        self.flavors: dict[str, RepairFlavor] = {"a": RepairFlavor(node_labels={"pool": "a"})}
        self.texts: dict[str, str | None] = {}
        """The annotation with the grants that count, by flavor."""
        self.repairs: dict[tuple[str, str], RepairEntry] = {}
        self.lists: dict[str, tuple[Grant, ...]] = {}
        self.pending: dict[str, tuple[Grant, ...]] = {}
        self.log: list[tuple[str, Grant]] = []
        """Every grant that was in a GpuNode, or is on its way there, with its node. A leader that begins knows nothing
        of those of a node of no flavor that is away.
        """
        self.lifted: dict[str, float] = {}
        self.away: set[str] = set()
        """Nodes that have gone, with their GpuNodes."""
        self.unplaced: set[tuple[str, Grant]] = set()
        """Grants of nodes that were away when a leader began: it knows their flavor, and not their domains."""
        self.core = RepairBreaker(rules)
        self.take_over()

    def take_over(self) -> None:
        """A new leader, who knows what the API server has. What the one before had not written is lost."""
        lost = {(node, grant) for node, grants in self.pending.items() for grant in grants}
        stored = {(node, grant) for node, grants in self.lists.items() for grant in grants}
        known = {node for node in self.labels if node not in self.away or "pool" in self.labels[node]}
        self.log = [each for each in self.log if each not in lost - stored and each[0] in known]
        self.unplaced |= {each for each in self.log if each[0] in self.away}
        self.pending = {}
        self.core = RepairBreaker(self.rules)
        for name, flavor in self.flavors.items():
            self.core.set_flavor(name, flavor)
        for node in self.labels:
            self.tell(node)

    def recorded(self) -> None:
        """The flavors get the grants that count in them, as the controller writes them."""
        for name, flavor in self.flavors.items():
            is_due, text = due_text(self.core.counted(name, self.now_s), self.texts.get(name))
            if is_due:
                self.texts[name] = text
                self.flavors[name] = msgspec.structs.replace(flavor, recorded=read_record(text))
                self.core.set_flavor(name, self.flavors[name])
                self.core.validate()

    def status(self, node: str) -> GpuNodeStatus:
        uuids = [f"{node}-{i}" for i in range(self.gpus)]
        devices = [
            {"uuid": uuid, "index": i, "product": "p", "memoryMiB": 1, "pciBusId": str(i)}
            for i, uuid in enumerate(uuids)
        ]
        known = [self.repairs[node, uuid] for uuid in uuids if (node, uuid) in self.repairs]
        repairs = [msgspec.to_builtins(each) for each in known]
        grants = [msgspec.to_builtins(each) for each in entries(self.lists.get(node, ()))]
        given = full_status({"devices": devices, "repairs": repairs, "remediationGrants": grants})
        return msgspec.convert(given, GpuNodeStatus)

    def leaves(self, node: str, *, gpunode_first: bool = False) -> None:
        """The Node goes, and its GpuNode with it."""
        if gpunode_first:
            self.core.set_repairs(node, None)
        self.core.set_node(node, None)
        self.core.validate()
        self.core.set_repairs(node, None)
        self.core.validate()
        self.away.add(node)
        self.lists.pop(node, None)
        self.repairs = {at: each for at, each in self.repairs.items() if at[0] != node}
        if node in self.pending:
            self.core.failed(node, self.pending.pop(node))
            self.core.validate()

    def comes(self, node: str) -> None:
        self.away.discard(node)
        self.tell(node)

    def tell(self, node: str) -> None:
        if node in self.away:
            return
        self.core.set_node(node, RepairNode(labels=self.labels[node], in_maintenance=node in self.maintenance))
        self.core.set_repairs(node, node_repairs(node, self.status(node), self.lifted.get(node, 0.0)))
        if self.validates:
            self.core.validate()

    def asks(self, node: str, gpu: int, action: str = "reset", *, state: str = "Draining", generation: int = 0) -> None:
        uuid = f"{node}-{gpu}"
        before = self.repairs.get((node, uuid))
        since = before.since if before is not None else _time(self.now_s)
        number = generation or (before.generation + 1 if before is not None else 1)
        self.repairs[node, uuid] = RepairEntry(gpu=uuid, state=state, generation=number, asks=action, since=since)
        self.tell(node)

    def works(self, node: str, gpu: int, state: str = "Resetting") -> None:
        self.asks(node, gpu, "", state=state)

    def well(self, node: str, gpu: int) -> None:
        self.repairs.pop((node, f"{node}-{gpu}"), None)
        self.tell(node)

    def decide(self, after_s: float = 0.0) -> Decisions:
        self.now_s += after_s
        found = self.core.decide(self.now_s)
        self.core.validate()
        self.log += found.granted
        self.pending = dict(found.lists)
        self.recorded()
        return found

    def land(self, *nodes: str) -> None:
        for node in nodes or list(self.pending):
            self.lists[node] = self.pending.pop(node)
            self.tell(node)
        self.recorded()

    def step(self, after_s: float = 0.0) -> list[str]:
        """The GPUs that get a grant, which is written."""
        found = self.decide(after_s)
        self.land()
        return sorted(grant.gpu for _, grant in found.granted)


def _time(at_s: float) -> Any:
    return entries([Grant("g", 0, "", at_s)])[0].granted


def why(found: Decisions) -> dict[str, Why]:
    return {each.ask.gpu: each.why for each in found.held_back}
