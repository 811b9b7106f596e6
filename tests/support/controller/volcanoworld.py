"""A Volcano Job and its pods in a world without an API server: decisions are applied write by write, or only the first
of them, as where the controller is killed in between.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from controller.foreign.jobs.gang import NewPod, Seen, minimums, with_up
from controller.foreign.jobs.lifecycle import Decision, decide, ended, validate
from controller.foreign.jobs.placement import Placement, TaskPlacement
from controller.foreign.jobs.podfacts import PodFacts
from controller.foreign.jobs.spec import JobPlan, job_plan
from controller.foreign.objects.volcanojob import JOB_VERSION, VolcanoCommand, VolcanoJob, VolcanoJobStatus
from controller.jobs.framework.names import WORKLOAD
from controller.jobs.framework.podsets import PodSetInfo
from controller.objects.decode import decode

MINIMUM = "the-minimum"
"""The job's Workload."""
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def task(name: str, replicas: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": TEMPLATE, **more}


def policy(action: str, *events: str, **more: Any) -> dict[str, Any]:
    return {"action": action, **({"events": list(events)} if events else {}), **more}


def vcjob(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "u1", "resourceVersion": "1"},
        "spec": {"tasks": list(tasks), **spec},
    }


def plan_of(job: dict[str, Any]) -> JobPlan:
    return job_plan(decode(job, VolcanoJob))


class VolcanoWorld:
    """``pods`` by name. The clock is ``now_s``. Names of pods are those that the controller gives."""

    def __init__(self, *tasks: dict[str, Any], **spec: Any) -> None:
        self.job = vcjob(*tasks, **spec)
        self.status = VolcanoJobStatus()
        self.pods: dict[str, PodFacts] = {}
        self.placed: Placement | None = None
        self.commands: list[VolcanoCommand] = []
        self.now_s = 1_000_000.0
        self.expired = False
        self._made = 0

    @property
    def plan(self) -> JobPlan:
        return plan_of(self.job)

    @property
    def phase(self) -> str:
        return self.status.state.phase

    @property
    def phases(self) -> list[str]:
        return [condition.status for condition in self.status.conditions]

    @property
    def alive(self) -> list[str]:
        return sorted(pod.name for pod in self.pods.values() if not pod.is_finished)

    def seen(self) -> Seen:
        pods = tuple(self.pods.values())
        return Seen(plan=self.plan, status=self.status, pods=pods, placed=self.placed, commands=tuple(self.commands))

    # -- what the controller does

    def decide(self) -> Decision:
        seen = self.seen()
        decision = decide(seen, self.now_s)
        validate(seen, decision)
        return decision

    def writes(self, decision: Decision) -> Iterator[None]:
        """Each ``next`` carries out one write."""
        for name, retry in decision.marks.items():
            self.pods[name] = msgspec.structs.replace(self.pods[name], marked=retry)
            yield
        if decision.status != self.status:
            self.status = decision.status
            yield
        for name in decision.deleted:
            self.delete(name)
            yield
        for new in decision.created:
            self._create(new)
            yield
        for command in decision.read:
            self.commands.remove(command)
            yield
        if decision.expired and not self.expired:
            self.expired = True
            yield

    def step(self, only: int | None = None) -> int:
        """Decide and write, the first ``only`` writes where that is given. How many were made."""
        made = 0
        decision = self.decide()
        if (placed := ended(self.seen(), decision)) is not None and only != 0:
            self.placed = placed
            return 1
        if (placed := with_up(self.seen())) is not None and only != 0:
            self.placed = placed
            return 1
        writes = self.writes(decision)
        while only is None or made < only:
            if next(writes, self) is self:
                break
            made += 1
        return made

    def settle(self) -> "VolcanoWorld":
        """Until the controller has nothing to do any more."""
        for _ in range(50):
            if not self.step():
                return self
        raise AssertionError(f"no end: {self.decide()}")

    def finish(self) -> "VolcanoWorld":
        """As ``settle``, and all pods that are being deleted go."""
        for _ in range(50):
            self.settle()
            leaving = [pod.name for pod in self.pods.values() if pod.is_terminating]
            if not leaving:
                return self
            for name in leaving:
                self.vanish(name)
        raise AssertionError("no end")

    def _create(self, new: NewPod) -> None:
        pod = f"train-{new.task}-{new.index}"
        assert pod not in self.pods
        self._made += 1
        self.pods[pod] = PodFacts(
            name=pod,
            uid=f"p{self._made}",
            task=new.task,
            index=new.index,
            version=self.status.version,
            created_s=None if new.above else self.now_s,
            is_above=bool(new.above),
        )

    # -- what others do

    def start(self, **counts: int) -> "VolcanoWorld":
        """Admit the job: the pods that start together, or ``counts`` by task."""
        given = {**minimums(self.plan), **counts}
        self.placed = {
            name: TaskPlacement(info=PodSetInfo(name=name, count=count, own_annotations={WORKLOAD: MINIMUM}))
            for name, count in given.items()
        }
        return self.settle()

    def run(self, **counts: int) -> "VolcanoWorld":
        """Admitted, and all pods that start together run."""
        self.start(**counts)
        for _ in range(len(self.plan.tasks)):
            for name, pod in list(self.pods.items()):
                if not pod.is_above:
                    self.becomes(name, "Running")
            self.settle()
        return self

    def join(self, *names: str) -> "VolcanoWorld":
        """Pods above the minimum are admitted, and run."""
        for name in names:
            assert self.pods[name].is_above
            self.becomes(name, "Running", created_s=self.now_s)
        return self.settle()

    def reclaim(self, name: str) -> "VolcanoWorld":
        """The queue takes back what a pod above the minimum has."""
        self.pods[name] = msgspec.structs.replace(self.pods[name], deleted_s=self.now_s, is_given_up=True)
        return self.settle()

    def becomes(self, name: str, phase: str, **more: Any) -> "VolcanoWorld":
        ended = self.now_s if phase in ("Succeeded", "Failed") else None
        changes = {"phase": phase, "is_ready": phase == "Running", "finished_s": ended, **more}
        self.pods[name] = msgspec.structs.replace(self.pods[name], **changes)
        return self

    def fail(self, name: str, exit_code: int = 1) -> "VolcanoWorld":
        return self.becomes(name, "Failed", exit_code=exit_code)

    def delete(self, name: str) -> None:
        if not self.pods[name].is_terminating:
            self.pods[name] = msgspec.structs.replace(self.pods[name], deleted_s=self.now_s)

    def vanish(self, name: str) -> None:
        del self.pods[name]

    def command(self, action: str) -> "VolcanoWorld":
        body = {"metadata": {"name": f"c{len(self.commands)}", "namespace": "team"}, "action": action}
        self.commands.append(decode(body, VolcanoCommand))
        return self

    def scale(self, name: str, replicas: int) -> "VolcanoWorld":
        tasks = [{**each, "replicas": replicas} if each["name"] == name else each for each in self.job["spec"]["tasks"]]
        self.job = {**self.job, "spec": {**self.job["spec"], "tasks": tasks}}
        return self
