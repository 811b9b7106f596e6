"""A preemptor that waits for its victims is not tried anew in every cycle; nothing comes of it but the time saved."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engine.config import BeyondPeer, EngineConfig, FairSharing
from controller.engine.entry import Entry
from controller.engine.nomination import Nominator
from controller.engine.verdicts import Verdicts
from controller.objects.meta import KubernetesObject
from tests.controller.engine.test_engine_properties import QUEUES, Act, Run, arrives, begun, cycles, with_one
from tests.controller.engine.world import World, cluster_queue, flavor, local_queue, workload

CLAIMS = BeyondPeer(reserve_for_preemptor=True)
WITHIN = {"withinClusterQueue": "LowerPriority"}


PREEMPTING = (
    WITHIN,
    {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"},
    {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    },
)


@st.composite
def full_queues(draw: st.DrawFn) -> tuple[list[KubernetesObject], list[Act]]:
    """Queues in which the lowest use all there is, and what happens then: many are preempted, few leave at a time."""
    policy = draw(st.sampled_from(PREEMPTING))
    given: list[KubernetesObject] = [flavor()]
    filling: list[Act] = []
    for name in QUEUES:
        nominal, cohort = draw(st.integers(3, 6)), draw(st.sampled_from(("", "one", "one")))
        given += [cluster_queue(name, nominal, cohort=cohort, preemption=policy), local_queue(name)]
        filling += [arrives(name, 1, 0, None, None)] * 7
    filling.append(lambda run: run.world.settle() and None)
    arriving = st.builds(
        arrives, st.sampled_from(QUEUES), st.integers(1, 5), st.integers(0, 2), st.none() | st.just(1), st.none()
    )
    stopping = st.sampled_from((stops_one, stops_one, cycles, lambda run: run.world.settle() and None))
    leaving = st.builds(with_one, st.sampled_from((World.finish, World.delete)), st.integers(0, 9), held=st.just(True))
    return given, filling + draw(st.lists(arriving | stopping | stopping | leaving, min_size=8, max_size=25))


def stops_one(run: Run) -> None:
    run.world.stop_evicted(1)


@given(full_queues(), st.booleans(), st.sampled_from((1, 1, 2, None)))
@settings(max_examples=60, deadline=None)
def test_what_is_remembered_decides_as_what_is_found_anew(
    story: tuple[list[KubernetesObject], list[Act]], fair: bool, at_once: int | None
) -> None:
    given, history = story
    logs = []
    for remembers in (True, False):
        run = begun(EngineConfig(fair_sharing=FairSharing() if fair else None, beyond=CLAIMS), given)
        with patch.object(Verdicts, "recall", Verdicts.recall if remembers else lambda *_: False):
            for act in history:
                act(run)
            run.world.settle()
            for _ in range(40):
                if not run.world.stop_evicted(at_once):
                    break
                run.world.settle()
        # A verdict that others have overtaken costs its preemptor one more word of waiting.
        logs.append([one for one in run.world.log if one[0] != "Pending"])
    assert logs[0] == logs[1]


def two_queues() -> World:
    world = World(EngineConfig(beyond=CLAIMS))
    world.put(flavor())
    for name in ("a", "b"):
        world.put(cluster_queue(name, 4, preemption=WITHIN), local_queue(name))
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    assert world.condition("low", "Evicted") == "True/Preempted"
    return world


def nominated(world: World) -> list[str]:
    """Who is tried in the next cycles."""
    tried: list[str] = []
    nominate = Nominator.nominate

    def noting(self: Nominator, entry: Entry, now_s: float) -> bool:
        tried.append(entry.key)
        return nominate(self, entry, now_s)

    with patch.object(Nominator, "nominate", noting):
        world.settle()
    return tried


def test_a_preemptor_is_not_tried_while_its_victims_are_still_there() -> None:
    world = two_queues()
    world.put(workload("elsewhere", "b", 1))
    assert nominated(world) == ["ns/elsewhere"]
    world.stop_evicted()
    assert nominated(world) == ["ns/preemptor", "ns/low"]
    assert world.running() == {"preemptor", "elsewhere"}


def test_victims_that_leave_one_by_one_do_not_make_it_tried_anew_before_the_last() -> None:
    world = World(EngineConfig(beyond=CLAIMS))
    world.put(flavor(), cluster_queue("a", 6, preemption=WITHIN), local_queue("a"))
    world.put(*(workload(f"low-{number}", "a", 2) for number in range(3)))
    world.settle()
    world.put(workload("preemptor", "a", 6, priority=1))
    world.settle()
    for number in range(2):
        world.stop_evicted(limit=1)
        assert "ns/preemptor" not in nominated(world), f"{number + 1} gone"
        (verdict,) = world.engine.beyond._verdicts._verdicts.values()
        assert len(verdict.targets) == 2 - number
    world.stop_evicted(limit=1)
    assert "ns/preemptor" in nominated(world)
    assert world.running() == {"preemptor"}


def test_a_preemptor_is_tried_anew_when_somebody_else_has_left_with_a_victim() -> None:
    world = World(EngineConfig(beyond=CLAIMS))
    world.put(flavor(), cluster_queue("a", 6, preemption=WITHIN), local_queue("a"))
    world.put(*(workload(f"low-{number}", "a", 2) for number in range(2)), workload("equal", "a", 2, priority=1))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    world.stop_evicted(limit=1)
    world.finish("equal")
    assert "ns/preemptor" in nominated(world)
    assert "preemptor" in world.running()


def test_a_preemptor_is_tried_anew_when_its_queue_gets_more_quota() -> None:
    world = two_queues()
    world.put(cluster_queue("a", 8, preemption=WITHIN))
    assert "ns/preemptor" in nominated(world)
    assert world.running() == {"low", "preemptor"}


def test_nothing_is_remembered_of_a_preemptor_that_is_gone() -> None:
    world = two_queues()
    verdicts = world.engine.beyond._verdicts
    assert len(verdicts) == 1
    world.delete("preemptor")
    assert len(verdicts) == 0
