"""Volcano's network topology as levels of a Topology: which label of nodes stands for each tier of HyperNodes. Pure.

Source: volcano-sh/volcano, pkg/scheduler/plugins/network-topology-aware. A hard constraint keeps pods within one
HyperNode of at most that tier; a soft one, and a hard one without a tier, prefer the closest.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from controller.foreign.objects.volcanojob import NetworkTopology
from controller.jobs.framework.podsets import JobPodSet
from controller.jobs.framework.raw import JobError, Json, shown
from controller.objects.meta import Struct
from controller.objects.placeencoding import HOSTNAME_LABEL

TABLE: Final = "tessera.volcano.topology"
SLICES: Final = "podSetSliceRequiredTopology"

_WITHOUT: Final = f"expected a table of tiers in {TABLE} of the configuration, found none"
SOFT: Final = "soft"
_LEVELS: Final = ("required", "preferred", "unconstrained")
_PAIR: Final = 2
_GROUP: Final = "volcano-job"
"""Name of the pod set group of two pod sets that are placed together."""


class Tier(Struct, frozen=True, kw_only=True):
    """One tier. ``node_label``: nodes with the same value of it are in one HyperNode of the tier. ``name``:
    ``spec.tierName``.
    """

    node_label: str
    name: str = ""


Tiers = tuple[Tier, ...]
"""The table of the configuration, tier 1 first, which is the closest."""


def asked(topology: NetworkTopology | None, tiers: Tiers, path: str) -> Json:
    """The levels of a topology request; empty without a topology. Raises JobError."""
    if topology is None:
        return {}
    label = _label(topology, tiers, path)
    if topology.mode != SOFT and label:
        return {"required": label}
    if topology.mode == SOFT and not tiers:
        raise JobError(f"{path}: {_WITHOUT}")
    return {"preferred": tiers[0].node_label} if tiers else {}


def _label(topology: NetworkTopology, tiers: Tiers, path: str) -> str:
    """The node label of the highest tier that is allowed; empty if none is named. Raises JobError."""
    tier, name = topology.highest_tier_allowed, topology.highest_tier_name
    if tier is None and not name:
        return ""
    if not tiers:
        raise JobError(f"{path}: {_WITHOUT}")
    if name:
        known = next((each.node_label for each in tiers if each.name == name), "")
        if not known:
            listed = ", ".join(each.name for each in tiers if each.name) or "no names"
            raise JobError(f"{path}.highestTierName: expected a name of {TABLE} ({listed}), found {shown(name)}")
        return known
    if tier is None or not 0 <= tier <= len(tiers):
        raise JobError(f"{path}.highestTierAllowed: expected 0 to {len(tiers)}, the tiers of {TABLE}, found {tier}")
    return tiers[tier - 1].node_label if tier else HOSTNAME_LABEL


def together(pod_sets: Sequence[JobPodSet], levels: Json, path: str) -> tuple[JobPodSet, ...]:
    """The pod sets with these levels; pod sets that request levels themselves keep theirs.

    A level that is required of several pod sets is required of all in one domain, which is possible for two of which
    one has one pod. Raises JobError.
    """
    if not levels:
        return tuple(pod_sets)
    open_sets = [each for each in pod_sets if not _asks(each) and each.count]
    if len(open_sets) > 1:
        sliced = any(SLICES in (each.topology_request or {}) for each in open_sets)
        if len(open_sets) == _PAIR and 1 in (each.count for each in open_sets) and not sliced:
            levels = {**levels, "podSetGroupName": _GROUP}
        elif "required" in levels:
            names = ", ".join(each.name for each in open_sets)
            raise JobError(
                f"{path}: expected one pod set, or two of which one has one pod: others are not placed in one domain"
                f" together, found {names}"
            )
    return tuple(with_request(each, levels) if each in open_sets else each for each in pod_sets)


def with_request(pod_set: JobPodSet, more: Json) -> JobPodSet:
    return msgspec.structs.replace(pod_set, topology_request={**(pod_set.topology_request or {}), **more})


def _asks(pod_set: JobPodSet) -> bool:
    """Whether the pod set requests a level of its own; a request for slices alone is none, since slices may lie in a
    level that all share.
    """
    return not set(_LEVELS).isdisjoint(pod_set.topology_request or {})
