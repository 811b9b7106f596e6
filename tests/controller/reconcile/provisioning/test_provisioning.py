"""Which requests for nodes are made and removed, and what becomes of the checks that wait for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.decode import decode
from controller.objects.meta import is_true
from controller.objects.provisioning import ProvisioningRequestConfig
from controller.scheduler.decisions import reasons
from inventory.api.names import FLAVORS_GIVEN_UP
from tests.support.controller.provisioningworld import KEY, ProvisioningWorld


def asked(**more: object) -> ProvisioningWorld:
    """A workload with quota, whose request is made and seen."""
    world = ProvisioningWorld(**more)  # type: ignore[arg-type]
    world.reserve()
    world.settle()
    return world


def test_a_workload_without_quota_requests_nothing() -> None:
    world = ProvisioningWorld()
    world.settle()
    assert world.requests == {}


def test_a_workload_with_quota_requests_nodes_once_for_each_check() -> None:
    world = ProvisioningWorld("make", "other")
    world.reserve()
    world.settle()
    assert sorted(world.log) == ["train-make-1", "train-other-1"]


def test_a_request_that_the_watch_has_not_shown_yet_is_not_made_twice() -> None:
    world = ProvisioningWorld()
    world.reserve()
    world.turn()
    world.turn()
    assert world.log == ["train-make-1"]


def test_a_provisioned_request_makes_the_check_ready_with_what_its_pods_consume() -> None:
    selector = [{"key": "group", "valueFromProvisioningClassDetail": "g"}]
    world = asked(podSetUpdates={"nodeSelector": selector})
    world.say("Provisioned", "there they are", g="g7")
    world.settle()
    assert (world.state.state, world.state.message) == ("Ready", "there they are")
    (update,) = world.state.pod_set_updates
    assert (update.name, update.node_selector) == ("main", {"group": "g7"})


def test_what_the_autoscaler_says_of_the_time_stands_in_the_check() -> None:
    world = asked()
    world.say("Accepted")
    world.say("Provisioned", "in an hour", status="False")
    world.settle()
    assert (world.state.state, world.state.message) == ("Pending", "in an hour")


@pytest.mark.parametrize("extended", [False, True])
def test_a_failed_request_is_retried_with_a_doubled_back_off_up_to_the_limit(extended: bool) -> None:
    world = asked(extended=extended, retryStrategy={"backoffLimitCount": 2, "backoffBaseSeconds": 30})
    world.groups = [["f"]]
    delays = []
    for _ in range(2):
        world.say("Failed", "no quota at the cloud")
        world.settle()
        assert world.state.state == "Retry"
        delays.append(world.state.requeue_after_seconds)
        world.live()
        world.release()
        world.settle()
        world.reserve()
        world.settle()
    assert delays == [30, 60]
    assert world.log == ["train-make-1", "train-make-2", "train-make-3"]
    world.say("Failed", "no quota at the cloud")
    world.settle()
    assert (world.state.state, world.state.message) == ("Rejected", "no quota at the cloud")


def fails(world: ProvisioningWorld, *, flavor: str) -> None:
    """The newest request fails; if that sends the workload back, it gets quota of this flavor."""
    world.say("Failed", "none left")
    world.settle()
    if world.state.state == "Retry":
        world.live()
        world.release()
        world.reserve(flavor=flavor)
        world.settle()


def test_after_the_last_attempt_for_a_flavor_the_next_one_has_as_many() -> None:
    world = asked(extended=True, retryStrategy={"backoffLimitCount": 1})
    fails(world, flavor="f")
    assert world.workload.metadata.annotations == {}
    fails(world, flavor="g")
    assert world.workload.metadata.annotations == {FLAVORS_GIVEN_UP: "f"}
    fails(world, flavor="g")
    fails(world, flavor="g")
    assert world.state.state == "Rejected"
    assert world.log == [f"train-make-{attempt}" for attempt in (1, 2, 3, 4)]


def test_under_kueues_policy_no_flavor_is_given_up() -> None:
    world = asked(retryStrategy={"backoffLimitCount": 0})
    fails(world, flavor="g")
    assert world.state.state == "Rejected"
    assert world.workload.metadata.annotations == {}


def test_a_flavor_of_another_resource_group_is_none_in_its_place() -> None:
    world = asked(extended=True, retryStrategy={"backoffLimitCount": 0})
    world.groups = [["f"], ["g"]]
    fails(world, flavor="g")
    assert world.state.state == "Rejected"


def test_the_back_off_does_not_grow_above_its_bound() -> None:
    world = asked(retryStrategy={"backoffLimitCount": 9, "backoffBaseSeconds": 60, "backoffMaxSeconds": 90})
    for _ in range(2):
        world.say("Failed")
        world.settle()
        delay = world.state.requeue_after_seconds
        world.live()
        world.release()
        world.reserve()
        world.settle()
    assert delay == 90


def test_an_old_request_that_failed_sends_no_workload_back_twice() -> None:
    """Requests outlive an eviction without the gate: the one that failed is there when quota is held again."""
    world = asked(gates={"CleanupProvisioningRequestsOnEviction": False})
    world.say("Failed")
    world.settle()
    world.live()
    world.release()
    world.settle()
    assert list(world.requests) == ["train-make-1"]
    world.reserve()
    world.settle()
    assert world.state.state == "Pending"
    assert list(world.requests) == ["train-make-2"]


def test_an_eviction_removes_the_request_and_the_next_reservation_makes_one_of_the_same_attempt() -> None:
    world = asked()
    world.evict()
    world.settle()
    assert world.requests == {}
    world.release()
    world.reserve()
    world.settle()
    assert world.log == ["train-make-1", "train-make-1"]


def test_a_request_of_an_earlier_reservation_on_another_flavor_is_replaced() -> None:
    world = asked()
    world.evict()
    world.release()
    world.reserve(flavor="other")
    world.settle()
    assert world.log == ["train-make-1", "train-make-1"]


@pytest.mark.parametrize("end", ["finish", "gone"])
def test_the_end_of_the_workload_removes_its_requests(end: str) -> None:
    world = asked()
    if end == "finish":
        world.finish()
        world.settle()
    else:
        world.core.set_workload(KEY, None)
        assert [each.metadata.name for each in world.core.decide(KEY, None, 0.0).remove] == ["train-make-1"]
        return
    assert world.requests == {}


def test_a_booking_that_expires_counts_only_before_admission() -> None:
    world = asked()
    world.say("Provisioned")
    world.settle()
    world.say("BookingExpired", "too late")
    world.settle()
    assert (world.state.state, world.state.message) == ("Retry", "Retrying after booking expired: too late")
    running = asked()
    running.say("Provisioned")
    running.settle()
    running.admit()
    running.say("BookingExpired")
    running.settle()
    assert running.state.state == "Ready"
    assert list(running.requests) == ["train-make-1"]


def test_revoked_capacity_deactivates_the_workload_under_kueues_policy_and_requeues_it_under_ours() -> None:
    for extended, state in ((False, "Rejected"), (True, "Retry")):
        world = asked(extended=extended)
        world.say("Provisioned")
        world.settle()
        world.admit()
        world.say("CapacityRevoked", "maintenance")
        world.settle()
        assert world.state.state == state
        assert "maintenance" in world.state.message
        world.live()
        assert is_true(world.workload.status.conditions, reasons.EVICTED)
        assert world.workload.spec.active == extended


def test_a_workload_whose_pods_found_places_takes_its_request_back() -> None:
    world = ProvisioningWorld(extended=True)
    world.reserve(delayed=True)
    world.settle()
    world.say("Accepted")
    world.place()
    world.settle()
    assert world.state.state == "Ready"
    assert world.state.pod_set_updates == ()
    assert world.requests == {}
    world.admit()
    world.settle()
    assert world.requests == {}


def test_places_on_nodes_of_a_provisioned_request_keep_the_request() -> None:
    world = ProvisioningWorld(extended=True)
    world.reserve(delayed=True)
    world.settle()
    world.say("Provisioned")
    world.place()
    world.settle()
    assert world.state.pod_set_updates != ()
    assert list(world.requests) == ["train-make-1"]


def test_places_that_the_requests_own_selectors_might_contradict_end_the_request() -> None:
    selector = [{"key": "group", "valueFromProvisioningClassDetail": "g"}]
    world = ProvisioningWorld(extended=True, podSetUpdates={"nodeSelector": selector})
    world.reserve(delayed=True)
    world.settle()
    world.place()
    world.say("Provisioned", g="g7")
    world.settle()
    assert (world.state.state, world.state.pod_set_updates) == ("Ready", ())
    assert world.requests == {}


def test_while_requests_are_not_served_the_check_says_that_it_is_not_active() -> None:
    world = ProvisioningWorld()
    world.core.set_served(served=False)
    world.reserve()
    world.settle()
    assert world.requests == {}
    assert world.state.message == "The check is not active"
    assert list(world.core.set_served(served=True)) == [KEY]
    world.settle()
    assert world.log == ["train-make-1"]


def test_a_check_that_is_not_active_for_a_while_loses_no_request() -> None:
    world = asked()
    world.core.set_config("c", None)
    world.settle()
    assert list(world.requests) == ["train-make-1"]
    world.configure(**world.spec)
    world.settle()
    assert world.log == ["train-make-1"]


def test_other_parameters_make_another_request_in_its_place() -> None:
    world = asked()
    world.configure(provisioningClassName="k", parameters={"p": "2"})
    world.settle()
    assert world.log == ["train-make-1", "train-make-1"]
    assert world.requests["train-make-1"].spec.parameters == {"p": "2"}


def test_a_configuration_concerns_the_workloads_of_the_checks_that_name_it() -> None:
    world = asked()
    found = decode({"metadata": {"name": "d"}, "spec": {"provisioningClassName": "k"}}, ProvisioningRequestConfig)
    assert list(world.core.set_config("d", found)) == []
    assert list(world.core.set_config("c", found)) == [KEY]
    assert list(world.core.set_check("make", None)) == [KEY]
    assert list(world.core.set_config("c", None)) == []


def test_checks_of_other_controllers_are_left_alone() -> None:
    world = ProvisioningWorld("make", "license")
    world.core.set_check("license", world.check("license", "example.com/license"))
    world.reserve()
    world.settle()
    assert world.log == ["train-make-1"]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["reserve", "other", "evict", "release", "live", "admit", "deliver", "place", "configure"]),
        st.tuples(st.just("turn"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["Accepted", "Provisioned", "Failed", "BookingExpired", "CapacityRevoked"])),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.booleans(), st.booleans())
def test_no_request_leaks_and_no_check_has_two_that_may_give_nodes(
    steps: list[str | tuple[object, ...]], extended: bool, clean_up: bool
) -> None:
    """Whatever the autoscaler says, wherever the controller dies, and however late its watch is."""
    world = ProvisioningWorld(
        "make", "other", extended=extended, gates={"CleanupProvisioningRequestsOnEviction": clean_up}
    )
    for step in steps:
        _do(world, step)
        world.core.validate()
        for check in world.names:
            assert len(world.live_requests(check)) <= 1, world.requests
    world.settle()
    held = is_true(world.workload.status.conditions, reasons.QUOTA_RESERVED)
    evicted = is_true(world.workload.status.conditions, reasons.EVICTED)
    if clean_up and (not held or evicted or not world.workload.spec.active):
        assert world.requests == {}
    world.finish()
    world.settle()
    assert world.requests == {}


def _do(world: ProvisioningWorld, step: str | tuple[object, ...]) -> None:
    conditions = world.workload.status.conditions
    held = is_true(conditions, reasons.QUOTA_RESERVED)
    match step:
        case "reserve" | "other" if not held and world.workload.spec.active:
            world.reserve(flavor="f" if step == "reserve" else "g", delayed=True)
        case "evict" if held:
            world.evict()
        case "admit" if held and all(each.state == "Ready" for each in world.workload.status.admission_checks):
            world.admit()
        case "place" if held and not is_true(conditions, reasons.ADMITTED):
            world.place()
        case "release" | "live" | "deliver":
            getattr(world, step)()
        case "configure":
            world.configure(provisioningClassName="k", parameters={"p": str(len(world.log))})
        case ("turn", int(most)):
            world.turn(most)
        case (str(said),) if world.requests:
            world.say(said)
