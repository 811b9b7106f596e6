"""Runners of the webhooks' suites for queues, flavors and workloads: our CRDs and policies in the place of webhooks."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.replay import Case, Difference, first_difference, runner
from tests.support.queuerules import requests
from tests.support.queuerules.schemas import Refusal

GROUP_SIZE = 64
"""Kueue's CRD and ours let no group have more flavors, nor more resources."""
ALL_DIFFERENT = {"repeatedFlavors": "", "repeatedResources": ""}
"""Of names that are made here. To look for one among so many takes more rounds than Google's runtime goes."""


def refused_otherwise(wanted: Sequence[Mapping[str, str]] | None, found: Sequence[Refusal]) -> Difference | None:
    """Every error is told at its field, and nothing else is refused.

    A sentence may stand for several errors, and speaks of the field that it begins with and of all that it names.
    """
    fields = [one["field"] for one in wanted or ()]
    untold = [field for field in fields if not any(is_about(one, field) for one in found)]
    if untold:
        return Difference("refused", untold, [f"{one.field}: {one.sentence}" for one in found])
    firm = [one for one in found if not one.of_a_gap]
    extra = [f"{one.field}: {one.sentence}" for one in firm if not any(is_about(one, field) for field in fields)]
    return Difference("refused", fields, extra) if extra else None


def is_about(refusal: Refusal, field: str) -> bool:
    said, wanted = _steps(refusal.field), _steps(field)
    shared = min(len(said), len(wanted))
    names = re.findall(r"\w+", refusal.sentence)
    return said[:1] == wanted[:1] and ((shared > 1 and said[:shared] == wanted[:shared]) or wanted[-1] in names)


def _steps(field: str) -> list[str]:
    """Names alone: a sentence speaks of all items of a list."""
    return [step for step in re.sub(r"\[[^]]*\]", "", field).split(".") if step]


@runner("jobs-webhooks-TestValidateClusterQueue")
def cluster_queue(case: Case) -> Difference | None:
    return refused_otherwise(case.expect["wantErr"], requests.created(case.input["clusterQueue"]))


@runner("jobs-webhooks-TestValidateClusterQueueUpdate")
def cluster_queue_changed(case: Case) -> Difference | None:
    found = requests.updated(case.input["oldClusterQueue"], case.input["newClusterQueue"])
    return refused_otherwise(case.expect["wantErr"], found)


@runner("jobs-webhooks-TestValidateCohort")
def cohort(case: Case) -> Difference | None:
    return refused_otherwise(case.expect["wantErr"], requests.created(case.input["cohort"]))


@runner("jobs-webhooks-TestValidateResourceFlavor")
def resource_flavor(case: Case) -> Difference | None:
    return refused_otherwise(case.expect["wantErr"], requests.created(case.input["rf"]))


@runner("jobs-webhooks-TestValidateWorkload")
def workload(case: Case) -> Difference | None:
    return refused_otherwise(case.expect["wantErr"], requests.created(case.input["workload"], gates=case.gates))


@runner("jobs-webhooks-TestValidateWorkloadUpdate")
def workload_changed(case: Case) -> Difference | None:
    found = requests.updated(case.input["before"], case.input["after"], case.gates)
    return refused_otherwise(case.expect["wantErr"], found)


# Sizes.


def group(resources: Sequence[str], flavors: Sequence[str]) -> dict[str, Any]:
    quotas = [{"name": name, "nominalQuota": "1"} for name in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": name, "resources": quotas} for name in flavors]}


def queue_of(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    spec = {"resourceGroups": list(groups)}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def groups_of(names: Sequence[str]) -> list[Sequence[str]]:
    """As few groups as can be."""
    return [names[at : at + GROUP_SIZE] for at in range(0, len(names), GROUP_SIZE)]


def refused_as_wanted(case: Case, groups: Sequence[dict[str, Any]]) -> Difference | None:
    found = requests.created(queue_of(groups), ALL_DIFFERENT)
    return first_difference(case.expect["wantErr"], bool(found), "refused")


@runner("jobs-webhooks-TestValidateFlavorResourceCombinations")
def combinations(case: Case) -> Difference | None:
    resources = [f"example.com/r{at}" for at in range(case.input["numResources"])]
    return refused_as_wanted(case, [group(resources, [f"f{at}" for at in range(case.input["numFlavors"])])])


@runner("jobs-webhooks-TestValidateTotalFlavors")
def all_flavors(case: Case) -> Difference | None:
    parts = groups_of([f"f{at}" for at in range(case.input["numFlavors"])])
    return refused_as_wanted(case, [group([f"example.com/r{at}"], part) for at, part in enumerate(parts)])


@runner("jobs-webhooks-TestValidateTotalCoveredResources")
def all_resources(case: Case) -> Difference | None:
    parts = groups_of([f"example.com/r{at}" for at in range(case.input["numCoveredRes"])])
    return refused_as_wanted(case, [group(part, [f"f{at}"]) for at, part in enumerate(parts)])
