"""Never two holders, simulated: slow and lost requests, clocks that run at different speeds, crashes and pauses."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.election.candidate import (
    Candidate,
    Create,
    Identity,
    LeaseRecord,
    LeaseRequest,
    LeaseSpec,
    LeaseTiming,
    Read,
    Replace,
)
from kube.errors import ConflictError, KubeError, NotFoundError, UnavailableError

TIMING = LeaseTiming()
WALL_S = 1_700_000_000.0


class Server:
    """One Lease, as the API server keeps it."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self._versions = itertools.count(1)

    def serve(self, request: LeaseRequest) -> LeaseRecord | KubeError:
        match request:
            case Read():
                return self.record or NotFoundError("gone", status=404)
            case Create(spec=spec):
                return ConflictError("taken", status=409) if self.record else self._store(spec)
            case Replace(spec=spec, version=version):
                if self.record is None:
                    return NotFoundError("gone", status=404)
                if self.record.version != version:
                    return ConflictError("modified", status=409)
                return self._store(spec)

    def _store(self, spec: LeaseSpec) -> LeaseRecord:
        self.record = LeaseRecord(spec, str(next(self._versions)))
        return self.record


@dataclass
class Process:
    """A candidate with a clock of its own speed, which may start anywhere."""

    name: str
    rate: float
    offset_s: float
    timing: LeaseTiming = TIMING
    candidate: Candidate = field(init=False)
    alive: bool = True
    paused_until_s: float = 0.0
    stalled_since_s: float = 0.0
    stalled_until_s: float = 0.0
    """The loop that acts stands still, while what asks for the lease goes on beside it."""

    def __post_init__(self) -> None:
        self.candidate = Candidate(Identity(self.name), self.timing)

    def clock_s(self, now_s: float) -> float:
        return self.offset_s + now_s * self.rate

    def life_s(self, now_s: float) -> float:
        return self.clock_s(self.stalled_since_s if now_s < self.stalled_until_s else now_s)

    def must_have_lost(self, now_s: float) -> bool:
        """Whether its loop stands still for longer than a lease can be renewed before, and then lasts."""
        still_s = (now_s - self.stalled_since_s) * self.rate
        return now_s < self.stalled_until_s and still_s > self.timing.lease_s / 3 + self.timing.renew_s

    def acts(self, now_s: float) -> bool:
        return self.alive and self.candidate.held_for(self.clock_s(now_s)) > 0


class World:
    """Events in order of time, and the one rule checked after each."""

    def __init__(self, seed: int, rates: list[float]) -> None:
        self.draw = random.Random(seed)
        self.server = Server()
        self.now_s = 0.0
        self.faults = True
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._born = itertools.count()
        self.rates = rates
        self.processes = [self.spawn(rate) for rate in rates]
        self.led: list[str] = []

    def spawn(self, rate: float) -> Process:
        process = Process(f"p{next(self._born)}", rate, self.draw.uniform(-1e6, 1e6))
        self.at(self.draw.uniform(0, 2), lambda: self.round(process))
        return process

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_s + delay_s, next(self._order), act))

    def run(self, until_s: float) -> None:
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._queue)
            act()
            acting = [process.name for process in self.processes if process.acts(self.now_s)]
            assert len(acting) <= 1, f"{acting} act together at {self.now_s:.3f}"
            still = [process.name for process in self.processes if process.must_have_lost(self.now_s)]
            assert not set(acting) & set(still), f"{acting} stands still and holds the lease at {self.now_s:.3f}"
            if acting and acting != self.led[-1:]:
                self.led += acting
        self.now_s = until_s

    def round(self, process: Process) -> None:
        if not process.alive:
            return
        process.candidate.begin(process.clock_s(self.now_s))
        self.ask(process)

    def ask(self, process: Process, left: int = 6) -> None:
        request = process.candidate.ask(process.clock_s(self.now_s), WALL_S + self.now_s, process.life_s(self.now_s))
        if request is None or left == 0:
            self.at(TIMING.retry_s / process.rate * self.draw.uniform(1, 1.2), lambda: self.round(process))
            return
        there_s, back_s = self.delays()
        fate = self.draw.random() if self.faults else 1.0
        # Longer than the 5 s that a request may take: given up, while it may still arrive.
        late = there_s + back_s > 5
        if fate < 0.1 or late:
            if fate > 0.05:
                self.at(there_s, lambda: void(self.server.serve(request)))
            self.at(min(5, there_s + back_s), lambda: self.answer(process, request, UnavailableError("lost"), left))
            return

        def arrive() -> None:
            answer = self.server.serve(request)
            self.at(back_s, lambda: self.answer(process, request, answer, left))

        self.at(there_s, arrive)

    def delays(self) -> tuple[float, float]:
        if not self.faults:
            return 0.01, 0.01
        return self.draw.choice([0.01, 0.5, 3.0, 20.0]) * self.draw.random(), self.draw.choice(
            [0.01, 4.0]
        ) * self.draw.random()

    def answer(self, process: Process, request: LeaseRequest, answer: LeaseRecord | KubeError, left: int) -> None:
        if not process.alive:
            return
        if self.now_s < process.paused_until_s:  # it stands still; its clock does not
            self.at(process.paused_until_s - self.now_s, lambda: self.answer(process, request, answer, left))
            return
        process.candidate.answered(request, answer, process.clock_s(self.now_s))
        self.ask(process, left - 1)

    def disturb(self) -> None:
        if not self.faults:
            return
        victim = self.draw.choice(self.processes)
        match self.draw.choice(["kill", "pause", "pause", "leave", "stall", "stall"]):
            case "kill":
                victim.alive = False
            case "pause":
                victim.paused_until_s = self.now_s + self.draw.uniform(0, 40)
            case "stall":
                victim.stalled_since_s = self.now_s
                victim.stalled_until_s = self.now_s + self.draw.uniform(0, 60)
            case "leave":
                victim.candidate.leave()
        if not victim.alive or victim.candidate._leaving:
            # A process that left ends when its goodbye has been sent; here it simply never campaigns again.
            self.processes = [one for one in self.processes if one is not victim] + [self.spawn(victim.rate)]
        self.at(self.draw.expovariate(1 / 15), self.disturb)


def void(_: object) -> None:
    pass


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), rates=st.lists(st.floats(0.85, 1.2), min_size=2, max_size=4), crashes=st.booleans())
@example(seed=2938, rates=[0.85, 0.85], crashes=True)  # a disturbance was due long after peace had come
def test_no_two_hold_it_whatever_is_lost_late_still_or_dead_and_one_holds_it_when_peace_returns(
    seed: int, rates: list[float], crashes: bool
) -> None:
    world = World(seed, rates)
    if crashes:
        world.at(5, world.disturb)
    world.run(300)
    world.faults = False
    world.run(400)
    assert any(process.acts(world.now_s) for process in world.processes), "nobody leads"


class Talk:
    """A candidate and a server without delays, for one story at a time."""

    def __init__(self, server: Server, name: str, *, absent_is_held: bool = False) -> None:
        self.server = server
        self.candidate = Candidate(Identity(name), TIMING, absent_is_held=absent_is_held)

    def round(self, now_s: float, answer: Callable[[LeaseRequest], LeaseRecord | KubeError] | None = None) -> list[str]:
        self.candidate.begin(now_s)
        return self.go_on(now_s, answer)

    def go_on(self, now_s: float, answer: Callable[[LeaseRequest], LeaseRecord | KubeError] | None = None) -> list[str]:
        made = []
        while (request := self.candidate.ask(now_s, WALL_S + now_s)) is not None:
            made.append(type(request).__name__)
            self.candidate.answered(request, (answer or self.server.serve)(request), now_s)
        return made


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_holder_renews_with_one_request(server: Server) -> None:
    a = Talk(server, "a")
    assert a.round(0) == ["Read", "Create"]
    assert a.round(2) == ["Replace"]
    assert a.candidate.held_for(2) == 10


def test_a_lease_is_renewed_only_while_the_loop_that_acts_shows_life(server: Server) -> None:
    a = Talk(server, "a")
    a.round(0)
    a.candidate.begin(5)
    assert a.candidate.ask(5, WALL_S, 0) is not None, "a third of the lease"
    a.candidate.begin(5.1)
    assert a.candidate.ask(5.1, WALL_S, 0) is None
    assert a.candidate.held_for(9.9) > 0, "it lasts as long as it was renewed for"
    assert a.candidate.held_for(10) == 0
    a.candidate.begin(10)
    assert a.candidate.ask(10, WALL_S, 0) == Read()
    assert server.record is not None
    a.candidate.answered(Read(), server.record, 10)
    assert a.candidate.ask(10, WALL_S, 0) is None, "and it is not acquired anew"
    assert isinstance(a.candidate.ask(10, WALL_S, 9), Replace)


def test_a_loop_that_stands_still_acquires_nothing_and_lets_go_of_what_it_has(server: Server) -> None:
    a = Talk(server, "a")
    a.candidate.begin(100)
    a.candidate.answered(Read(), NotFoundError("gone", status=404), 100)
    assert a.candidate.ask(100, WALL_S, 90) is None
    a.round(100)
    a.candidate.leave()
    assert isinstance(a.candidate.ask(200, WALL_S, 100), Replace), "a release waits for no sign of life"


def test_a_foreign_lease_is_taken_a_whole_duration_after_its_last_change_was_seen(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    a.round(0)
    assert b.round(100) == ["Read"], "it was renewed long ago by its own words, but we have just met"
    assert b.round(114.9) == ["Read"]
    assert b.round(115.1) == ["Read", "Replace"]
    assert server.record is not None
    assert server.record.spec.lease_transitions == 1
    assert a.round(115.2, lambda _: UnavailableError("down")) == ["Read"]
    assert a.candidate.held_for(115.2) == 0


def test_a_lease_that_changed_hands_as_often_as_the_api_counts_is_taken_all_the_same(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    a.round(0)
    assert server.record is not None
    spec = msgspec.structs.replace(server.record.spec, lease_transitions=2**31 - 1)
    server.record = LeaseRecord(spec, server.record.version)
    b.round(100)
    assert b.round(115.1) == ["Read", "Replace"]
    assert server.record.spec.lease_transitions == 2**31 - 1


def test_what_is_held_counts_from_before_the_request_was_sent(server: Server) -> None:
    a = Talk(server, "a")
    a.candidate.begin(0)
    a.candidate.answered(Read(), NotFoundError("gone", status=404), 0)
    request = a.candidate.ask(1, WALL_S)
    assert request is not None
    a.candidate.answered(request, server.serve(request), 5)
    assert a.candidate.held_for(5) == 6


def test_a_lease_that_was_let_go_is_free_at_once(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    a.round(0)
    b.round(1)
    a.candidate.leave()
    assert a.candidate.held_for(1) == 0
    assert a.go_on(1) == ["Replace"]
    assert b.round(1.1) == ["Read", "Replace"]


def test_who_never_held_it_leaves_without_a_word(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    a.round(0)
    b.round(0)
    b.candidate.leave()
    assert b.go_on(0) == []


def test_a_renewal_whose_answer_was_lost_is_found_to_be_ours(server: Server) -> None:
    a = Talk(server, "a")

    def lose(request: LeaseRequest) -> LeaseRecord | KubeError:
        answer = server.serve(request)
        return answer if isinstance(request, Read) else UnavailableError("lost")

    assert a.round(0, lose) == ["Read", "Create"]
    assert a.candidate.held_for(0) == 0, "we do not know"
    assert a.round(3) == ["Read", "Replace"]
    assert a.candidate.held_for(3) == 10


def test_the_loser_of_a_race_reads_again_and_waits(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    for one in (a, b):
        one.candidate.begin(0)
        one.candidate.answered(Read(), NotFoundError("gone", status=404), 0)
    assert a.go_on(0) == ["Create"]
    assert b.go_on(0) == ["Create", "Read"]
    assert (a.candidate.held_for(0), b.candidate.held_for(0)) == (10, 0)
    assert b.candidate.holder == "a"


def test_a_lease_deleted_under_its_holder_is_still_owed_to_it(server: Server) -> None:
    a, b = Talk(server, "a"), Talk(server, "b")
    a.round(0)
    b.round(1)
    server.record = None
    assert b.round(3) == ["Read"]
    assert b.candidate.held_for(3) == 0
    assert a.round(4) == ["Replace", "Read", "Create"]
    assert a.candidate.held_for(4) == 10


def test_a_namespace_that_is_not_there_holds_nobody_else(server: Server) -> None:
    def absent(_: LeaseRequest) -> KubeError:
        return NotFoundError("namespaces kueue-system not found", status=404)

    ours, theirs = Talk(server, "a", absent_is_held=True), Talk(server, "b")
    ours.round(0, absent)
    theirs.round(0, absent)
    assert (ours.candidate.held_for(0), theirs.candidate.held_for(0)) == (10, 0)
    theirs.round(2)
    assert theirs.candidate.held_for(2) == 10
    assert ours.round(2.1) == ["Create", "Read"]
    assert ours.candidate.held_for(2.1) == 0, "the namespace is there, and somebody else was faster"


@pytest.mark.parametrize("absent_is_held", [True, False])
def test_where_the_namespace_is_not_there_a_round_is_one_request(server: Server, absent_is_held: bool) -> None:
    def absent(_: LeaseRequest) -> KubeError:
        return NotFoundError("namespaces tessera not found", status=404)

    a = Talk(server, "a", absent_is_held=absent_is_held)
    assert a.round(0, absent) == ["Read", "Create"]
    assert a.candidate.namespace_absent
    assert a.round(2, absent) == a.round(4, absent) == ["Create"]
    assert a.round(6) == ["Create"], "the namespace is there now, and the lease is made at once"
    assert a.candidate.held_for(6) == 10
    assert not a.candidate.namespace_absent
    assert a.round(8) == ["Replace"]


def test_times_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ValueError, match="expected lease > renew > retry > 0"):
        LeaseTiming(lease_s=10, renew_s=10)
