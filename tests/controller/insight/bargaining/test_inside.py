"""Jobs inside of a grant take whole units, each pod in one place; no unit is given twice, whatever comes and goes."""

from hypothesis import given as drawn
from hypothesis import strategies as st

from controller.insight.bargaining.inside import Needs, PodNeed, Room, needs_of
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.scheduler.model.resources import ResourceName, WorkloadKey

GPU, CPU = ResourceName("nvidia.com/gpu"), ResourceName("cpu")
A, B = WorkloadKey("ns/a"), WorkloadKey("ns/b")


def needs(pods: int, units: int) -> Needs:
    return Needs((PodNeed("main", pods, units),))


def workload(*sets: tuple[str, int, dict[str, object]]) -> Workload:
    pod_sets = [
        {
            "name": name,
            "count": count,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": asks}}]}},
        }
        for name, count, asks in sets
    ]
    return decode({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"podSets": pod_sets}}, Workload)


def test_a_pod_takes_as_many_whole_units_as_it_needs() -> None:
    found = needs_of(workload(("main", 2, {GPU: 3, CPU: "1"}), ("launcher", 1, {CPU: "1"})), {GPU: 2}, {GPU})
    assert found == Needs((PodNeed("main", 2, 2), PodNeed("launcher", 1, 0)))
    assert found.units == 4


def test_what_quota_counts_and_a_unit_does_not_hold_is_outside() -> None:
    assert needs_of(workload(("main", 1, {GPU: 1, CPU: "1"})), {GPU: 1}, {GPU, CPU}).outside == (CPU,)


def test_a_pod_has_its_units_in_one_place() -> None:
    room = Room((("n1",), ("n1",), ("n2",), ("n2",), ("n2",)))
    assert room.take(A, needs(1, 2))
    assert [(each.values, each.pods) for each in room.domains(A, "main")] == [(("n1",), 1)]
    assert not room.take(B, needs(2, 2))
    assert room.take(B, needs(1, 3))
    assert (room.free, room.used) == (0, 5)
    room.give_back(A)
    assert room.free == 2
    room.validate()


def test_a_pod_that_needs_no_unit_is_beside_the_others() -> None:
    room = Room((("n1",),))
    assert room.take(A, Needs((PodNeed("main", 1, 1), PodNeed("launcher", 1, 0))))
    assert [each.values for each in room.domains(A, "launcher")] == [("n1",)]


@drawn(
    st.lists(st.sampled_from(("n1", "n2", "n3")), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 3), st.integers(0, 3)), max_size=20),
)
def test_whatever_comes_and_goes_every_unit_is_free_or_one_jobs(
    places: list[str], moves: list[tuple[int, bool, int, int]]
) -> None:
    room = Room([(place,) for place in places])
    there: dict[WorkloadKey, int] = {}
    for number, comes, pods, units in moves:
        key = WorkloadKey(f"ns/{number}")
        if comes and key not in there:
            before = room.free
            if room.take(key, needs(pods, units)):
                there[key] = pods * units
            else:
                assert room.free == before
        elif not comes:
            room.give_back(key)
            there.pop(key, None)
        room.validate()
        assert room.used == sum(there.values())
        assert set(room.jobs) == set(there)
