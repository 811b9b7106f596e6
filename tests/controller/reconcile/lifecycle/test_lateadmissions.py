"""A late admission is told to nobody before a cycle has left it standing."""

from controller.reconcile.lifecycle.lateadmissions import LateAdmissions
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

LOW = WorkloadKey("ns/low")


def world(*, held: int) -> World:
    """Queue ``a`` (4 devices), of which others hold so many; ``low`` waits for 3 and then shows an admission."""
    other, made = World(), World()
    for each, quota in ((other, 9), (made, 4)):
        each.put(flavor(), cluster_queue("a", quota), local_queue("a"))
    other.put(workload("low", "a", 3))
    other.settle()
    made.put(*(workload(f"high-{number}", "a", 1, priority=9) for number in range(held)))
    made.settle()
    made.put(workload("low", "a", 3))
    made.put(other.workloads[LOW])
    return made


def test_an_admission_that_fits_is_told_after_the_cycle() -> None:
    here = world(held=1)
    late = LateAdmissions(here.engine)
    assert late.holds_back(LOW)
    assert late.standing() == []
    here.engine.cycle(here.now_s)
    assert late.standing() == [LOW]
    assert late.standing() == [], "it is told once"
    assert not late.holds_back(LOW)


def test_one_that_is_evicted_is_told_when_its_object_says_so_or_cannot() -> None:
    here = world(held=2)
    late = LateAdmissions(here.engine)
    assert late.holds_back(LOW)
    (evicted,) = (one for one in here.engine.cycle(here.now_s).made if isinstance(one, Evicted))
    assert late.standing() == []
    assert late.holds_back(LOW), "a change of something else meanwhile"
    assert here.engine.failed(evicted, here.now_s, "refused")
    assert late.standing() == [LOW]


def test_the_engine_s_own_admission_is_never_held_back() -> None:
    here = World()
    here.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("low", "a", 3))
    here.settle()
    assert not LateAdmissions(here.engine).holds_back(LOW)


def test_what_is_gone_is_not_told_of() -> None:
    here = world(held=1)
    late = LateAdmissions(here.engine)
    assert late.holds_back(LOW)
    late.forget(LOW)
    here.engine.cycle(here.now_s)
    assert late.standing() == []
