"""Whatever happens to a job, in whatever order, with the controller cut off anywhere."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.jobs.framework import names
from controller.jobs.framework.actions import Refuse, StartJob, StopJob
from controller.jobs.framework.raw import Json
from inventory.api.names import FULL_PARALLELISM
from kube.testing.store import copied
from tests.support.controller.jobmodel import ConflictError, InvalidError, World, job


def tolerated(world: World, patch: Json) -> bool:
    try:
        world.edit(patch)
    except (ConflictError, InvalidError):
        return False
    return True


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of everything inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in inside for path in paths(item, (*at, key)))]


def whole() -> Json:
    """A job with all that a reader may trip over."""
    body = job(parallelism=3, completions=3, completionMode="Indexed")
    body["metadata"]["annotations"] = {
        names.MIN_PARALLELISM: "2",
        names.ELASTIC_JOB: "false",
        FULL_PARALLELISM: "4",
    }
    body["metadata"]["labels"][names.PRIORITY_CLASS] = "high"
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": False}
    ]
    body["status"] = {
        "active": 1,
        "succeeded": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Suspended", "status": "True", "message": ""}],
        "uncountedTerminatedPods": {"succeeded": ["a"]},
    }
    return body


JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2**70, 1.5, "", "x" * 300, "\n", [], [None], {}, {"a": {}}, [{"type": 1}]]
)


@settings(max_examples=40, deadline=None)
@given(path=st.sampled_from(paths(whole())), junk=JUNK, running=st.booleans(), admitted=st.booleans())
def test_nothing_that_stands_in_a_job_throws(
    path: tuple[Any, ...], junk: Any, *, running: bool, admitted: bool
) -> None:
    world = World(job(parallelism=3, completions=3))
    world.settle()
    if admitted:
        world.admit(world.only)
    body = whole()
    body["spec"]["suspend"] = not running
    holder: Any = {"": body}
    for key in ("", *path)[:-1]:
        holder = holder[key]
    holder[("", *path)[-1]] = junk
    world.job = body if path else {"junk": junk}
    for action in world.next_actions():
        assert not isinstance(action, Refuse) or (action.sentence and "\n" not in action.sentence)


class Life(RuleBasedStateMachine):
    """``asked`` is what a person last asked for: the template, and how many pods."""

    @initialize(
        minor=st.sampled_from([35, 36]),
        parallelism=st.integers(2, 5),
        completions=st.integers(1, 6),
        partial=st.booleans(),
        suspend=st.booleans(),
    )
    def begin(self, *, minor: int, parallelism: int, completions: int, partial: bool, suspend: bool) -> None:
        body = job(parallelism=parallelism, completions=completions, suspend=suspend)
        if partial:
            body["metadata"]["annotations"] = {names.MIN_PARALLELISM: "1"}
        self.world = World(body, minor=minor)
        self.asked: tuple[Json, int] = (self.world.template(), parallelism)
        self.seen: Json = self.world.job or {}

    # The controller, in any state of health.

    @rule(cut=st.integers(1, 3))
    def reconcile_and_crash(self, cut: int) -> None:
        self.checked(self.world.step(crash_after=cut))

    @rule()
    def reconcile(self) -> None:
        self.checked(self.world.step())

    @rule()
    def look(self) -> None:
        assert self.world.job is not None
        self.seen = copied(self.world.job)

    @rule()
    def reconcile_what_was_seen_before(self) -> None:
        """The watch of jobs lags behind: what is decided must not get through where it is wrong."""
        assert self.world.job is not None
        before = copied(self.world.job)
        actions = self.world.step(job_=self.seen)
        started = any(isinstance(action, StartJob) for action in actions)
        if started and before != self.seen:
            assert self.world.job["spec"] == before["spec"]
        self.written(actions)

    def checked(self, actions: Any) -> None:
        if any(isinstance(action, StartJob) for action in actions):
            assert any(self.world.has(name, "Admitted") for name in self.world.live())
        self.written(actions)

    def written(self, actions: Any) -> None:
        """The view of the job is never older than the controller's own last write."""
        if any(isinstance(action, StartJob | StopJob) for action in actions):
            self.look()

    # The others.

    @rule()
    def job_controller(self) -> None:
        self.world.job_controller()

    @rule()
    def pod_succeeds(self) -> None:
        if not self.world.is_finished():
            self.world.pod_succeeds()

    @rule(flavor=st.sampled_from(["a100", "h100"]), fewer=st.integers(0, 4))
    def admit(self, flavor: str, fewer: int) -> None:
        for name in self.world.live():
            if "admission" not in self.world.workloads[name].get("status", {}):
                pod_set = self.world.workloads[name]["spec"]["podSets"][0]
                least = pod_set.get("minCount", pod_set["count"])
                self.world.admit(name, flavor=flavor, count=max(least, pod_set["count"] - fewer))

    @rule(reason=st.sampled_from(["Preempted", "PodsReadyTimeout"]))
    def evict(self, reason: str) -> None:
        for name in self.world.live():
            if "admission" in self.world.workloads[name].get("status", {}):
                self.world.evict(name, reason)

    @rule()
    def delete_workload(self) -> None:
        for name in self.world.live():
            self.world.delete_workload(name)

    @rule(value=st.booleans())
    def somebody_suspends_or_resumes(self, value: bool) -> None:
        tolerated(self.world, {"spec": {"suspend": value}})

    @rule(parallelism=st.integers(2, 5))
    def somebody_resizes(self, parallelism: int) -> None:
        assert self.world.job is not None
        if self.world.job["spec"]["parallelism"] != parallelism:
            tolerated(self.world, {"spec": {"parallelism": parallelism}})
            self.asked = (self.asked[0], parallelism)

    @precondition(lambda self: names.POD_SET not in self.world.template()["metadata"]["labels"])
    @rule(key=st.sampled_from(["team", "zone"]), value=st.sampled_from(["a", "b", None]))
    def somebody_edits_the_template(self, key: str, value: str | None) -> None:
        if tolerated(self.world, {"spec": {"template": {"metadata": {"labels": {key: value}}}}}):
            self.asked = (self.world.template(), self.asked[1])

    @rule(queue=st.sampled_from(["q", "r"]))
    def somebody_changes_the_queue(self, queue: str) -> None:
        if self.world.suspended():
            tolerated(self.world, {"metadata": {"labels": {names.QUEUE_NAME: queue}}})

    # What holds.

    @invariant()
    def never_two_workloads(self) -> None:
        if hasattr(self, "world"):
            assert len(self.world.live()) <= 1

    @rule()
    def it_comes_to_rest(self) -> None:
        self.world.settle()
        self.look()  # as after every write of its own
        assert not self.world.refusals
        if self.world.is_finished():
            assert not self.world.live()
            return
        (name,) = self.world.live()
        let_in = self.world.has(name, "Admitted") and not self.world.has(name, "Evicted")
        assert self.world.suspended() is not let_in
        if not let_in:
            assert self.world.job is not None
            assert "admission" not in self.world.workloads[name].get("status", {})
            assert (self.world.template(), self.world.job["spec"]["parallelism"]) == self.asked
            assert FULL_PARALLELISM not in self.world.job["metadata"].get("annotations", {})
            assert (
                self.world.workloads[name]["spec"]["queueName"]
                == self.world.job["metadata"]["labels"][names.QUEUE_NAME]
            )

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.it_comes_to_rest()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, report_multiple_bugs=False)
