"""Replacement of the pods on a lost node; all other pods stay where they are.

The new places still satisfy the request: they are in the same domain where one was required, in the slice that the loss
left incomplete where there are slices, and anywhere otherwise. Only one lost node is handled. Source: KEP-2724.
"""

from typing import Final, NamedTuple

import msgspec

from controller.objects.placeencoding import Domain
from controller.objects.workload import Workload
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.finder import Finder
from controller.scheduler.topology.port import PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest
from controller.scheduler.topology.tree import Tree

_replace = msgspec.structs.replace


_GROUP: Final = "kueue.x-k8s.io/is-group-workload"


def stays(workload: Workload) -> bool:
    """Whether the workload is one single pod: a pod cannot move, and its workload ends with it."""
    owners = workload.metadata.owner_references
    alone = len(owners) == 1 and owners[0].kind == "Pod" and owners[0].api_version == "v1"
    return alone and workload.metadata.annotations.get(_GROUP) != "true"


class Replaced(NamedTuple):
    """``whole`` is the new complete assignment, ``moved`` the part of it that is new."""

    whole: TopologyUsage
    moved: TopologyUsage


def replace(finder: Finder, request: PlacementRequest, previous: TopologyUsage, lost: str) -> Replaced | str:
    """The previous assignment with the pods of node ``lost`` placed anew; a sentence if they cannot be."""
    tree = finder.tree
    staying = tuple(domain for domain in previous.domains if domain.values[-1] != lost)
    missing = sum(domain.pods for domain in previous.domains if domain.values[-1] == lost)
    gone = next((domain for domain in staying if tree.leaf(domain.values) is None), None)
    if gone is not None:
        return f"{'/'.join(gone.values)} is lost as well as {lost}: only one lost node is replaced"
    within = _within(finder, request, staying, missing)
    reduced = _replace(request, count=missing, asked=_reduced(finder, request.asked, missing, within))
    found = finder.find(reduced, None, empty=False, within=within)
    if isinstance(found, str):
        return found
    moved = found[request.pod_set.name]
    if not moved.domains:
        return f"no pods run on {lost}"
    return Replaced(merged(finder.tree, staying, moved), moved)


def _within(finder: Finder, request: PlacementRequest, kept: tuple[Domain, ...], missing: int) -> int:
    """The domain that must take the pods: the one where the other pods are, those of a group's partner included. -1 if
    any domain may take them.
    """
    tree, asked = finder.tree, request.asked
    label = asked.label(tree.levels) or (tree.levels[-1] if request.implied else None)
    level = tree.level_of(label) if label is not None else None
    others = (*kept, *request.beside)
    if level is None or not others:
        return -1
    every = finder.layers(asked)
    broken = next((layer for layer in reversed(every) if layer.size and missing % layer.size), None)
    if every and every[0].size and missing % every[0].size and broken is not None:
        slice_level = tree.level_of(broken.topology)
        return -1 if slice_level is None else _incomplete(finder, kept, missing, broken.size, slice_level)
    if asked.required is None:
        return -1
    leaf = tree.leaf(others[0].values)
    return -1 if leaf is None else tree.ancestor(leaf, level)


def _incomplete(finder: Finder, kept: tuple[Domain, ...], missing: int, size: int, level: int) -> int:
    """The first domain of the level where the missing pods complete whole slices; -1 if there is none."""
    pods: dict[int, int] = {}
    for held in kept:
        leaf = finder.tree.leaf(held.values)
        if leaf is not None:
            domain = finder.tree.ancestor(leaf, level)
            pods[domain] = pods.get(domain, 0) + held.pods
    return next((domain for domain, count in pods.items() if (count + missing) % size == 0), -1)


def _reduced(finder: Finder, asked: TopologyRequest, missing: int, within: int) -> TopologyRequest:
    """The topology request of the missing pods. Where they only fill up a slice, they go in the largest inner slices
    that they make whole.
    """
    every = finder.layers(asked)
    if not every or not every[0].size or missing % every[0].size == 0 or within < 0:
        return asked
    whole = next((layer for layer in reversed(every) if layer.size and missing % layer.size == 0), None)
    anywhere = asked.required is None and asked.preferred is None and whole is None
    return _replace(
        asked,
        unconstrained=anywhere or asked.unconstrained,
        layers=() if whole is None else (whole,),
    )


def merged(tree: Tree, kept: tuple[Domain, ...], moved: TopologyUsage) -> TopologyUsage:
    """One assignment of the pods that stay and those that moved, its domains sorted by path."""
    pods: dict[tuple[str, ...], int] = {}
    for domain in (*kept, *moved.domains):
        pods[domain.values] = pods.get(domain.values, 0) + domain.pods

    def place(values: tuple[str, ...]) -> tuple[str, ...]:
        leaf = tree.leaf(values)
        return values if leaf is None else tree.path[leaf]

    domains = tuple(Domain(values, pods[values]) for values in sorted(pods, key=place))
    return msgspec.structs.replace(moved, domains=domains)
