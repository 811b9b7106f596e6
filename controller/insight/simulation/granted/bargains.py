"""CapacityRequests in virtual time: asked of the engine in the ordinary order, answered at the moment they arrive, and
given back; and the jobs that run inside of what was granted.

A request's Workload is one of the run, under a name of its own, and is told by its request alone. A job inside of a
grant is no business of the engine, which is charged for the grant: it starts when the grant has units for it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from controller.insight.bargaining import life
from controller.insight.bargaining.arithmetic import Clock
from controller.insight.bargaining.desk import (
    Answer,
    Makes,
    answer_parts,
    elsewhere,
    is_preempting,
    most_free,
    most_had,
)
from controller.insight.bargaining.inside import Needs, Room, needs_of, places_of
from controller.insight.bargaining.life import Phase, Rules, Seen, State, Step, Want
from controller.insight.bargaining.wishes import Wish
from controller.insight.forecast.changes.changes import EndsAt
from controller.insight.forecast.parts import finished
from controller.insight.simulation.bargained.requests import GivenRequest
from controller.insight.simulation.manifests import Scenario
from controller.insight.simulation.report import flavors, placement, written_time
from controller.insight.simulation.submissions import Submission
from controller.insight.simulation.timeline import RequestEnd, RequestOffer, TimelineEntry, TimelineEvent
from controller.messages import bargains as words
from controller.objects.capacityrequests import GRANTED
from controller.objects.placeencoding import encode
from controller.objects.quantity import Quantity
from controller.objects.workload import Admission, PodSet, PodSetAssignment, Workload
from controller.scheduler.decisions import status
from controller.scheduler.engine import Engine
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import LocalQueueKey, WorkloadKey
from controller.scheduler.quota.queueusage import quantity_of

WAITING_FOR_GRANT: Final = "WaitingForGrant"
"""Reason of the event Pending of a job that runs inside of a grant and has no units of it."""
GRANT_ENDED: Final = "GrantEnded"
"""Reason of the event Evicted of a job whose grant has given its units back."""
ACCEPTED: Final = "Accepted"
"""Reason of the event Offered of a request that has accepted an offer and waits for it."""
_PASSES: Final = 10_000
"""Changes of requests at one moment: more would mean that two of them never settle."""


class Host(Protocol):
    """What a run does for the requests."""

    engine: Engine
    now_s: float
    workloads: dict[WorkloadKey, Workload]
    entries: list[TimelineEntry]

    def ask(self, given: Submission) -> None: ...

    def withdraw(self, key: WorkloadKey) -> None: ...

    def put(self, workload: Workload) -> None: ...

    def begin_inside(self, workload: Workload, message: str) -> None: ...

    def end_inside(self, key: WorkloadKey, reason: str, message: str) -> None: ...

    def awaits_s(self, key: WorkloadKey) -> float: ...


class _File:
    """One request. ``key`` is its Workload's; ``units`` and ``asks`` say which Workload was asked for last."""

    def __init__(self, given: GivenRequest) -> None:
        self.given = given
        self.key = WorkloadKey(f"{given.request.metadata.namespace}/{given.name}")
        self.state = State()
        self.asks: Want | None = None
        self.units = 0
        self.asked_s = 0.0
        """When the Workload was asked for: a smaller one in its place keeps its age."""
        self.waits = False
        """Whether nothing of what is asked for starts now."""
        self.lost = ""
        self.due_s: float | None = None
        self.room: Room | None = None
        self.told: tuple[object, ...] = ()


class Bargains:
    """The requests of a run and the jobs inside of their grants. ``steps`` counts what was changed: a state of the run
    in which it is another is another state.
    """

    def __init__(
        self,
        scenario: Scenario,
        host: Host,
        *,
        runs: Callable[[WorkloadKey], float | None],
        ends_at: Callable[[], EndsAt],
    ) -> None:
        self.steps = 0
        self._coming = list(reversed(scenario.requests))
        self._host = host
        self._base_s, self._start_told = scenario.base_s, scenario.start_told
        self._runs, self._ends_at = runs, ends_at
        self._files: dict[str, _File] = {}
        """Requests that have arrived, by their own key, in the order of their arrival."""
        self._by_workload: dict[WorkloadKey, _File] = {}
        self._jobs: dict[WorkloadKey, tuple[str, Submission]] = {}
        """Jobs that have arrived and run inside of a grant, with the request that each names."""
        self._waits: dict[WorkloadKey, str] = {}
        """Why a job of ``_jobs`` has no units."""
        say = written_time if scenario.start_told else self._span
        self._rules = Rules(say=say, longest_hold_s=scenario.longest_hold_s)

    def __bool__(self) -> bool:
        """Whether a request may still change something."""
        return bool(self._coming) or any(each.state.state not in life.FINAL for each in self._files.values())

    @property
    def over(self) -> int:
        """The number of requests of which nothing more comes."""
        return sum(each.state.state in life.FINAL for each in self._files.values())

    def _span(self, at_s: float) -> str:
        return f"t = {format(at_s - self._base_s, '.6f').rstrip('0').rstrip('.')}"

    # -- what the run asks -------------------------------------------------------------------------------------------

    def owns(self, key: str) -> bool:
        """Whether the workload is a request's."""
        return key in self._by_workload

    def is_inside(self, key: str) -> bool:
        """Whether the job runs inside of a grant."""
        return key in self._jobs

    def waits(self, key: WorkloadKey) -> tuple[str, str] | None:
        """Why a job that runs inside of a grant waits; None for one that runs, and for any other workload."""
        return (WAITING_FOR_GRANT, self._waits[key]) if key in self._waits else None

    def waiting(self) -> Iterator[tuple[WorkloadKey, str]]:
        yield from self._waits.items()

    def next_s(self) -> float | None:
        """When the clock alone changes something for a request."""
        times = [self._base_s + self._coming[-1].arrival_s] if self._coming else []
        times += [each.due_s for each in self._files.values() if each.due_s is not None]
        return min(times, default=None)

    # -- what happens ------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Takes in the requests that have come by now."""
        now_s = self._host.now_s
        while self._coming and self._base_s + self._coming[-1].arrival_s <= now_s:
            found = _File(self._coming.pop())
            self._files[found.given.key] = self._by_workload[found.key] = found

    def join(self, given: Submission) -> None:
        """A job arrives that names a request."""
        namespace = given.workload.metadata.namespace
        key = WorkloadKey(given.key)
        self._jobs[key] = (f"{namespace}/{given.grant}", given)
        self._waits[key] = ""

    def left(self, key: WorkloadKey) -> None:
        """A job inside of a grant has ended."""
        name, _ = self._jobs.pop(key)
        self._waits.pop(key, None)
        found = self._files.get(name)
        if found is not None and found.room is not None:
            found.room.give_back(key)

    def lost(self, key: WorkloadKey, why: str) -> None:
        """The engine has evicted a request's Workload, and the run has taken it out."""
        found = self._by_workload[key]
        found.lost = why
        if found.state.state == GRANTED:
            self._move(found)

    def settle(self) -> bool:
        """Moves all requests on, now that the engine has decided. Returns whether it has to decide again."""
        before = self.steps
        for found in list(self._files.values()):
            self._move(found)
            if self.steps - before > _PASSES:
                raise RuntimeError("capacity requests do not settle: this is a bug")
        for key in list(self._waits):
            self._start(key)
        return self.steps != before

    # -- one request -------------------------------------------------------------------------------------------------

    def _move(self, found: _File) -> None:
        now_s, wish = self._host.now_s, self._wish(found)
        taken = life.step(wish, found.state, self._seen(found), now_s, self._rules)
        while taken.ask:
            self._take(found, taken)
            answer = self._answer(found, now_too=taken.now_too)
            if answer.refusal:
                taken = life.refused(answer.refusal)
            else:
                taken = life.answered(wish, taken.state, answer.offers, now_s, self._rules)
        self._take(found, taken)

    def _wish(self, found: _File) -> Wish:
        """The request as it is now."""
        return found.given.wish

    def _take(self, found: _File, taken: Step) -> None:
        """Makes a step: the Workload that it wants is asked for, and one that it does not want is withdrawn."""
        was = found.state
        found.state, found.due_s = taken.state, taken.due_s
        room = found.room if was.state == GRANTED and found.state.state != GRANTED else None
        want = taken.want
        if want is None:
            self._withdraw(found)
        elif found.state.state != GRANTED and (found.asks is None or found.asks.offer != want.offer or found.lost):
            self._withdraw(found)
            found.asks, found.asked_s = want, self._host.now_s
            units = self._most(found, want, want.most)
            if units or not want.free_only:
                self._ask(found, units or want.least)
            else:
                found.waits = True
                self.steps += 1
        elif was.state != GRANTED and found.state.state == GRANTED and found.asks is not None:
            self._relabel(found, msgspec.structs.replace(found.asks, lasts_s=want.lasts_s))
        if taken.told:
            self._tell(found)
        if room is not None:
            self._close(found, room)

    def _withdraw(self, found: _File) -> None:
        if found.key in self._host.workloads:
            self._host.withdraw(found.key)
        self.steps += found.asks is not None
        found.asks, found.room, found.waits, found.lost = None, None, False, ""

    def _ask(self, found: _File, units: int) -> None:
        """Puts a Workload of so many units into the queue, in place of the one before."""
        assert found.asks is not None
        if found.key in self._host.workloads:
            self._host.withdraw(found.key)
        found.units, found.room, found.waits = units, None, False
        workload = self._made(found, found.asks, units)
        given = found.given
        submission = Submission(
            order=given.order, arrival_s=given.arrival_s, runtime_s=found.asks.lasts_s, workload=workload
        )
        self._host.ask(submission)
        self.steps += 1

    def _relabel(self, found: _File, want: Want) -> None:
        """Writes into the Workload how long it holds its units, now that they are granted."""
        held, made = self._host.workloads[found.key], self._made(found, want, found.units)
        metadata = msgspec.structs.replace(held.metadata, annotations=made.metadata.annotations)
        self._host.put(msgspec.structs.replace(held, metadata=metadata))

    def _made(self, found: _File, want: Want, units: int) -> Workload:
        made = found.given.workload(units, found.asked_s, lasts_s=want.lasts_s, offer=want.offer)
        return (elsewhere(made) or made) if want.elsewhere else made

    def _most(self, found: _File, want: Want, most: int) -> int:
        """The largest number of units that it gets at once, of those that are wanted; 0 for none."""
        if most < want.least:
            return 0
        engine, now_s = self._host.engine, self._host.now_s

        def make(units: int) -> Workload:
            return self._made(found, want, units)

        if want.free_only:
            return most_free(engine, make, want.least, most, now_s)
        return most_had(engine, make, want.least, most, now_s).units

    def _seen(self, found: _File) -> Seen | None:
        """What has become of the request's Workload. While fewer units than were asked for would do, these are asked
        for in their place.
        """
        want, key = found.asks, found.key
        if want is None:
            return None
        seen = Seen(phase=Phase.QUEUED, units=found.units, offer=want.offer)
        replace = msgspec.structs.replace
        workload = self._host.workloads.get(key)
        if workload is None:
            return replace(seen, phase=Phase.WAITS if found.waits else Phase.LOST, why=found.lost)
        admission = workload.status.admission
        if admission is not None:
            if found.state.state != GRANTED and found.room is None:
                found.room = Room(places_of(admission, found.units))
            used = found.room.used if found.room is not None else 0
            flavor = ", ".join(sorted({on for each in admission.pod_set_assignments for on in each.flavors.values()}))
            begins_s = self._host.awaits_s(key)
            return replace(seen, phase=Phase.HOLDS, flavor=flavor, begins_s=begins_s, used=used)
        engine, now_s = self._host.engine, self._host.now_s
        if not found.waits and (not engine.settled(now_s) or is_preempting(engine, key, now_s)):
            return seen
        fewer = 0 if found.waits else self._most(found, want, found.units - 1)
        if fewer or (not found.waits and not want.free_only and found.units > want.least):
            self._ask(found, fewer or want.least)
            return seen
        found.waits = True
        return replace(seen, phase=Phase.WAITS)

    def _answer(self, found: _File, *, now_too: bool) -> Answer:
        request, now_s = found.given, self._host.now_s
        found.asked_s = now_s
        want = Want(least=request.wish.least, most=request.wish.most, lasts_s=request.wish.duration_s)
        away = msgspec.structs.replace(want, elsewhere=True)
        is_bound = elsewhere(self._made(found, want, 1)) is not None
        makes = Makes(
            lambda units: self._made(found, want, units),
            (lambda units: self._made(found, away, units)) if is_bound else None,
        )
        clock = Clock(now_s, self._ends_at(), self._runs, self._rules.say)
        return finished(answer_parts(self._host.engine, request.wish, makes, clock, now_too=now_too))

    # -- jobs inside of a grant --------------------------------------------------------------------------------------

    def _close(self, found: _File, room: Room) -> None:
        """The grant is over: its jobs stop."""
        for key in room.jobs:
            self._waits[key] = ""
            said = words.grant_ended(found.given.key, found.state.message)
            self._host.end_inside(key, GRANT_ENDED, said)
            self.steps += 1

    def _start(self, key: WorkloadKey) -> None:
        """Starts a job that waits for units, or says why it waits."""
        name, job = self._jobs[key]
        file = self._files.get(name)
        if file is None:
            coming = any(each.key == name for each in self._coming)
            self._waits[key] = words.waits_for_grant(name) if coming else words.no_such_request(name)
            return
        state = file.state
        if state.state != GRANTED or file.room is None:
            over = state.state in life.FINAL
            self._waits[key] = words.grant_is_over(name, state.state) if over else words.waits_for_grant(name)
            return
        holder = self._host.engine.state.cluster.holders[file.key]
        counted = self._host.engine.state.cluster.queue(holder.cluster_queue).group_of
        needs = needs_of(job.workload, file.given.wish.unit, counted)
        if needs.outside:
            self._waits[key] = words.outside_of_unit(name, ", ".join(needs.outside))
        elif needs.units > state.units:
            self._waits[key] = words.larger_than_grant(name, needs.units, state.units)
        elif self._host.now_s < (state.from_s or 0.0) or not file.room.take(key, needs):
            self._waits[key] = words.waits_for_units(name, needs.units, file.room.free)
        else:
            del self._waits[key]
            workload = self._inside(file, job.workload, needs)
            got = _amounts(workload)
            self._host.begin_inside(workload, words.admitted_inside(got, name))
            self._move(file)
            self.steps += 1

    def _inside(self, found: _File, workload: Workload, needs: Needs) -> Workload:
        """The job's Workload with the flavors and places of the units that it has."""
        held = self._host.workloads[found.key].status.admission
        assert held is not None
        assert found.room is not None
        of_grant = held.pod_set_assignments[0]
        key = WorkloadKey(workload.key)
        sets: list[PodSetAssignment] = []
        for need, pod_set in zip(needs.pods, workload.spec.pod_sets, strict=True):
            usage = _usage(pod_set)
            domains = found.room.domains(key, need.pod_set)
            places = of_grant.topology_assignment
            sets.append(
                PodSetAssignment(
                    name=need.pod_set,
                    flavors={name: on for name, on in of_grant.flavors.items() if name in usage},
                    resource_usage={name: each for name, each in usage.items() if name in of_grant.flavors},
                    count=need.pods,
                    topology_assignment=encode(places.levels, domains) if places is not None and domains else None,
                )
            )
        admission = Admission(cluster_queue=held.cluster_queue, pod_set_assignments=tuple(sets))
        gates = self._host.engine.state.config.gates
        return status.reserved(workload, admission, checks=(), now_s=self._host.now_s, gates=gates)

    # -- what is told ------------------------------------------------------------------------------------------------

    def _tell(self, found: _File) -> None:
        """Tells of a request whose answer is another than it was."""
        state = found.state
        said = (state.state, tuple(each.id for each in state.offers), state.accepted)
        if not state.state or said == found.told:
            return
        found.told = said
        workload = self._host.workloads.get(found.key)
        self.steps += 1
        host, request = self._host, found.given.request
        workload = host.workloads.get(found.key)
        local = LocalQueueKey(f"{request.metadata.namespace}/{request.spec.queue_name}")
        queue = host.engine.state.cluster.local_queues.get(local)
        host.entries.append(
            TimelineEntry(
                t=self._t(host.now_s) or 0.0,
                time=written_time(host.now_s) if self._start_told else None,
                event=TimelineEvent(state.state),
                workload=found.given.key,
                cluster_queue=queue.spec.cluster_queue if queue is not None else "",
                reason=ACCEPTED if state.accepted else state.state,
                message=state.message,
                flavors=flavors(workload) if workload is not None else {},
                placement=placement(host.engine, workload) if workload is not None else (),
            )
        )

    def ends(self) -> dict[str, RequestEnd]:
        """The requests that have arrived, as they are at the end."""
        return {name: self._end(found) for name, found in sorted(self._files.items())}

    def _end(self, found: _File) -> RequestEnd:
        state = found.state
        return RequestEnd(
            state=state.state,
            units=state.units,
            from_=self._t(state.from_s),
            until=self._t(state.until_s),
            flavor=state.flavor,
            offers=tuple(
                RequestOffer(
                    id=offer.id,
                    units=offer.units,
                    from_=self._t(offer.from_s) or 0.0,
                    until=self._t(offer.until_s),
                    flavor=offer.flavor,
                    stands_until=self._t(offer.stands_until_s) or 0.0,
                    held=offer.held,
                    why=offer.why,
                )
                for offer in state.offers
            ),
            accepted=state.accepted,
            message=state.message,
            workload=found.key if found.key in self._host.workloads else "",
            used=state.used,
        )

    def _t(self, at_s: float | None) -> float | None:
        return None if at_s is None else round(at_s - self._base_s, 6)

    def validate(self) -> None:
        """What holds of all requests once a moment has settled. AssertionError for what does not."""
        for file in self._files.values():
            life.validate(self._wish(file), file.state, self._seen(file))
            if file.room is not None:
                file.room.validate()
                assert file.state.state != GRANTED or file.room.used == file.state.used
        for key in self._waits:
            assert key in self._jobs


def _usage(pod_set: PodSet) -> Mapping[str, Quantity]:
    """What all pods of a set request."""
    asked = one_pod(pod_set.template.spec)
    return {name: quantity_of(name, amount * pod_set.count) for name, amount in asked.items() if amount}


def _amounts(workload: Workload) -> str:
    admission = workload.status.admission
    clauses = [
        f"{amount} {name} of flavor {each.flavors[name]}"
        for each in (admission.pod_set_assignments if admission is not None else ())
        for name, amount in each.resource_usage.items()
    ]
    return ", ".join(clauses) or "its places"
