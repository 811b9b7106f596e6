"""A random story of queues: what somebody writes to the API server, and when. Pure: the same seed, the same story.

Sources: Kueue's pages of ClusterQueue, Cohort, LocalQueue, WorkloadPriorityClass and batch/v1 Job.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
PRIORITIES: Final = {"low": -10, "high": 100}
FLAVORS: Final = ("first", "second")
NODES: Final = 6
GPUS_OF_NODE: Final = 8
_SPACES: Final = ("alpha", "beta")
_JOBS_EVERY_S: Final = 0.35
_SWEEP_S: Final = 2.5
"""After which what was stopped for a moment goes on."""


class Act(Struct, frozen=True):
    """``kind`` and ``namespace`` say where ``body`` goes: whole for create, a merge patch for merge, empty for
    delete.
    """

    at_s: float
    verb: Literal["create", "merge", "delete"]
    kind: str
    name: str
    namespace: str = ""
    body: Json = {}

    def told(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.at_s:6.2f} s: {self.verb} {self.kind} {where} {msgspec.json.encode(self.body).decode()}"


class Story(Struct, frozen=True):
    """``acts`` are in the order of their times; those at 0 are there before the controller is."""

    seed: int
    fair: bool
    acts: tuple[Act, ...]


def told(seed: int, lasts_s: float) -> Story:
    """``lasts_s``: until its last act."""
    teller = _Teller(random.Random(seed))
    acts = [*teller.beginning(), *teller.going_on(lasts_s)]
    return Story(seed, teller.fair, tuple(sorted(acts, key=lambda each: each.at_s)))


class _Teller:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.fair = rng.random() < 0.3  # noqa: PLR2004 - a share
        self._cohorts = ["", "tree", *rng.sample(["tree-left", "tree-right"], rng.randint(0, 2))]
        self._queues = [f"queue-{number}" for number in range(rng.randint(2, 5))]
        self._flavors = FLAVORS[: rng.randint(1, 2)]
        self._locals: list[tuple[str, str]] = []
        self._specs: dict[str, Json] = {}
        self._jobs: list[tuple[str, str]] = []

    # -- what is there first -------------------------------------------------------------------------------------------

    def beginning(self) -> Iterator[Act]:
        for space in _SPACES:
            yield Act(0.0, "create", "Namespace", space, body={"metadata": {"labels": {}}})
        for name in self._flavors:
            labels = {} if len(self._flavors) == 1 else {"flavor": name}
            yield Act(0.0, "create", "ResourceFlavor", name, body={"spec": {"nodeLabels": labels} if labels else {}})
        for name, value in PRIORITIES.items():
            yield Act(0.0, "create", "WorkloadPriorityClass", name, body={"value": value})
        for name in self._cohorts[2:]:
            yield Act(0.0, "create", "Cohort", name, body={"spec": {"parentName": "tree"}})
        for name in self._queues:
            self._specs[name] = self._queue()
            yield Act(0.0, "create", "ClusterQueue", name, body={"spec": self._specs[name]})
            for space in self._rng.sample(_SPACES, self._rng.randint(1, 2)):
                self._locals.append((space, name))
                yield Act(0.0, "create", "LocalQueue", name, space, {"spec": {"clusterQueue": name}})

    def _queue(self) -> Json:
        rng, cohort = self._rng, self._rng.choice(self._cohorts)
        flavors = [{"name": name, "resources": [self._quota(bool(cohort))]} for name in self._flavors]
        preemption: Json = {
            "withinClusterQueue": rng.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": rng.choice(["Never", "LowerPriority", "Any"]),
        }
        if cohort and preemption["reclaimWithinCohort"] != "Never" and rng.random() < 0.3:  # noqa: PLR2004 - a share
            preemption["borrowWithinCohort"] = {"policy": "LowerPriority"}
        spec: Json = {
            "namespaceSelector": {},
            "queueingStrategy": rng.choice(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]),
            "preemption": preemption,
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        }
        if self.fair:
            spec["fairSharing"] = {"weight": str(rng.choice([1, 1, 2, 3]))}
        return {**spec, "cohortName": cohort} if cohort else spec

    def _quota(self, shares: bool) -> Json:
        rng = self._rng
        row: Json = {"name": GPU, "nominalQuota": str(rng.randint(0, 8))}
        if shares and rng.random() < 0.4:  # noqa: PLR2004 - a share
            row["borrowingLimit"] = str(rng.randint(0, 4))
        if shares and rng.random() < 0.4:  # noqa: PLR2004 - a share
            row["lendingLimit"] = str(rng.randint(0, int(row["nominalQuota"])))
        return row

    # -- what happens --------------------------------------------------------------------------------------------------

    def going_on(self, lasts_s: float) -> Iterator[Act]:
        at_s = 0.2
        while at_s < lasts_s:
            kind = self._rng.choices(
                (self._job, self._gone, self._requota, self._stopped, self._moved, self._raised, self._paused),
                (60, 8, 6, 5, 6, 5, 5),
            )[0]
            yield from kind(at_s)
            at_s += self._rng.expovariate(1 / _JOBS_EVERY_S)
        yield from self._swept(lasts_s)

    def _swept(self, at_s: float) -> Iterator[Act]:
        """Queues get enough quota for what there is at the end, then most jobs go: whoever is not started then was
        forgotten.
        """
        row = {"name": GPU, "nominalQuota": "12"}
        flavors = [{"name": each, "resources": [row]} for each in self._flavors]
        patch = {"spec": {"resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}], "stopPolicy": "None"}}
        for name in self._queues:
            yield Act(at_s, "merge", "ClusterQueue", name, body=patch)
        for space, name in self._rng.sample(self._jobs, len(self._jobs) * 2 // 3):
            yield Act(at_s + _SWEEP_S, "delete", "Job", name, space)

    def _job(self, at_s: float) -> Iterator[Act]:
        rng, (space, queue) = self._rng, self._rng.choice(self._locals)
        name, pods = f"job-{len(self._jobs)}", rng.choice([1, 1, 1, 2, 3])
        self._jobs.append((space, name))
        labels = {QUEUE: queue}
        if rng.random() < 0.5:  # noqa: PLR2004 - a share
            # Alike in all, so that their order can be judged.
            meta = {"labels": labels, "annotations": {"tessera.dev/runtime": "3s"}}
            yield self._made(
                at_s, space, name, 1, meta, {"restartPolicy": "Never", "containers": [_container("main", 1)]}
            )
            return
        if rng.random() < 0.4:  # noqa: PLR2004 - a share
            labels[PRIORITY] = rng.choice(tuple(PRIORITIES))
        notes = {"tessera.dev/runtime": f"{rng.choice([1, 2, 3, 5, 8, 600])}s"}
        containers = [_container("main", rng.choice([1, 1, 2, 4]))]
        pod: Json = {"restartPolicy": "Never", "containers": containers}
        if rng.random() < 0.2:  # noqa: PLR2004 - a share
            pod["initContainers"] = [_container("helper", rng.randint(1, 3))]
            if rng.random() < 0.5:  # noqa: PLR2004 - a share
                pod["initContainers"][0]["restartPolicy"] = "Always"
        if pods > 1 and rng.random() < 0.3:  # noqa: PLR2004 - a share
            notes["kueue.x-k8s.io/job-min-parallelism"] = str(rng.randint(1, pods - 1))
        yield self._made(at_s, space, name, pods, {"labels": labels, "annotations": notes}, pod)

    @staticmethod
    def _made(at_s: float, space: str, name: str, pods: int, meta: Json, pod: Json) -> Act:
        spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": {"spec": pod}}
        return Act(at_s, "create", "Job", name, space, {"metadata": meta, "spec": spec, "status": {}})

    def _any_job(self) -> tuple[str, str] | None:
        return self._rng.choice(self._jobs) if self._jobs else None

    def _gone(self, at_s: float) -> Iterator[Act]:
        if (found := self._any_job()) is not None:
            yield Act(at_s, "delete", "Job", found[1], found[0])

    def _requota(self, at_s: float) -> Iterator[Act]:
        name = self._rng.choice(self._queues)
        shares = "cohortName" in self._specs[name]
        rows = [{"name": each, "resources": [self._quota(shares)]} for each in self._flavors]
        groups = [{"coveredResources": [GPU], "flavors": rows}]
        yield Act(at_s, "merge", "ClusterQueue", name, body={"spec": {"resourceGroups": groups}})

    def _stopped(self, at_s: float) -> Iterator[Act]:
        """For a moment."""
        name, policy = self._rng.choice(self._queues), self._rng.choice(["Hold", "HoldAndDrain"])
        yield Act(at_s, "merge", "ClusterQueue", name, body={"spec": {"stopPolicy": policy}})
        yield Act(
            at_s + self._rng.uniform(0.2, 2.0), "merge", "ClusterQueue", name, body={"spec": {"stopPolicy": "None"}}
        )

    def _moved(self, at_s: float) -> Iterator[Act]:
        """To another queue of its namespace: only one that waits goes."""
        found = self._any_job()
        others = [queue for space, queue in self._locals if found is not None and space == found[0]]
        if found is not None and others:
            patch = {"metadata": {"labels": {QUEUE: self._rng.choice(others)}}}
            yield Act(at_s, "merge", "Job", found[1], found[0], patch)

    def _raised(self, at_s: float) -> Iterator[Act]:
        if (found := self._any_job()) is not None:
            patch = {"metadata": {"labels": {PRIORITY: self._rng.choice(tuple(PRIORITIES))}}}
            yield Act(at_s, "merge", "Job", found[1], found[0], patch)

    def _paused(self, at_s: float) -> Iterator[Act]:
        """Its Workload is made inactive, and active again: ``name`` is the job's."""
        if (found := self._any_job()) is not None:
            yield Act(at_s, "merge", "WorkloadOf", found[1], found[0], {"spec": {"active": False}})
            again_s = at_s + self._rng.uniform(0.2, 2.0)
            yield Act(again_s, "merge", "WorkloadOf", found[1], found[0], {"spec": {"active": True}})


def _container(name: str, gpus: int) -> Json:
    return {"name": name, "image": "i", "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}}
