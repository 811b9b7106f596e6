"""A preemptor that waits for its victims is not tried anew in every cycle; nothing comes of it but the time saved."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.decisions.records import Rule
from controller.scheduler.kueue.cycle import Cycle
from controller.scheduler.kueue.nomination import Nominator
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing
from controller.scheduler.queues.entry import Entry
from controller.scheduler.reservations.reservations import Reservations
from tests.support.engine.contention import Story, full_nodes, full_queues
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

RESERVING = Extensions(reserve_for_preemptor=True)
WITHIN = {"withinClusterQueue": "LowerPriority"}


@settings(max_examples=30)
@given(full_queues() | full_nodes(), st.booleans())
def test_what_is_remembered_makes_nobody_go_who_was_not_told_to(story: Story, fair: bool) -> None:
    recall = Reservations.recall

    def noting(self: Reservations, entry: Entry) -> bool:
        stands = recall(self, entry)
        assert not stands or (entry.targets and all(target.holder.evicted for target in entry.targets))
        return stands

    with patch.object(Reservations, "recall", noting):
        story.world(EngineConfig(fair_sharing=FairSharing() if fair else None, extensions=RESERVING))


@settings(max_examples=30)
@given(full_queues() | full_nodes(), st.booleans())
def test_a_check_that_is_spared_would_have_found_the_same(story: Story, fair: bool) -> None:
    stood, decide = Cycle._stood, Cycle._decide

    def never(_self: Cycle, _entry: Entry) -> bool:
        return False

    def checking(self: Cycle, entry: Entry) -> None:
        spared, assignment, targets = stood(self, entry), entry.assignment, entry.targets
        decide(self, entry)
        assert not spared or (entry.rule, entry.assignment, entry.targets) == (Rule.PREEMPTS, assignment, targets)

    with patch.object(Cycle, "_stood", never), patch.object(Cycle, "_decide", checking):
        story.world(EngineConfig(fair_sharing=FairSharing() if fair else None, extensions=RESERVING))


def two_queues() -> World:
    world = World(EngineConfig(extensions=RESERVING))
    world.put(flavor())
    for name in ("a", "b"):
        world.put(cluster_queue(name, 4, preemption=WITHIN), local_queue(name))
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    assert world.condition("low", "Evicted") == "True/Preempted"
    return world


def three_low_ones() -> World:
    """Evicted, and a preemptor that needs what all three hold."""
    world = World(EngineConfig(extensions=RESERVING))
    world.put(flavor(), cluster_queue("a", 6, preemption=WITHIN), local_queue("a"))
    world.put(*(workload(f"low-{number}", "a", 2) for number in range(3)))
    world.settle()
    world.put(workload("preemptor", "a", 6, priority=1))
    world.settle()
    return world


def nominated(world: World) -> list[str]:
    """Workloads that are tried in the next cycles."""
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
    world = three_low_ones()
    for number in range(2):
        world.stop_evicted(limit=1)
        assert "ns/preemptor" not in nominated(world), f"{number + 1} gone"
        (nomination,) = world.engine.state.reservations._nominations.values()
        assert len(nomination.targets) == 2 - number
    world.stop_evicted(limit=1)
    assert "ns/preemptor" in nominated(world)
    assert world.running() == {"preemptor"}


def test_a_preemptor_is_tried_anew_when_somebody_else_has_left_with_a_victim() -> None:
    world = World(EngineConfig(extensions=RESERVING))
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


def checked(world: World) -> list[str]:
    """Workloads that are held against what others have taken, in the next cycles."""
    looked_at: list[str] = []
    fits = Cycle._fits

    def noting(self: Cycle, entry: Entry) -> bool:
        looked_at.append(entry.key)
        return fits(self, entry)

    with patch.object(Cycle, "_fits", noting):
        world.settle()
    return looked_at


def test_a_preemptor_whose_victims_leave_is_not_held_against_the_others_again() -> None:
    world = three_low_ones()
    for _ in range(2):
        world.stop_evicted(limit=1)
        assert "ns/preemptor" not in checked(world)
    world.stop_evicted(limit=1)
    assert "ns/preemptor" in checked(world)
    assert world.running() == {"preemptor"}


def test_a_preemptor_is_held_against_one_that_was_admitted_meanwhile() -> None:
    world = three_low_ones()
    world.put(cluster_queue("b", 4), local_queue("b"))
    world.settle()
    world.put(workload("elsewhere", "b", 1))
    assert "ns/preemptor" in checked(world)
    world.stop_evicted(limit=1)
    assert "ns/preemptor" not in checked(world)


def test_nothing_is_remembered_of_a_preemptor_that_is_gone() -> None:
    world = two_queues()
    nominations = world.engine.state.reservations._nominations
    assert len(nominations) == 1
    world.delete("preemptor")
    assert len(nominations) == 0
