"""What a GPU was before its repair stays known until the repair is over, whatever a reset or a reboot has spoilt."""

from agent.health.verification import GpuFacts
from agent.repair.befores import Before, Befores
from inventory.devices import GpuUuid
from inventory.mig.parts import Part
from inventory.mig.plan import Slot
from tests.agent.repair.test_units import gpu, to

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
WELL, NARROW = GpuFacts(memory_mib=8, pcie_width=16, persistence=True), GpuFacts(memory_mib=8, pcie_width=8)
SLOTS = (Slot("3g.40gb", 0, 4, (Part(0, 3),)),)


def test_a_second_attempt_is_compared_with_what_was_before_the_first() -> None:
    befores = Befores()
    befores.remember({A: Before(facts=WELL, slots=SLOTS)})
    assert befores.forget()
    befores.remember({A: Before(facts=NARROW, slots=())})
    assert befores.before(A) == Before(facts=WELL, slots=()), "the instances are those of this attempt"
    assert befores.persistent() == [], "this attempt found persistence mode off"


def test_an_interrupted_attempt_goes_on_with_what_it_kept() -> None:
    befores = Befores({A: Before(facts=WELL, slots=SLOTS)})
    befores.remember({A: Before(facts=NARROW, slots=())})
    assert befores.before(A) == Before(facts=WELL, slots=SLOTS)
    assert befores.persistent() == [A]


def test_after_a_reboot_facts_are_known_and_instances_are_not() -> None:
    befores = Befores({}, {A: WELL})
    assert befores.before(A) == Before(facts=WELL, slots=None)
    assert befores.before(B) is None
    assert not befores.forget(), "no attempt was under way"


def test_facts_go_with_the_repair_and_not_in_the_middle_of_an_attempt() -> None:
    here = [gpu(0, "volta", (to(1),)), gpu(1, "volta", (to(0),)), gpu(2, "volta")]
    befores = Befores()
    befores.remember({each.uuid: Before(facts=WELL) for each in here})
    befores.keep([], here)
    assert befores.recorded.keys() == {"GPU-0", "GPU-1", "GPU-2"}, "the attempt is under way"
    befores.forget()
    befores.keep([], [])
    assert befores.recorded.keys() == {"GPU-0", "GPU-1", "GPU-2"}, "no GPU is known yet"
    befores.keep([here[0].uuid], here)
    assert befores.recorded.keys() == {"GPU-0", "GPU-1"}, "with what is reset together with it"
    befores.keep([], here)
    assert befores.recorded == {}
