"""What has to be so in a calm, by what API server and hardware say: nothing is lost, all is settled. Pure.

The controller and the agent are not asked: what they know may be what is wrong. Each finding is one line, the same line
for the same wrong, so that a wrong that stays is counted once. What may not be at any time is judged by the history of
the whole campaign: see ``hack.chaos.verdicts``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType, Self

Json = dict[str, Any]
JobUid = NewType("JobUid", str)


@dataclass(frozen=True)
class Seen:
    """One look. ``accepted``: names of the jobs that the API server said yes to, and that the runner did not delete.

    ``unwell``: GPUs and daemons that are not as they were at the start.
    """

    accepted: Mapping[JobUid, str] = field(default_factory=dict)
    jobs: Sequence[Json] = ()
    workloads: Sequence[Json] = ()
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
    """Everything that is wrong now."""
    return Findings(lost=set(_lost(seen)), unsettled={*_unsettled(seen), *seen.unwell})


def is_true(given: Json, type_: str) -> bool:
    found = given.get("status", {}).get("conditions", [])
    return any(one["type"] == type_ and one["status"] == "True" for one in found)


def _of_jobs(workloads: Iterable[Json]) -> dict[str, list[Json]]:
    """Workloads by the uid of the job that they belong to."""
    by_job: dict[str, list[Json]] = {}
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences", ()):
            by_job.setdefault(owner["uid"], []).append(workload)
    return by_job


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
