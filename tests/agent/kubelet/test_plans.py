"""What was planned for the pod that asks: matched by order, resource and number, since no call names the pod."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.kubelet.plans import BoundPod, Demand, Plans
from controller.scheduler.model.gpuparts import Part, Piece, choose
from inventory.devices import DeviceId, ResourceName
from inventory.layout.entries import PERCENT_RESOURCE

GPU = ResourceName("nvidia.com/gpu")
ALL = tuple(DeviceId(f"GPU-{i}") for i in range(8))


def ids(*numbers: int) -> tuple[DeviceId, ...]:
    return tuple(ALL[i] for i in numbers)


def pod(name: str, age: int, *counts: int, plan: Sequence[str] = (), workload: str = "") -> BoundPod:
    demands = tuple(Demand(GPU, count) for count in counts)
    return BoundPod(uid=f"uid-{name}", key=("ns", name), age=age, demands=demands, plan=tuple(plan), workload=workload)


def plans(*pods: BoundPod) -> Plans:
    made = Plans()
    for one in pods:
        made.bound(one)
    return made


def ask(made: Plans, size: int, free: Sequence[DeviceId] = ALL, required: Sequence[DeviceId] = ()) -> tuple[str, ...]:
    choice = made.choose(GPU, free, required, size)
    made.validate()
    return choice.devices


def serve(made: Plans, size: int, free: Sequence[DeviceId] = ALL) -> tuple[str, ...]:
    """One container as the kubelet serves it; the devices it is told, all others where nothing is planned."""
    devices = made.choose(GPU, free, (), size).devices or tuple(free[:size])
    made.given(GPU, devices)
    made.validate()
    return devices


def test_the_pod_that_asks_gets_what_was_planned_for_it() -> None:
    assert ask(plans(pod("a", 1, 2, plan=ids(5, 2))), 2) == ids(5, 2)


def test_a_pod_without_a_plan_avoids_what_is_planned_for_others() -> None:
    made = plans(pod("a", 1, 2), pod("b", 2, 4, plan=ids(0, 1, 2, 3)))
    choice = made.choose(GPU, ALL, (), 2)
    assert (choice.devices, choice.avoid, choice.known) == ((), frozenset(ids(0, 1, 2, 3)), True)


def test_pods_of_unequal_size_are_told_apart_by_their_size() -> None:
    made = plans(pod("a", 1, 2, plan=ids(0, 1)), pod("b", 2, 4, plan=ids(4, 5, 6, 7)))
    assert ask(made, 4) == ids(4, 5, 6, 7)
    assert ask(made, 2) == ids(0, 1)


def test_pods_of_equal_size_are_served_in_the_order_in_which_they_were_bound() -> None:
    made = plans(pod("b", 2, 2, plan=ids(2, 3)), pod("a", 1, 2, plan=ids(0, 1)))
    assert [serve(made, 2), serve(made, 2, ids(2, 3, 4, 5))] == [ids(0, 1), ids(2, 3)]


def test_an_answer_is_remembered_at_once_though_its_devices_seem_free_still() -> None:
    """The second request of a burst comes before pod resources shows the first."""
    made = plans(pod("a", 1, 2, plan=ids(0, 1)), pod("b", 2, 2, plan=ids(2, 3)))
    assert serve(made, 2) != serve(made, 2)


def test_pods_of_the_same_workload_and_shape_swap_where_the_own_plan_cannot_be_had() -> None:
    made = plans(
        pod("a", 1, 2, plan=ids(0, 1), workload="ns/w"),
        pod("other", 2, 2, plan=ids(2, 3), workload="ns/x"),
        pod("b", 3, 2, plan=ids(4, 5), workload="ns/w"),
    )
    assert serve(made, 2, ids(1, 2, 3, 4, 5)) == ids(4, 5)
    assert serve(made, 2, ids(1, 2, 3)) == ids(2, 3), "the next one is the other's"
    assert ask(made, 2, ids(0, 1)) == ids(0, 1), "what was swapped is the sister's now"


def test_a_plan_that_is_held_already_was_the_plan_of_one_that_was_served() -> None:
    """The acknowledgement of the first may come late: any plan that can be had is better than none."""
    made = plans(pod("a", 1, 2, plan=ids(0, 1)), pod("b", 2, 2, plan=ids(2, 3)))
    assert ask(made, 2, ids(2, 3, 4, 5)) == ids(2, 3)


def test_no_plan_gives_devices_that_are_not_available() -> None:
    choice = plans(pod("a", 1, 2, plan=ids(0, 1))).choose(GPU, ids(1, 2, 3), (), 2)
    assert (choice.devices, choice.known) == ((), True)


def test_devices_that_must_be_included_are() -> None:
    made = plans(pod("a", 1, 2, plan=ids(0, 1, 2)))
    assert set(ask(made, 2, ALL, ids(2))) == set(ids(0, 2))
    assert ask(made, 2, ALL, ids(7)) == (), "a plan without them is no plan"


def test_containers_of_one_pod_share_its_plan_out() -> None:
    made = plans(pod("a", 1, 2, 1, plan=ids(4, 5, 6)))
    assert serve(made, 2) == ids(4, 5)
    assert serve(made, 1) == ids(6)
    assert len(made) == 0


def test_a_replica_of_a_planned_gpu_will_do() -> None:
    replicas = [DeviceId(f"GPU-{i}::{n}") for i in range(2) for n in range(2)]
    made = plans(pod("a", 1, 1, plan=["GPU-1"]))
    assert ask(made, 1, replicas) == ("GPU-1::0",)


def test_another_resources_devices_are_no_plan_for_this_one() -> None:
    made = plans(pod("a", 1, 1, plan=["MIG-1"]))
    assert ask(made, 1) == ()


def test_who_is_acknowledged_asks_no_more() -> None:
    made = plans(pod("a", 1, 2, plan=ids(0, 1)), pod("b", 2, 2, plan=ids(2, 3)))
    made.unbound("uid-a")
    assert ask(made, 2) == ids(2, 3)


def test_who_is_in_pod_resources_asks_no_more() -> None:
    made = plans(pod("a", 1, 2, plan=ids(0, 1)), pod("b", 2, 2, plan=ids(2, 3)))
    made.held(dict.fromkeys(ids(6, 7), ("ns", "a")))
    made.bound(pod("a", 1, 2, plan=ids(0, 1)))
    assert ask(made, 2) == ids(2, 3)


def test_what_was_put_down_to_the_wrong_pod_goes_back_to_it() -> None:
    """A static pod, of which no watch tells in time, took devices meanwhile."""
    made = plans(pod("a", 1, 2, plan=ids(0, 1)))
    made.given(GPU, ids(4, 5))
    assert len(made) == 0
    made.held(dict.fromkeys(ids(4, 5), ("kube-system", "static")))
    made.validate()
    assert ask(made, 2, ids(0, 1, 2, 3)) == ids(0, 1)


def test_what_was_given_before_its_pod_was_heard_of_is_not_taken_for_the_next_ones() -> None:
    """News came too late for the first two: the third is not mistaken for the first, nor the other for anybody."""
    made = plans()
    assert [serve(made, 1), serve(made, 1, ALL[1:])] == [ids(0), ids(1)]
    for number, device in enumerate((4, 5, 6, 7)):
        made.bound(pod(f"p{number}", number, 1, plan=ids(device)))
    choice = made.choose(GPU, ALL[2:], (), 1)
    assert (choice.devices, choice.known) == (ids(6), True)
    made.given(GPU, choice.devices)
    assert serve(made, 1, ALL[2:]) == ids(7)


def test_a_guess_about_late_news_that_is_wrong_costs_nobody_its_plan() -> None:
    for shown in (False, True):
        made = plans()
        made.given(GPU, ids(3))  # a static pod's
        made.bound(pod("a", 1, 1, plan=ids(0)))
        if shown:
            made.held({ALL[3]: ("kube-system", "static")})
        choice = made.choose(GPU, ids(0, 1, 2), (), 1)
        assert (choice.devices, choice.known) == (ids(0), shown)
        made.given(GPU, choice.devices)
        made.validate()
        assert len(made) == 0


def test_nobody_known_may_mean_that_news_is_on_its_way() -> None:
    assert not plans(pod("a", 1, 4)).choose(GPU, ALL, (), 2).known


def test_devices_that_come_back_may_be_given_again() -> None:
    made = plans()
    made.given(GPU, ids(0, 1))
    made.given(GPU, ids(1, 2))
    made.validate()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_burst_on_a_node_that_was_planned_gets_exactly_its_plans(data: st.DataObject) -> None:
    """Pods of several workloads and sizes, planned apart, some heard of late, served as the kubelet serves them."""
    left, pods = list(ALL), list[BoundPod]()
    while left:
        size = data.draw(st.integers(1, len(left)))
        mine = data.draw(st.permutations(left))[:size]
        left = [one for one in left if one not in mine]
        workload = data.draw(st.sampled_from(["", "ns/w", "ns/x"]))
        pods.append(pod(f"p{len(pods)}", len(pods), size, plan=mine, workload=workload))
    made, free = Plans(), list(ALL)
    heard = -1
    for number, one in enumerate(pods):
        told, heard = heard, max(heard, data.draw(st.integers(number, len(pods) - 1)))
        for other in pods[told + 1 : heard + 1]:
            made.bound(other)
        devices = made.choose(GPU, free, (), one.demands[0].count).devices
        assert set(devices) == set(one.plan)
        made.given(GPU, devices)
        made.validate()
        free = [device for device in free if device not in devices]
        if data.draw(st.booleans()):
            made.held({device: other.key for other in pods[: number + 1] for device in map(DeviceId, other.plan)})
            made.validate()
        if data.draw(st.booleans()):
            made.unbound(one.uid)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bound"), st.integers(0, 5), st.integers(0, 3), st.sets(st.integers(0, 7), max_size=4)),
        st.tuples(st.just("unbound"), st.integers(0, 5)),
        st.tuples(st.just("serve"), st.integers(1, 3), st.sets(st.integers(0, 7), min_size=3)),
        st.tuples(st.just("took"), st.sets(st.integers(0, 7), min_size=1, max_size=3)),
        st.tuples(st.just("held"), st.dictionaries(st.integers(0, 7), st.integers(0, 5), max_size=8)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=_STEPS)
@example(steps=[("bound", 1, 0, set()), ("serve", 1, {0, 1, 2}), ("bound", 1, 1, set()), ("held", {0: 0})])
def test_whatever_happens_an_answer_is_of_the_right_size_and_to_be_had(steps: list[tuple[object, ...]]) -> None:
    made = Plans()
    for step in steps:
        match step:
            case ("bound", int(number), int(count), set(plan)):
                demands = [count] if count else [1, 2]
                made.bound(pod(str(number), number, *demands, plan=ids(*sorted(plan)), workload="ns/w"))
            case ("unbound", int(number)):
                made.unbound(f"uid-{number}")
            case ("serve", int(size), set(free)):
                available = ids(*sorted(free))
                choice = made.choose(GPU, available, (), size)
                assert choice.avoid <= set(available)
                assert len(set(choice.devices)) in (0, size)
                assert set(choice.devices) <= set(available)
                made.given(GPU, choice.devices or available[:size])
            case ("took", set(devices)):
                made.given(GPU, ids(*sorted(devices)))
            case ("held", dict(holders)):
                made.held({ALL[device]: ("ns", str(number)) for device, number in holders.items()})
            case _:
                pytest.fail(f"no such step: {step}")
        made.validate()


PERCENTS = tuple(DeviceId(f"GPU-{gpu}::{n}") for gpu in range(3) for n in range(100))


def fractions(name: str, age: int, *counts: int, plan: dict[int, int], gpus: int = 1) -> BoundPod:
    """``plan``: by GPU, how many percents of it."""
    demands = tuple(Demand(PERCENT_RESOURCE, count, gpus) for count in counts)
    words = tuple(f"GPU-{gpu}" for gpu, count in plan.items() for _ in range(count))
    return BoundPod(uid=f"uid-{name}", key=("ns", name), age=age, demands=demands, plan=words)


def served(made: Plans, size: int, free: set[DeviceId], handed_on: Sequence[DeviceId] = ()) -> tuple[DeviceId, ...]:
    available = [one for one in PERCENTS if one in free]
    choice = made.choose(PERCENT_RESOURCE, available, handed_on, size)
    made.given(PERCENT_RESOURCE, choice.devices)
    made.validate()
    free.difference_update(choice.devices)
    return choice.devices


def gpus(devices: Sequence[DeviceId]) -> set[str]:
    return {one.partition("::")[0] for one in devices}


@pytest.mark.parametrize("counts", [(60, 60), (60, 30, 30), (30, 60, 30), (30, 30, 60), (20, 50, 40, 10), (90, 20, 10)])
def test_each_containers_percents_lie_on_one_gpu_of_its_plan(counts: tuple[int, ...]) -> None:
    pieces = [Piece(gpu, 1) for gpu in range(2)]
    plan = dict(enumerate(choose(pieces, [100, 100], [Part(one, one) for one in counts], None)))
    made, free = plans(), set(PERCENTS)
    made.bound(fractions("a", 1, *counts, plan=plan))
    given_ = [served(made, count, free) for count in counts]
    assert [len(one) for one in given_] == list(counts)
    assert all(len(gpus(one)) == 1 for one in given_), "no GPU alone has it"
    assert Counter(one.partition("::")[0] for each in given_ for one in each) == Counter(
        {f"GPU-{gpu}": count for gpu, count in plan.items() if count}
    )


def test_the_tightest_gpu_is_not_taken_where_the_next_containers_would_find_none() -> None:
    made, free = plans(fractions("a", 1, 30, 50, 50, 20, plan={0: 70, 1: 80})), set(PERCENTS)
    given_ = [served(made, count, free) for count in (30, 50, 50, 20)]
    assert [len(one) for one in given_] == [30, 50, 50, 20]
    assert all(len(gpus(one)) == 1 for one in given_)
    assert Counter(one.partition("::")[0] for each in given_ for one in each) == {"GPU-0": 70, "GPU-1": 80}


def test_a_plan_for_a_large_part_of_a_gpu_is_kept_to() -> None:
    made, free = plans(fractions("a", 1, 90, plan={2: 90})), set(PERCENTS)
    assert gpus(served(made, 90, free)) == {"GPU-2"}


def test_percents_that_an_init_container_had_are_handed_on() -> None:
    made, free = plans(fractions("a", 1, 30, 20, 60, plan={0: 30, 1: 60})), set(PERCENTS)
    first = served(made, 30, free)
    assert gpus(first) == {"GPU-0"}
    # The kubelet asks nobody about what it hands on as it is.
    made.given(PERCENT_RESOURCE, first[:20])
    assert gpus(served(made, 60, free)) == {"GPU-1"}


def test_equal_parts_of_several_gpus_are_taken_as_they_were_planned() -> None:
    made, free = plans(fractions("a", 1, 100, plan={0: 50, 2: 50}, gpus=2)), set(PERCENTS)
    assert made.gpus_asked(PERCENT_RESOURCE, 100) == {2}
    assert made.gpus_asked(PERCENT_RESOURCE, 50) == frozenset()
    assert Counter(one.partition("::")[0] for one in served(made, 100, free)) == {"GPU-0": 50, "GPU-2": 50}
    assert made.gpus_asked(PERCENT_RESOURCE, 100) == frozenset(), "it has been served"
    assert len(made) == 0


def test_requests_of_one_size_for_one_gpu_and_for_two_are_told_apart_by_their_pods_order() -> None:
    two, one = fractions("two", 1, 100, plan={0: 50, 1: 50}, gpus=2), fractions("one", 2, 100, plan={2: 100})
    made, free = plans(one, two), set(PERCENTS)
    assert made.gpus_asked(PERCENT_RESOURCE, 100) == {1, 2}
    assert gpus(served(made, 100, free)) == {"GPU-0", "GPU-1"}
    assert made.gpus_asked(PERCENT_RESOURCE, 100) == {1}
    assert gpus(served(made, 100, free)) == {"GPU-2"}


def test_a_pod_without_a_plan_says_on_how_many_gpus_its_percents_lie() -> None:
    made = plans(fractions("a", 1, 100, plan={}, gpus=2))
    choice = made.choose(PERCENT_RESOURCE, PERCENTS, (), 100)
    assert (choice.devices, choice.gpus, choice.known) == ((), 2, True)
    assert made.choose(PERCENT_RESOURCE, PERCENTS, (), 50).gpus == 1
    # What the kubelet took is the pod's whose shape it has, though another was bound before it.
    made = plans(fractions("one", 1, 100, plan={}), fractions("two", 2, 100, plan={}, gpus=2))
    made.given(PERCENT_RESOURCE, [*PERCENTS[:50], *PERCENTS[100:150]])
    made.validate()
    assert made.gpus_asked(PERCENT_RESOURCE, 100) == {1}


@pytest.mark.parametrize("plan", [{0: 100}, {0: 60, 1: 40}, {0: 50}, {}])
def test_a_plan_that_is_no_equal_parts_is_none(plan: dict[int, int]) -> None:
    made = plans(fractions("a", 1, 100, plan=plan, gpus=2))
    assert made.choose(PERCENT_RESOURCE, PERCENTS, (), 100).devices == ()
    made = plans(fractions("a", 1, 100, plan={0: 50, 1: 50}, gpus=0))
    choice = made.choose(PERCENT_RESOURCE, PERCENTS, (), 100)
    assert (choice.devices, choice.gpus) == ((), 0)
