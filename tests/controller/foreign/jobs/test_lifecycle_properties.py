"""Random Volcano Jobs under random pods, users, evictions and deaths of the controller."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.foreign.jobs.lifecycle import FINAL
from tests.support.controller.volcanoworld import VolcanoWorld, policy, task

EVENTS = ("PodFailed", "PodEvicted", "PodPending", "TaskCompleted", "TaskFailed", "Unknown", "*")
ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "SyncJob",
)
POLICIES = st.lists(
    st.one_of(
        st.builds(policy, st.sampled_from(ACTIONS), st.sampled_from(EVENTS)),
        st.builds(lambda action, code: policy(action, exitCode=code), st.sampled_from(ACTIONS), st.integers(1, 2)),
        st.builds(lambda action: policy(action, "PodPending", timeout="30s"), st.sampled_from(ACTIONS)),
    ),
    max_size=2,
)


@st.composite
def worlds(draw: st.DrawFn) -> VolcanoWorld:
    first = task("a", draw(st.integers(1, 3)), policies=draw(POLICIES))
    more: dict[str, Any] = draw(st.sampled_from([{}, {"dependsOn": {"name": ["a"]}}, {"minAvailable": 0}]))
    second = task("b", 2, partitionPolicy={"totalPartitions": 2, "partitionSize": 1}, **more)
    least = draw(st.sampled_from([0, 1, 2, 3, first["replicas"] + 2]))
    spec = draw(st.sampled_from([{}, {"minSuccess": 1}, {"ttlSecondsAfterFinished": 10}]))
    return VolcanoWorld(
        first, second, policies=draw(POLICIES), minAvailable=least, maxRetry=draw(st.integers(0, 3)), **spec
    )


def disturb(draw: st.DrawFn, world: VolcanoWorld) -> None:
    """One thing that somebody else does."""
    what = draw(
        st.sampled_from(["pod", "pod", "pod", "place", "evict", "command", "scale", "time", "gone", "lost", "reclaim"])
    )
    name = draw(st.sampled_from(sorted(world.pods))) if world.pods else ""
    match what:
        case "pod" if name and not world.pods[name].is_finished:
            phase = draw(st.sampled_from(["Running", "Running", "Succeeded", "Failed", "Pending"]))
            extra = {"restarts": draw(st.integers(0, 2))} if phase == "Running" else {}
            world.becomes(name, phase, exit_code=draw(st.integers(0, 2)) if phase == "Failed" else None, **extra)
        case "place" if world.placed is None and not world.alive and world.phase in ("Pending", ""):
            world.start()
        case "evict":
            world.placed = None
        case "command":
            world.command(draw(st.sampled_from(["AbortJob", "ResumeJob", "RestartJob", "TerminateJob", "Nonsense"])))
        case "scale":
            world.scale("b", draw(st.integers(1, 4)))
        case "reclaim" if name and world.pods[name].is_above:
            world.pods[name] = msgspec.structs.replace(world.pods[name], deleted_s=world.now_s, is_given_up=True)
        case "gone" if name:
            world.delete(name)
        case "lost" if name:
            world.vanish(name)
        case "time":
            world.now_s += draw(st.sampled_from([1, 20, 40]))


@given(st.data())
@settings(max_examples=40)
def test_every_decision_keeps_the_invariants_and_the_controller_comes_to_rest(data: st.DataObject) -> None:
    world = data.draw(worlds())
    draw: Any = data.draw
    for _ in range(data.draw(st.integers(1, 25))):
        disturb(draw, world)
        world.step(only=data.draw(st.sampled_from([None, 0, 1, 2])))
    world.finish()
    if world.phase in (*FINAL, "Aborted"):
        assert world.alive == []
    assert world.status.terminating == 0
    assert world.status.retry_count <= max(1, world.plan.max_retry)


@given(st.data())
@settings(max_examples=30)
def test_evictions_alone_never_spend_a_retry(data: st.DataObject) -> None:
    every = [policy("RestartJob", "PodEvicted"), policy("AbortJob", "Unknown")]
    world = VolcanoWorld(task("a", 2), task("b", 2, dependsOn={"name": ["a"]}), policies=every)
    for _ in range(data.draw(st.integers(1, 12))):
        if world.placed is None:
            world.finish().start()
        elif data.draw(st.booleans()):
            world.placed = None
        else:
            for name, pod in list(world.pods.items()):
                if not pod.is_finished:
                    world.becomes(name, data.draw(st.sampled_from(["Running", "Pending"])))
        world.step(only=data.draw(st.sampled_from([None, 1, 3])))
    assert (world.finish().status.retry_count, world.status.version) == (0, 0)


@given(st.data())
@settings(max_examples=30)
def test_a_controller_killed_at_any_write_ends_where_one_does_that_lives(data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS))
    world = VolcanoWorld(task("a", 2), task("b", 2), policies=[policy(action, "PodFailed")], maxRetry=2).run()
    world.fail(data.draw(st.sampled_from(sorted(world.pods))))
    lives, dies = _copy(world).finish(), _copy(world)
    for writes in data.draw(st.lists(st.integers(1, 3), max_size=6)):
        dies.step(only=writes)
    dies.finish()
    assert dies.status == lives.status
    assert {name: pod.version for name, pod in dies.pods.items()} == {
        name: pod.version for name, pod in lives.pods.items()
    }


def _copy(world: VolcanoWorld) -> VolcanoWorld:
    other = VolcanoWorld()
    other.__dict__.update(vars(world))
    other.pods = {name: msgspec.structs.replace(pod) for name, pod in world.pods.items()}
    other.commands = list(world.commands)
    return other
