"""The setting of a story: flavors, cohorts and queues with their rules, by chance. Sources: Kueue's pages of
ClusterQueue, Cohort, LocalQueue, ResourceFlavor, AdmissionCheck and WorkloadPriorityClass.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final, Literal

from msgspec import Struct

from hack.outside.acts import (
    CHECK,
    CPU,
    CPU_FLAVOR,
    FLAVORS,
    GPU,
    OVERHEAD,
    PRIORITIES,
    RUNTIME_CLASS,
    SPACES,
    Act,
    Json,
)

Cpus = Literal["", "beside", "apart"]
"""CPUs have no quota; they have it in the flavors of the GPUs; they have it in a flavor of their own."""
_ACTIVE: Final = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
_CHECK: Final[Json] = {
    "spec": {"controllerName": "somebody.example/provisioner"},
    "status": {"conditions": [{**_ACTIVE, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
}
_NOMINAL: Final = (0, 0, 1, 2, 3, 4, 6, 8)


class Queue(Struct, frozen=True):
    """``spaces``: namespaces with a LocalQueue of its name. ``calm``: in no cohort, nobody is evicted, and no quota
    changes before the end, so that the order of its jobs can be judged. ``notes``: annotations of the ClusterQueue.
    """

    name: str
    spec: Json
    spaces: tuple[str, ...]
    calm: bool = False
    notes: Json = {}

    @property
    def shares(self) -> bool:
        return "cohortName" in self.spec


class Setting(Struct, frozen=True):
    fair: bool
    flavors: tuple[str, ...]
    cpus: Cpus
    checked: bool
    cohorts: tuple[str, ...]
    queues: tuple[Queue, ...]

    def busy(self) -> list[Queue]:
        return [each for each in self.queues if not each.calm]


def drawn(rng: random.Random) -> Setting:
    fair, checked = rng.random() < 0.3, rng.random() < 0.4  # noqa: PLR2004 - shares
    cpus: Cpus = rng.choice(("", "beside", "apart"))
    cohorts = ("tree", *rng.sample(("tree-left", "tree-right"), rng.randint(0, 2)))
    empty = Setting(fair, FLAVORS[: rng.randint(1, 2)], cpus, checked, cohorts, ())
    queues = [_busy(rng, empty, f"queue-{number}") for number in range(rng.randint(2, 4))]
    if rng.random() < 0.6:  # noqa: PLR2004 - a share
        queues.append(_calm(rng, empty))
    return Setting(fair, empty.flavors, cpus, checked, cohorts, tuple(queues))


def beginning(setting: Setting) -> Iterator[Act]:
    """Create the objects that exist before the controller starts."""
    for space in SPACES:
        yield Act(0.0, "create", "Namespace", space, body={"metadata": {"labels": {}}})
    for name in setting.flavors:
        labels = {} if len(setting.flavors) == 1 else {"flavor": name}
        yield Act(0.0, "create", "ResourceFlavor", name, body={"spec": {"nodeLabels": labels} if labels else {}})
    if setting.cpus == "apart":
        yield Act(0.0, "create", "ResourceFlavor", CPU_FLAVOR, body={"spec": {}})
    for name, value in PRIORITIES.items():
        yield Act(0.0, "create", "WorkloadPriorityClass", name, body={"value": value})
    runtime = {"handler": RUNTIME_CLASS, "overhead": {"podFixed": OVERHEAD}}
    yield Act(0.0, "create", "RuntimeClass", RUNTIME_CLASS, body=runtime)
    if setting.checked:
        yield Act(0.0, "create", "AdmissionCheck", CHECK, body=_CHECK)
    for name in setting.cohorts[1:]:
        yield Act(0.0, "create", "Cohort", name, body={"spec": {"parentName": "tree"}})
    for queue in setting.queues:
        meta = {"metadata": {"annotations": queue.notes}} if queue.notes else {}
        yield Act(0.0, "create", "ClusterQueue", queue.name, body={**meta, "spec": queue.spec})
        for space in queue.spaces:
            yield Act(0.0, "create", "LocalQueue", queue.name, space, {"spec": {"clusterQueue": queue.name}})


def requota(rng: random.Random, setting: Setting, *, shares: bool) -> list[Json]:
    """Other resource groups of a queue. ``shares``: it is in a cohort."""
    return _groups(setting.flavors, setting.cpus, lambda resource: _row(rng, resource, shares=shares))


def exact(setting: Setting, flavor: str, amount: int) -> list[Json]:
    """Resource groups in which each resource has ``amount``, in one flavor, without limits."""
    return _groups((flavor,), setting.cpus, lambda resource: {"name": resource, "nominalQuota": str(amount)})


# -- queues ------------------------------------------------------------------------------------------------------------


def _busy(rng: random.Random, setting: Setting, name: str) -> Queue:
    cohort = rng.choice(("", "tree", *setting.cohorts))
    preemption: Json = {
        "withinClusterQueue": rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": rng.choice(["Never", "LowerPriority", "Any", "Any"]),
    }
    if cohort and preemption["reclaimWithinCohort"] != "Never" and rng.random() < 0.3:  # noqa: PLR2004 - a share
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
    spec: Json = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
        "preemption": preemption,
        "resourceGroups": requota(rng, setting, shares=bool(cohort)),
    }
    if setting.fair:
        spec["fairSharing"] = {"weight": str(rng.choice([1, 1, 2, 3]))}
    if setting.checked and rng.random() < 0.5:  # noqa: PLR2004 - a share
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
    if cohort:
        spec["cohortName"] = cohort
    return Queue(name, spec, tuple(rng.sample(SPACES, rng.randint(1, 2))))


def _calm(rng: random.Random, setting: Setting) -> Queue:
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(["BestEffortFIFO", "StrictFIFO"]),
        "resourceGroups": exact(setting, setting.flavors[0], rng.randint(1, 2)),
    }
    return Queue("calm", spec, (rng.choice(SPACES),), calm=True)


def _groups(flavors: tuple[str, ...], cpus: Cpus, row: Callable[[str], Json]) -> list[Json]:
    covered = [CPU, GPU] if cpus == "beside" else [GPU]
    gpus = {
        "coveredResources": covered,
        "flavors": [{"name": each, "resources": [row(resource) for resource in covered]} for each in flavors],
    }
    apart = {"coveredResources": [CPU], "flavors": [{"name": CPU_FLAVOR, "resources": [row(CPU)]}]}
    return [apart, gpus] if cpus == "apart" else [gpus]


def _row(rng: random.Random, resource: str, *, shares: bool) -> Json:
    nominal = rng.choice(_NOMINAL) + (4 if resource == CPU else 0)
    row: Json = {"name": resource, "nominalQuota": str(nominal)}
    if shares and rng.random() < 0.4:  # noqa: PLR2004 - a share
        row["borrowingLimit"] = str(rng.randint(0, 4))
    if shares and rng.random() < 0.4:  # noqa: PLR2004 - a share
        row["lendingLimit"] = str(rng.randint(0, nominal))
    return row
