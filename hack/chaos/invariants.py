"""What may never be, judged by what API server, kubelet, claims and NVML said in a calm. Pure.

The controller and the agent are not asked: what they know may be what is wrong. Each finding is one line, the same line
for the same wrong, so that a wrong that stays is counted once. Amounts are whole numbers of devices or percents.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NewType, Self

Json = dict[str, Any]
JobUid = NewType("JobUid", str)
JOB_UID: Final = "batch.kubernetes.io/controller-uid"
OVER: Final = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Seen:
    """One look. ``accepted``: names of the jobs that the API server said yes to, and that the runner did not delete.

    ``twice``: GPUs or parts of them in two hands. ``unwell``: GPUs and daemons that are not as they were at the start.
    """

    accepted: Mapping[JobUid, str] = field(default_factory=dict)
    jobs: Sequence[Json] = ()
    workloads: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    queues: Sequence[Json] = ()
    twice: Iterable[str] = ()
    unwell: Iterable[str] = ()


@dataclass
class Findings:
    lost: set[str] = field(default_factory=set)
    doubled: set[str] = field(default_factory=set)
    over_quota: set[str] = field(default_factory=set)
    unsettled: set[str] = field(default_factory=set)

    def __ior__(self, other: "Findings") -> Self:
        self.lost |= other.lost
        self.doubled |= other.doubled
        self.over_quota |= other.over_quota
        self.unsettled |= other.unsettled
        return self

    @property
    def lines(self) -> list[str]:
        kinds = {"lost": self.lost, "doubled": self.doubled, "quota": self.over_quota, "unsettled": self.unsettled}
        return [f"{kind}: {line}" for kind, lines in kinds.items() for line in sorted(lines)]


def judge(seen: Seen) -> Findings:
    """Everything that is wrong. A pod that runs unadmitted has what no quota was given for: it counts as over quota."""
    return Findings(
        lost=set(_lost(seen)),
        doubled=set(seen.twice),
        over_quota={*over_quota(seen.workloads, seen.queues), *_unadmitted(seen)},
        unsettled={*_unsettled(seen), *seen.unwell},
    )


def is_true(given: Json, type_: str) -> bool:
    found = given.get("status", {}).get("conditions", [])
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def over_quota(workloads: Iterable[Json], queues: Iterable[Json]) -> Iterator[str]:
    """What ClusterQueues hold beyond what their cohort has, and a queue without cohort beyond its own."""
    held: Counter[tuple[str, str, str]] = Counter()
    given: Counter[tuple[str, str, str]] = Counter()
    tree: dict[str, str] = {}
    for queue in queues:
        name = queue["metadata"]["name"]
        tree[name] = queue["spec"].get("cohortName") or f"{name} alone"
        for group in queue["spec"].get("resourceGroups", ()):
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    given[tree[name], flavor["name"], resource["name"]] += int(resource["nominalQuota"])
    for workload in workloads:
        for queue_name, flavor_name, resource_name, amount in _usage(workload):
            held[tree.get(queue_name, f"{queue_name} alone"), flavor_name, resource_name] += amount
    for key, amount in sorted(held.items()):
        if amount > given[key]:
            yield f"{key[0]}: {amount} of {key[2]} in flavor {key[1]} are held, {given[key]} may be"


def _usage(workload: Json) -> Iterator[tuple[str, str, str, int]]:
    """Queue, flavor, resource, amount of each; none once it is finished."""
    admission = workload.get("status", {}).get("admission")
    if not admission or is_true(workload, "Finished"):
        return
    ended = {each["name"]: int(each["count"]) for each in workload["status"].get("reclaimablePods", ())}
    for pods in admission["podSetAssignments"]:
        count = int(pods["count"])
        left = count - min(ended.get(pods["name"], 0), count)
        for resource, flavor in pods.get("flavors", {}).items():
            amount = int(pods.get("resourceUsage", {}).get(resource, 0))
            yield admission["clusterQueue"], flavor, resource, amount * left // max(count, 1)


def _of_jobs(workloads: Iterable[Json]) -> dict[str, list[Json]]:
    """Workloads by the uid of the job that they belong to."""
    found: dict[str, list[Json]] = {}
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences", ()):
            found.setdefault(owner["uid"], []).append(workload)
    return found


def _lost(seen: Seen) -> Iterator[str]:
    """Jobs that are gone or were given up, and those that run without a Workload. One that waits is not yet lost."""
    jobs = {job["metadata"]["uid"]: job for job in seen.jobs}
    workloads = _of_jobs(seen.workloads)
    for uid, name in seen.accepted.items():
        job = jobs.get(uid)
        if job is None:
            yield f"job {name} was accepted and is gone"
        elif not is_true(job, "Complete") and not job["spec"].get("suspend") and uid not in workloads:
            yield f"job {name} runs and has no Workload"
        elif is_true(job, "Failed"):
            yield f"job {name} was given up"


def _unadmitted(seen: Seen) -> Iterator[str]:
    """Pods of the queues' jobs that are bound and have not ended, of a job whose Workload is not admitted."""
    workloads = _of_jobs(seen.workloads)
    queued = {job["metadata"]["uid"] for job in seen.jobs}
    for pod in seen.pods:
        uid = pod["metadata"].get("labels", {}).get(JOB_UID, "")
        live = pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in OVER
        if uid not in queued or not live or "deletionTimestamp" in pod["metadata"]:
            continue
        if not any(is_true(one, "Admitted") for one in workloads.get(uid, ())):
            yield f"pod {pod['metadata']['name']} runs and is not admitted"


def _unsettled(seen: Seen) -> Iterator[str]:
    """Jobs of the load end within seconds: in a calm each is over. What the Job controller's back-off delays is not the
    queue's: its pods failed, and none is there. Nor is what waits for the same resource, which that job holds.
    """
    workloads = _of_jobs(seen.workloads)
    delayed = frozenset().union(*(_resources(job) for job in seen.jobs if _is_delayed(job)))
    for job in seen.jobs:
        meta = job["metadata"]
        mine = workloads.get(meta["uid"], [])
        if is_true(job, "Complete"):
            if any(not is_true(one, "Finished") for one in mine):
                yield f"job {meta['name']} is complete, its Workload is not finished"
        elif job["spec"].get("suspend"):
            if delayed.isdisjoint(_resources(job)):
                yield f"job {meta['name']} waits"
        elif not any(is_true(one, "Admitted") for one in mine):
            yield f"job {meta['name']} runs and its Workload is not admitted"
        elif not _is_delayed(job):
            yield f"job {meta['name']} is not over"


def _is_delayed(job: Json) -> bool:
    """Whether its pods failed, and the Job controller makes others later."""
    status = job.get("status", {})
    runs = not job["spec"].get("suspend") and not is_true(job, "Complete")
    return bool(runs and status.get("failed") and not status.get("active"))


def _resources(job: Json) -> frozenset[str]:
    """What its pods ask for; the same word for all that ask by claim."""
    containers = job["spec"].get("template", {}).get("spec", {}).get("containers", ())
    asked = [each.get("resources", {}) for each in containers]
    names = {name for each in asked for name in each.get("limits", ())}
    return frozenset(names | ({"claims"} if any("claims" in each for each in asked) else set()))


def last_line(seed: int, kills: int, kinds: int, found: Findings) -> str:
    return (
        f"chaos: seed {seed}, {kills} kills, {kinds} kinds of fault, {len(found.lost)} lost, "
        f"{len(found.doubled)} doubled, {len(found.over_quota)} over quota, {len(found.unsettled)} unsettled"
    )
