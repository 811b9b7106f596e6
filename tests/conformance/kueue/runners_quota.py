"""Runners of the suites about quota: what is available, who borrows, and how large a share is."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.objects.decode import decode
from controller.objects.queues import ClusterQueue, Cohort
from controller.scheduler.model.resources import (
    UNLIMITED,
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ResourceName,
)
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.quotaspec import cluster_queue_spec, cohort_spec
from controller.scheduler.quota.shares import share
from tests.conformance.replay import Case, Difference, first_difference, runner

Amounts = dict[FlavorResource, Amount]


def tree_of(case: Case) -> QuotaTree:
    """The case's cohorts and ClusterQueues, nothing charged."""
    tree = QuotaTree()
    for data in case.input.get("cohorts") or ():
        cohort = decode(data, Cohort)
        tree.set_cohort(CohortName(cohort.metadata.name), cohort_spec(cohort))
    for data in case.input["clusterQueues"]:
        queue = decode(data, ClusterQueue)
        tree.set_cluster_queue(ClusterQueueName(queue.metadata.name), cluster_queue_spec(queue))
    tree.validate()
    return tree


def amounts_of(entries: Iterable[Mapping[str, Any]] | None) -> Amounts:
    """``unlimited`` is as much as there can be."""
    return {
        FlavorResource(FlavorName(one["flavor"]), ResourceName(one["resource"])): UNLIMITED
        if one["amount"] == "unlimited"
        else one["amount"]
        for one in entries or ()
    }


def charge(tree: QuotaTree, usage: Mapping[str, Any] | None) -> None:
    for name, entries in (usage or {}).items():
        tree.add_usage(ClusterQueueName(name), amounts_of(entries))
    tree.validate()


def compared(wanted: Mapping[str, Any], found: Mapping[str, Amounts]) -> Difference | None:
    """Amounts by ClusterQueue; the order of a list means nothing."""
    return first_difference(
        {name: listed(amounts_of(entries)) for name, entries in wanted.items()},
        {name: listed(found.get(name, {})) for name in wanted},
    )


def listed(amounts: Amounts) -> list[list[Any]]:
    return [[fr.flavor, fr.resource, amount] for fr, amount in sorted(amounts.items())]


@runner("cache-TestAvailable")
def available(case: Case) -> Difference | None:
    tree = tree_of(case)
    potential = case.expect["wantPotentiallyAvailable"]

    def now(wanted: Mapping[str, Any], *, at_best: bool = False) -> Difference | None:
        nodes = {name: tree.cluster_queue(ClusterQueueName(name)) for name in wanted}
        found = {
            name: {
                fr: node.potential_available(fr) if at_best else node.available(fr) for fr in amounts_of(wanted[name])
            }
            for name, node in nodes.items()
        }
        return compared(wanted, found)

    before = now(potential)
    charge(tree, case.input["usage"])
    charged = now(case.expect["wantAvailable"]) or now(potential, at_best=True)
    for name, entries in (case.input["usage"] or {}).items():
        tree.remove_usage(ClusterQueueName(name), amounts_of(entries))
    tree.validate()
    return before or charged or now(potential)


@runner("cache-TestIsBorrowingOn")
def borrowing_on(case: Case) -> Difference | None:
    tree = tree_of(case)
    charge(tree, case.input["clusterQueueUsage"])
    node = tree.cluster_queue(ClusterQueueName("cq"))
    requested = amounts_of(case.input.get("requestedFRs"))
    found = {
        "wantBorrowing": node.borrowing(),
        "wantBorrowingOnRequested": any(node.borrowed(fr) > 0 for fr in requested),
    }
    return first_difference(dict(case.expect), found)


@runner("cache-TestDominantResourceShare")
def dominant_resource_share(case: Case) -> Difference | None:
    tree = tree_of(case)
    charge(tree, case.input["clusterQueueUsage"])
    extra = amounts_of(case.input.get("extraUsage"))
    nodes: list[tuple[str, str, QuotaNode]] = [
        ("ClusterQueue", str(n), node) for n, node in tree.cluster_queues.items()
    ]
    nodes += [("Cohort", str(name), node) for name, node in tree.cohorts.items()]
    found = {}
    for kind, name, node in nodes:
        one = share(node, extra)
        found[f"{kind}/{name}"] = {
            "weightedShare": one.weighted,
            "dominantResource": one.dominant or "",
            "borrowing": one.borrowing,
        }
    wanted = {
        f"{one['kind']}/{one['name']}": {key: one[key] for key in ("weightedShare", "dominantResource", "borrowing")}
        for one in case.expect["want"]
    }
    return first_difference(wanted, found)
