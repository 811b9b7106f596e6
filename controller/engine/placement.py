"""The placement port: where the pods of an assignment would run, and whether that room is free.

The engine asks it in nomination, in every fit check of preemption, and when it charges and undoes. ``Everywhere`` is
the answer of a cluster whose flavors name no topology: quota alone decides.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from controller.engine.resources import Amount, FlavorName, ResourceName
from controller.engine.workload import TopologyUsage
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pod set that must be placed on the nodes of one flavor; ``single_pod`` is one pod's whole request."""

    pod_set: PodSet
    count: int
    flavor: FlavorName
    single_pod: Mapping[ResourceName, Amount]
    previous: TopologyUsage | None = None
    """Where it runs now, when only what was lost is to be replaced."""


class Placed(msgspec.Struct, frozen=True):
    """A domain list for each pod set, by name."""

    topologies: Mapping[str, TopologyUsage]


class NotPlaced(msgspec.Struct, frozen=True):
    """``pod_set`` found no room; ``problem`` says what was looked for, what is free and the largest block there is."""

    pod_set: str
    problem: str


class Placement(Protocol):
    """Changes are noted in the engine's undo log, so that quota and topology are undone together."""

    def needs(self, pod_set: PodSet, flavor: ResourceFlavor, *, implied: bool) -> bool:
        """Whether the set must be placed when it gets this flavor. ``implied``: its queue has only such flavors."""

    def mismatch(self, pod_set: PodSet, flavor: ResourceFlavor) -> str | None:
        """Why this flavor cannot take the set at all (it asks for a level that the topology lacks, ...), else None."""

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | NotPlaced:
        """All or nothing. ``on_empty``: as if nothing that may be preempted were running."""

    def fits(self, flavor: FlavorName, usage: TopologyUsage) -> bool:
        """Whether this room is still free."""

    def add(self, flavor: FlavorName, usage: TopologyUsage) -> None: ...

    def remove(self, flavor: FlavorName, usage: TopologyUsage) -> None: ...


class Everywhere:
    """No topology: nothing needs a place, and what has one (from before its topology went) blocks nobody."""

    def needs(self, pod_set: PodSet, flavor: ResourceFlavor, *, implied: bool) -> bool:  # noqa: ARG002
        return False

    def mismatch(self, pod_set: PodSet, flavor: ResourceFlavor) -> str | None:
        asked = pod_set.topology_request
        if asked is not None and flavor.spec.topology_name is None:
            levels = (asked.required, asked.preferred, asked.pod_set_slice_required_topology)
            if asked.unconstrained or any(level is not None for level in levels):
                return f"flavor {flavor.metadata.name} names no topology and the pod set asks for one"
        return None

    def place(self, requests: Sequence[PlacementRequest], *, on_empty: bool) -> Placed | NotPlaced:  # noqa: ARG002
        return Placed({})

    def fits(self, flavor: FlavorName, usage: TopologyUsage) -> bool:  # noqa: ARG002
        return True

    def add(self, flavor: FlavorName, usage: TopologyUsage) -> None:
        """Nothing is counted."""

    def remove(self, flavor: FlavorName, usage: TopologyUsage) -> None:
        """Nothing is counted."""
