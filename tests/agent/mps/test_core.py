"""The life of MPS daemons, whatever happens in whatever order."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs

from agent.mps.core import (
    FAILED_PROBES,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    STEADY_S,
    DaemonCore,
    Do,
    Phase,
    Work,
)
from agent.mps.specs import DaemonSpec
from inventory.devices import GpuUuid

PROBE_S = 10.0


def spec(device: str = "GPU-a", *others: str, clients: int = 2, refused: str = "") -> DaemonSpec:
    threads = 100 // clients
    several = tuple(map(GpuUuid, (device, *others))) if others else ()
    return DaemonSpec(
        device, GpuUuid(device), device, clients, threads_percent=threads, refused=refused, several=several
    )


class World:
    """A core with a clock and the work that is under way."""

    def __init__(self) -> None:
        self.core = DaemonCore(PROBE_S)
        self.now_s = 100.0
        self.open: dict[str, Do] = {}

    def take(self, work: tuple[Do, ...]) -> "World":
        for one in work:
            assert one.spec.device not in self.open, "two things at a time for one device"
            self.open[one.spec.device] = one
        self.core.validate()
        return self

    def want(self, *specs: DaemonSpec, leftover: Iterable[DaemonSpec] = ()) -> "World":
        return self.take(self.core.want(specs, self.now_s, leftover))

    def hold(self, *devices: str) -> "World":
        return self.take(self.core.hold(devices, self.now_s))

    def done(self, expected: Work, device: str = "GPU-a", *, proven: bool = False) -> "World":
        one = self.open.pop(device)
        assert one.work is expected
        return self.take(self.core.done(device, one.work, one.spec, self.now_s, proven=proven))

    def failed(self, expected: Work, device: str = "GPU-a", reason: str = "no") -> "World":
        one = self.open.pop(device)
        assert one.work is expected
        return self.take(self.core.failed(device, one.work, reason, self.now_s))

    def exited(self, device: str = "GPU-a", reason: str = "killed") -> "World":
        return self.take(self.core.exited(device, reason, self.now_s))

    def after(self, seconds: float) -> "World":
        self.now_s += seconds
        return self.take(self.core.tick(self.now_s))

    def ready(self, *devices: str) -> "World":
        self.hold().want(*(spec(one) for one in devices))
        for one in devices:
            self.done(Work.START, one).done(Work.TEST, one)
        return self

    def doing(self, device: str = "GPU-a") -> Work | None:
        return self.open[device].work if device in self.open else None

    def phase(self, device: str = "GPU-a") -> Phase:
        return next(one.phase for one in self.core.states() if one.device == device)


def test_a_daemon_is_ready_only_after_a_client_got_through() -> None:
    world = World().hold().want(spec())
    assert "GPU-a" in world.core.unready()
    world.done(Work.START)
    assert "tried" in world.core.unready()["GPU-a"]
    world.done(Work.TEST)
    assert world.core.unready() == {}


def test_a_daemon_that_serves_clients_already_is_not_tried_with_another() -> None:
    world = World().hold().want(spec()).done(Work.START, proven=True)
    assert world.phase() is Phase.READY
    assert not world.open


def test_an_exit_takes_its_own_device_only_and_tells_its_clients() -> None:
    world = World().ready("GPU-a", "GPU-b").exited("GPU-a", "ended by signal 9")
    assert world.core.unready() == {"GPU-a": "ended by signal 9"}
    (lost,) = world.core.take_lost()
    assert (lost.spec.device, lost.reason) == ("GPU-a", "ended by signal 9")
    assert world.core.take_lost() == ()
    world.done(Work.KILL).after(FIRST_PAUSE_S).done(Work.START).done(Work.TEST)
    assert world.core.unready() == {}


def test_pauses_grow_to_a_bound_and_start_anew_after_a_steady_time() -> None:
    world = World().hold().want(spec())
    pauses = []
    for _ in range(12):
        world.failed(Work.START).done(Work.KILL)
        deadline_s = world.core.next_deadline_s()
        assert deadline_s is not None
        pauses.append(deadline_s - world.now_s)
        world.after(pauses[-1])
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    world.done(Work.START).done(Work.TEST).after(STEADY_S).done(Work.PROBE).exited().done(Work.KILL)
    assert world.core.next_deadline_s() == world.now_s + FIRST_PAUSE_S


def test_one_that_never_was_ready_has_no_clients_to_tell() -> None:
    world = World().hold().want(spec()).done(Work.START).failed(Work.TEST, reason="no CUDA")
    assert world.core.take_lost() == ()
    assert world.core.unready() == {"GPU-a": "no CUDA"}


def test_one_probe_that_fails_is_forgiven_and_three_are_not() -> None:
    world = World().ready("GPU-a").after(PROBE_S).failed(Work.PROBE).after(1.0).done(Work.PROBE)
    world.after(PROBE_S)
    for n in range(FAILED_PROBES):
        assert world.core.unready() == {}
        world.failed(Work.PROBE, reason="silence")
        if n < FAILED_PROBES - 1:
            world.after(1.0)
    assert "does not answer: silence" in world.core.unready()["GPU-a"]
    assert world.doing() == Work.KILL


def test_an_exit_during_other_work_is_mended_when_that_has_been_answered() -> None:
    world = World().ready("GPU-a").after(PROBE_S).exited()
    assert world.doing() == Work.PROBE
    world.done(Work.PROBE)
    assert world.doing() == Work.KILL


def test_other_limits_reach_a_running_daemon_without_an_end_to_its_clients() -> None:
    world = World().ready("GPU-a").want(spec(clients=4))
    assert world.open["GPU-a"] == Do(Work.LIMIT, spec(clients=4))
    assert world.core.unready() == {}
    world.done(Work.LIMIT)
    assert not world.open


def test_a_limit_that_fails_is_as_good_as_no_daemon() -> None:
    world = World().ready("GPU-a").want(spec(clients=4)).failed(Work.LIMIT, reason="keeps 50 %")
    assert world.core.unready() == {"GPU-a": "keeps 50 %"}


def test_a_daemon_that_is_not_wanted_any_more_goes_on_while_a_pod_holds_its_device() -> None:
    world = World().ready("GPU-a").hold("GPU-a").want()
    assert not world.open
    assert world.core.unready() == {}
    world.hold().done(Work.STOP)
    assert world.core.states() == ()


def test_one_that_is_wanted_again_while_it_stops_starts_anew() -> None:
    world = World().ready("GPU-a").want()
    assert world.doing() == Work.STOP
    world.want(spec()).done(Work.STOP)
    assert world.doing() == Work.START


def test_leftovers_wait_until_the_holders_are_known() -> None:
    world = World().want(leftover=[spec("GPU-a"), spec("GPU-b")])
    assert not world.open
    world.hold("GPU-a")
    assert {device: one.work for device, one in world.open.items()} == {"GPU-a": Work.START, "GPU-b": Work.STOP}


def test_what_cannot_be_says_why_and_harms_nobody_who_is_in() -> None:
    world = World().hold().want(spec(refused="found 64 clients"))
    assert world.core.unready() == {"GPU-a": "no MPS daemon: found 64 clients"}
    assert not world.open
    world.want(spec()).done(Work.START).done(Work.TEST).hold("GPU-a").want(spec(refused="found 64 clients"))
    assert not world.open
    world.hold()
    assert world.doing() == Work.KILL


def test_a_daemon_of_several_gpus_waits_for_those_of_each_to_end() -> None:
    world = World().ready("GPU-a", "GPU-b").hold("GPU-b").want(spec("GPU-a", "GPU-b"))
    assert world.doing("GPU-a") == Work.STOP, "it was started for one GPU"
    world.done(Work.STOP)
    assert not world.open
    waits = "the MPS daemon of GPU-b has to end first"
    assert world.core.unready() == {"GPU-a": waits, "GPU-b": waits}
    world.hold()
    assert world.doing("GPU-b") == Work.STOP
    world.done(Work.STOP, "GPU-b").done(Work.START).done(Work.TEST)
    assert world.core.unready() == {}
    assert [(one.device, one.devices) for one in world.core.states()] == [("GPU-a", ("GPU-a", "GPU-b"))]


def test_a_daemon_of_several_gpus_serves_those_that_are_left_and_is_started_anew_when_nobody_holds_them() -> None:
    world = World().hold().want(spec("GPU-a", "GPU-b")).done(Work.START).done(Work.TEST).hold("GPU-a")
    world.want(structs.replace(spec("GPU-a", "GPU-b"), several=(GpuUuid("GPU-a"),)))
    assert not world.open
    assert world.core.unready() == {}, "GPU-b is gone, and its clients' work on GPU-a goes on"
    world.exited().done(Work.KILL).after(FIRST_PAUSE_S).done(Work.START).done(Work.TEST)
    world.want(spec("GPU-a", "GPU-b"))
    assert not world.open
    assert world.core.unready().keys() == {"GPU-b"}, "it is back, and the daemon does not have it"
    world.hold("GPU-b")
    assert not world.open, "a pod that holds any of its devices keeps the daemon"
    world.hold().done(Work.STOP).done(Work.START).done(Work.TEST)
    assert world.core.unready() == {}


def test_a_reset_of_any_gpu_of_a_daemon_is_the_end_of_it() -> None:
    world = World().hold().want(spec("GPU-a", "GPU-b")).done(Work.START).done(Work.TEST)
    world.take(world.core.reset("GPU-b", world.now_s))
    assert world.core.unready() == {"GPU-a": "the GPU was reset", "GPU-b": "the GPU was reset"}


def test_what_an_earlier_agent_started_for_several_gpus_is_ended_before_each_has_its_own() -> None:
    world = World().want(spec("GPU-a"), spec("GPU-b"), leftover=[spec("GPU-a", "GPU-b")])
    assert (world.doing("GPU-a"), world.doing("GPU-b")) == (Work.START, None), "pods may hold it"
    world.done(Work.START, proven=True).hold()
    assert (world.doing("GPU-a"), world.doing("GPU-b")) == (Work.STOP, None)
    world.done(Work.STOP)
    assert (world.doing("GPU-a"), world.doing("GPU-b")) == (Work.START, Work.START)


def test_a_reset_gpu_gets_a_new_daemon() -> None:
    world = World().ready("GPU-a", "GPU-b")
    world.take(world.core.reset("GPU-b", world.now_s))
    assert world.core.unready() == {"GPU-b": "the GPU was reset"}


class AnyOrder(RuleBasedStateMachine):
    """Events in any order: the core stays sound, and left alone it comes to rest."""

    devices = st.sampled_from(["GPU-a", "GPU-b", "GPU-c"])

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.wanted: tuple[DaemonSpec, ...] = ()

    @rule(
        chosen=st.lists(st.tuples(devices, st.integers(1, 3), st.booleans()), unique_by=lambda one: one[0]),
        together=st.booleans(),
        found=st.sets(devices),
    )
    def want(self, chosen: list[tuple[str, int, bool]], *, together: bool = False, found: Iterable[str] = ()) -> None:
        self.wanted = tuple(spec(device, clients=n, refused="too many" if no else "") for device, n, no in chosen)
        if together and chosen:
            self.wanted = (spec(*(device for device, _, _ in chosen)),)
        self.world.want(*self.wanted, leftover=map(spec, sorted(found)))

    @rule(held=st.sets(devices))
    def hold(self, held: set[str]) -> None:
        self.world.hold(*held)

    @precondition(lambda self: self.world.open)
    @rule(data=st.data(), good=st.booleans(), proven=st.booleans())
    def answer(self, data: st.DataObject, good: bool, proven: bool) -> None:
        device = data.draw(st.sampled_from(sorted(self.world.open)))
        work = self.world.open[device].work
        if good:
            self.world.done(work, device, proven=proven)
        else:
            self.world.failed(work, device)

    @rule(device=devices)
    def exit(self, device: str) -> None:
        self.world.exited(device)

    @rule(device=devices)
    def reset(self, device: str) -> None:
        self.world.take(self.world.core.reset(device, self.world.now_s))

    @rule(seconds=st.floats(0, 200))
    def wait(self, seconds: float) -> None:
        self.world.after(seconds)

    @invariant()
    def losses_are_of_what_was_ready(self) -> None:
        for lost in self.world.core.take_lost():
            assert lost.reason

    def teardown(self) -> None:
        """When nothing goes wrong any more, what is wanted and possible gets ready, and all else is gone."""
        self.world.hold()
        for _ in range(30):
            for device, one in list(self.world.open.items()):
                self.world.done(one.work, device)
            self.world.after(LONGEST_PAUSE_S)
        possible = {device for one in self.wanted if not one.refused for device in one.devices}
        wanted = {device for one in self.wanted for device in one.devices}
        assert {one.device for one in self.world.core.states()} == {one.device for one in self.wanted}
        assert set(self.world.core.unready()) == wanted - possible


def test_a_refusal_ends_with_its_settings_though_the_old_daemon_is_still_being_killed() -> None:
    """A history that the machine found: state machines take no ``@example``."""
    state = AnyOrder()
    state.want([("GPU-a", 1, False), ("GPU-b", 1, False), ("GPU-c", 1, False)])
    state.want([("GPU-c", 1, True)])
    for _ in range(4):
        state.hold(set())
    state.world.done(Work.START, "GPU-c")
    assert state.world.doing("GPU-c") == Work.KILL
    assert state.world.phase("GPU-c") is Phase.REFUSED
    state.want([("GPU-c", 1, False)])
    assert state.world.phase("GPU-c") is Phase.STARTING
    state.teardown()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
