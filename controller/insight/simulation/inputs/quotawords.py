"""Quotas of ClusterQueues and Cohorts that the API server refuses.

The rules are those of the chart's policy for both kinds (Kueue's ``validateResourceGroups``), in its order.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.insight.simulation.documents import Document
from controller.insight.simulation.problems import shown
from controller.insight.simulation.sources import Path_
from controller.objects.decode import DecodeError, decode
from controller.objects.quantity import Quantity, QuantityError, parse_quantity
from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.quota.calendar import calendar_of
from inventory.api.names import QUOTA_CALENDAR

_GROUP: Final = "kueue.x-k8s.io"
_PARENTS: Final = {"ClusterQueue": ("cohortName", "cohort"), "Cohort": ("parentName", "parent")}
"""The fields that name the cohort above an object, by its kind, the present name first."""
_OWNERS: Final[Mapping[str, type[ClusterQueue | Cohort]]] = {"ClusterQueue": ClusterQueue, "Cohort": Cohort}
_LIMITS: Final = ("borrowingLimit", "lendingLimit")
_AMOUNTS: Final = ("nominalQuota", *_LIMITS)
_AT: Final = ("spec", "resourceGroups")


def refused_quotas(document: Document) -> Iterator[str]:
    """A line for each quota that is not valid; none for other kinds. Values of another shape are reported elsewhere."""
    spec = document.data.get("spec")
    if document.group != _GROUP or document.kind not in _PARENTS or not isinstance(spec, dict):
        return
    resources: dict[str, Path_] = {}
    flavors: dict[str, Path_] = {}
    for at, group in _objects(spec.get("resourceGroups")):
        covered = group.get("coveredResources")
        for place, name in enumerate(covered if isinstance(covered, list) else ()):
            yield from _again(document, str(name), (*_AT, at, "coveredResources", place), resources, "covered")
        for place, flavor in _objects(group.get("flavors")):
            path = (*_AT, at, "flavors", place)
            yield from _again(document, str(flavor.get("name")), (*path, "name"), flavors, "named")
            given = [str(each.get("name")) for _, each in _objects(flavor.get("resources"))]
            if isinstance(covered, list) and given != [str(each) for each in covered]:
                expected = f"the coveredResources in their order: {', '.join(map(str, covered))}"
                said = f"found {', '.join(given) or 'none'}, expected {expected}. Correct one of them"
                yield document.told((*path, "resources"), said)
            for number, quota in _objects(flavor.get("resources")):
                yield from _quota(document, (*path, "resources", number), quota, spec)


def refused_calendars(document: Document) -> Iterator[str]:
    """A line for each entry of a quota calendar that is wrong; none for other kinds."""
    kind = _OWNERS.get(document.kind)
    metadata = document.data.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if (
        document.group != _GROUP
        or kind is None
        or not isinstance(annotations, dict)
        or QUOTA_CALENDAR not in annotations
    ):
        return
    try:
        owner = decode(document.data, kind)
    except DecodeError:
        return  # the API server's rules tell of it
    for problem in calendar_of(owner).problems:
        said = problem.removeprefix(f"{QUOTA_CALENDAR}: ")
        yield document.told(("metadata", "annotations", QUOTA_CALENDAR), f"{said}. Correct it")


def _again(document: Document, name: str, path: Path_, seen: dict[str, Path_], what: str) -> Iterator[str]:
    first = seen.setdefault(name, path)
    if first != path:
        line = document.place(first)
        yield document.told(path, f"found {name[:63]} a second time, expected it {what} once: {line} has it")


def _quota(document: Document, path: Path_, quota: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """A line for each problem with the quota of one resource of one flavor."""
    amounts = {name: _amount(quota.get(name)) for name in _AMOUNTS}
    for name, amount in amounts.items():
        if amount is not None and amount.nanos < 0:
            yield document.told((*path, name), f"found {shown(quota[name])}, expected at least 0. Correct it")
    parents = _PARENTS[document.kind]
    if all(spec.get(parent) is None for parent in parents):
        for name in (name for name in _LIMITS if quota.get(name) is not None):
            sentence = (
                f"found {shown(quota[name])}, expected none without a cohort. Write spec.{parents[0]}, or take it out"
            )
            yield document.told((*path, name), sentence)
    lent, own = amounts["lendingLimit"], amounts["nominalQuota"]
    if document.kind == "ClusterQueue" and lent is not None and own is not None and lent.nanos > own.nanos:
        most = f"at most its nominalQuota, {quota['nominalQuota']}"
        sentence = f"found {shown(quota['lendingLimit'])}, expected {most}. Correct one of them"
        yield document.told((*path, "lendingLimit"), sentence)


def _amount(value: Any) -> Quantity | None:
    try:
        return None if value is None else parse_quantity(value)
    except QuantityError:
        return None


def _objects(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Items of a list that are objects, with their indexes."""
    for place, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, dict):
            yield place, each
