"""A preemptor that waits for its victims is not tried anew in every cycle; nothing comes of it but the time saved."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engine.config import BeyondPeer, EngineConfig, FairSharing
from controller.engine.entry import Entry
from controller.engine.nomination import Nominator
from controller.engine.verdicts import Verdicts
from controller.objects.meta import KubernetesObject
from tests.controller.engine.test_engine_properties import Act, begun, histories, setups
from tests.controller.engine.world import World, cluster_queue, flavor, local_queue, workload

CLAIMS = BeyondPeer(reserve_for_preemptor=True)
WITHIN = {"withinClusterQueue": "LowerPriority"}


@given(setups(), histories, st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_remembered_decides_as_what_is_found_anew(
    given: list[KubernetesObject], history: list[Act], fair: bool
) -> None:
    logs = []
    for remembers in (True, False):
        run = begun(EngineConfig(fair_sharing=FairSharing() if fair else None, beyond=CLAIMS), given)
        with patch.object(Verdicts, "recall", Verdicts.recall if remembers else lambda *_: False):
            for act in history:
                act(run)
            for _ in range(10):
                run.world.settle()
                run.world.stop_evicted()
        logs.append(run.world.log)
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
