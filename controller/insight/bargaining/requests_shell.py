"""CapacityRequests of a cluster, live.

CapacityRequests, Workloads, pods that name a request -> controller.insight.bargaining.life -> one Workload for each
request, the request's status, pods that start inside of a grant

A request's Workload is an ordinary one, owned by the request: whether units are there the engine alone decides. The
Workload keeps a finalizer until no pod runs inside of it, so that quota is given back after its pods have ended.

Where bargaining is off nothing is watched until a Workload of a request is seen: then what was granted is brought to
its end, and all else that has a Workload is ended.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.cluster.config.settings import BargainingRules
from controller.cluster.watching.catchup import catch_up
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import CAPACITY_PODS, CAPACITY_REQUESTS, PODS, RawWorkloads
from controller.cluster.watching.ledger import Ledger, WrittenVersions
from controller.cluster.watching.workqueue import NotYetError, WorkQueue
from controller.cluster.writing.stampedwrites import Stamped, failure, stamped_write
from controller.core import Core
from controller.insight.bargaining import file as files
from controller.insight.bargaining import life
from controller.insight.bargaining.arithmetic import Clock as Answering
from controller.insight.bargaining.asking import time_of
from controller.insight.bargaining.desk import Answer, Makes, answer_parts, is_preempting, most_free, most_had
from controller.insight.bargaining.file import File, Own
from controller.insight.bargaining.granted_shell import GrantedPods, Tell
from controller.insight.bargaining.kept import Json, KeptRequest, read_request, status_of
from controller.insight.bargaining.life import Phase, Rules, Seen, State, Step, Want
from controller.insight.bargaining.wishes import POD_SET, Composer, notes, workload_name
from controller.insight.forecast.forecast import Forecaster
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.service_shell import BusyError, ForecastService
from controller.jobs.framework import names
from controller.jobs.framework.actions import CreateWorkload, SetPodsReady, SetReclaimable, WorkloadAction
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.steps import delete, remove_finalizers, update
from controller.messages import bargains as words
from controller.objects.capacityrequests import API_VERSION, GRANTED, KIND
from controller.objects.decode import decode
from controller.objects.meta import is_true
from controller.objects.workload import Workload
from controller.reconcile.jobshell.indexes import note
from controller.reconcile.jobshell.watched import keep_job, seen_workload
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.pods.actions_shell import PodActions
from controller.scheduler.decisions import status
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from inventory.api.names import CAPACITY_OFFER, CAPACITY_REQUEST, RUNTIME
from kube.client import Client, Selection
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.writing.writer import Writer
from kube.writing.writes import Missing, Outcome, Verb, Write, Written

_TRIED: Final = "tried"
"""The name and uid of a Workload that is only tried."""
_ROUNDS: Final = 8
"""Steps of one request at a time: more would mean that it never settles."""
_LONGEST_S: Final = 300.0


class CapacityController:
    """``hear`` takes changes of requests and pods, ``workload`` of Workloads; ``run``, from when all of them are known,
    works until cancelled.

    ``_files`` has a file of each request that exists; ``_owns`` the Workloads by the uid of the request that controls
    them, and ``_pods`` the pods by the request that they name.
    """

    def __init__(  # noqa: PLR0913
        self,
        engine: Engine,
        ledger: Ledger,
        raws: RawWorkloads,
        feeds: Feeds,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        client: Client,
        workloads: WorkloadActions,
        pods: GrantedPods,
        composer: Composer,
        forecasts: ForecastService,
        rules: Rules,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._raws = raws
        self._feeds = feeds
        self._put = put
        self._client = client
        self._workloads = workloads
        self._granted = pods
        self._composer = composer
        self._forecasts = forecasts
        self._rules = rules
        self._clock = clock
        self._queue = WorkQueue[ObjectKey]("capacity requests", self._reconcile)
        self._files: dict[ObjectKey, File] = {}
        self._owns: dict[str, set[WorkloadKey]] = {}
        self._pods: dict[ObjectKey, set[ObjectKey]] = {}
        self._written = WrittenVersions()
        self._due = asyncio.Event()
        self._needed = asyncio.Event()
        """Whether a Workload of a request has been seen."""

    # -- events --------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key) | Changed(key=key) | Removed(key=key) if observed.resource == CAPACITY_REQUESTS:
                self._queue.put(key)
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == CAPACITY_PODS:
                self._pod(key, SeenPod(entry.object.json), gone=False)
            case Removed(key=key, old=entry) if observed.resource == CAPACITY_PODS:
                self._granted.forget(key, entry.uid)
                self._pod(key, SeenPod(entry.object.json), gone=True)

    def _pod(self, key: ObjectKey, pod: SeenPod, *, gone: bool) -> None:
        named = pod.raw.get("metadata", {}).get("labels", {}).get(CAPACITY_REQUEST)
        if isinstance(named, str):
            request = ObjectKey(key.namespace, named)
            note(self._pods, request, key, gone=gone)
            self._queue.put(request)

    def workload(self, workload: Workload, gone: bool) -> None:
        for owner in workload.metadata.owner_references:
            if (owner.api_version, owner.kind) == (API_VERSION, KIND) and owner.controller:
                key, request = WorkloadKey(workload.key), ObjectKey(workload.metadata.namespace, owner.name)
                self._needed.set()
                note(self._owns, owner.uid, key, gone=gone)
                found = self._files.get(request)
                if gone and found is not None and found.uid == owner.uid:
                    found.gone(workload.metadata.uid, workload.metadata.annotations.get(CAPACITY_OFFER, ""))
                self._queue.put(request)

    # -- work ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """None is decided on before all pods inside of grants are known: a former leader may have started some."""
        if not self._rules.answers:
            await self._needed.wait()
            await self._feeds.follow(CAPACITY_REQUESTS, read_request)
            await self._feeds.follow(CAPACITY_PODS, keep_job)
            await self._feeds.listed(CAPACITY_REQUESTS)
            await self._feeds.listed(CAPACITY_PODS)
        seen = Selection(label_selector=CAPACITY_PODS.selector)
        await catch_up(self._client, self._feeds[CAPACITY_PODS], self._clock, PODS, seen)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="capacity-requests")
            group.create_task(self._keep_time(), name="capacity-requests-due")

    async def _keep_time(self) -> None:
        while True:
            self._due.clear()
            now_s = self._clock.wall()
            next_s = math.inf
            for key, file in self._files.items():
                if file.due_s is not None and file.due_s <= now_s:
                    file.due_s = None
                    self._queue.put(key)
                elif file.due_s is not None:
                    next_s = min(next_s, file.due_s)
            await self._clock.wait(self._due, min(max(next_s - now_s, 0.05), _LONGEST_S))

    async def _reconcile(self, key: ObjectKey) -> None:
        """Takes the request's next steps. Raises ActionFailedError and KubeError."""
        entry = self._feeds[CAPACITY_REQUESTS].get(key)
        pods = self._granted.of(self._pods.get(key, ()))
        if pods is None:
            return  # the watch brings what was written, and with it the next reconciliation
        known = self._files.get(key)
        if entry is None and not self._feeds.is_served(CAPACITY_REQUESTS) and not self._is_left(key):
            return  # the kind cannot be read now: that is not to say that the request is gone
        if entry is None or (known is not None and known.uid != entry.uid):
            await self._gone(key, known, pods)
            if entry is None:
                return
            known = None
        if self._written.behind(key, entry.uid, entry.resource_version):
            return
        kept_request: KeptRequest = entry.object
        file = self._files[key] = known or File(kept_request)
        file.kept = kept_request
        if not self._rules.answers and file.state.state not in (GRANTED, *life.FINAL) and not self._of(file.uid):
            return
        wrong = "" if file.state.state or not self._rules.answers else file.problem or self._no_priority(kept_request)
        if wrong:
            await self._tell(file, life.refused(wrong).state, "")
        else:
            await self._move(file, pods)
        self._due.set()

    def _no_priority(self, kept: KeptRequest) -> str:
        """The sentence about a priority class that does not exist; empty if there is no such problem."""
        if self._composer.priority(kept.request.spec) is not None:
            return ""
        return f"spec.priorityClassName: found {kept.request.spec.priority_class_name}, expected one that exists"

    async def _gone(self, key: ObjectKey, known: File | None, pods: list[SeenPod]) -> None:
        """Ends what runs inside of a grant whose request is gone, and lets its Workloads go."""
        uids = [known.uid] if known is not None else list(self._owns)
        for own in [own for uid in uids for own in self._of(uid) if known is not None or self._names(own, key)]:
            await self._withdraw(known, own, pods, words.request_is_gone())
        await self._granted.refuse(key, pods, words.no_such_request(key.name))
        self._files.pop(key, None)
        self._written.forget(key)

    def _is_left(self, key: ObjectKey) -> bool:
        """Whether the garbage collector has deleted a Workload of the request, as it does once the request is gone."""
        owns = (own for uid in self._owns for own in self._of(uid))
        return any(own.seen.is_terminating and self._names(own, key) for own in owns)

    def _names(self, own: Own, key: ObjectKey) -> bool:
        owners = own.typed.metadata.owner_references
        return own.typed.metadata.namespace == key.namespace and any(
            each.kind == KIND and each.name == key.name for each in owners
        )

    def _of(self, uid: str) -> list[Own]:
        """The Workloads of a request."""
        found = (seen_workload(self._ledger, self._raws, key) for key in sorted(self._owns.get(uid, ())))
        return [Own(each) for each in found if each is not None]

    # -- one request ---------------------------------------------------------------------------------------------------

    async def _move(self, found: File, pods: list[SeenPod]) -> None:
        for _ in range(_ROUNDS):
            owns, now_s = self._of(found.uid), math.floor(self._clock.wall())
            own = files.current(owns)
            for each in owns:
                if own is not None and each.seen.uid != own.seen.uid:
                    await self._withdraw(found, each, pods, words.request_is_gone())
            if found.asking is None:
                found.used = 0 if own is None else self._granted.used(own.seen, pods)
                if own is not None and is_preempting(self._engine, WorkloadKey(own.typed.key), now_s):
                    found.preempting_s = now_s
                seen = files.seen_of(found, own, self._engine, now_s)
                if await self._asks_for_fewer(found, own, seen, pods):
                    return
                taken = life.step(found.wish, found.state, seen, now_s, self._rules)
                if taken.ask:
                    found.asking, found.state = taken, taken.state
            if found.asking is not None:
                if own is not None:
                    found.forget()
                    await self._withdraw(found, own, pods, "")
                    return
                taken = await self._answered(found, found.asking, now_s)
                found.asking = None
            if await self._take(found, taken, own, pods, now_s):
                return
        raise NotYetError("a capacity request does not settle")

    async def _asks_for_fewer(self, found: File, own: Own | None, seen: Seen | None, pods: list[SeenPod]) -> bool:
        """Whether fewer units than were asked for in vain would do: they are asked for in place of these."""
        want = found.want
        if own is None or seen is None or seen.phase is not Phase.WAITS or want is None or found.state.accepted:
            return False
        if want.offer != own.offer or own.units <= want.least or found.state.state == GRANTED:
            return False
        if not found.tries:
            found.most = self._most(found, want, own.units - 1) or want.least
        else:
            found.most = want.least
        found.tries += 1
        await self._withdraw(found, own, pods, "")
        return True

    async def _take(self, found: File, taken: Step, own: Own | None, pods: list[SeenPod], now_s: float) -> bool:
        """Makes a step. Returns whether nothing more is to be done before something changes. Raises NotYetError while
        its Workload is not decided on.
        """
        found.state, found.due_s = taken.state, taken.due_s
        if taken.want is None:
            return await self._without(found, taken, own, pods)
        if taken.state.state == GRANTED:
            await self._tell(found, taken.state, "" if own is None else own.seen.name)
            found.wants_anew(taken.want)
            if own is not None:
                await self._keep(found, own, taken.want)
                await self._granted.start(found.kept, own.seen, found.wish, taken.state, pods, now_s)
            return True
        return await self._awaited(found, taken, taken.want, own, pods)

    async def _without(self, found: File, taken: Step, own: Own | None, pods: list[SeenPod]) -> bool:
        """Makes a step after which there is to be no Workload."""
        found.forget()
        if taken.told:
            await self._tell(found, taken.state, "")
        if own is not None:
            await self._withdraw(found, own, pods, taken.state.message)
            return True
        if taken.told:
            meta = found.request.metadata
            is_over = taken.state.state in life.FINAL
            why = words.grant_is_over(meta.name, taken.state.state) if is_over else words.waits_for_grant(meta.name)
            await self._granted.refuse(ObjectKey(meta.namespace, meta.name), pods, why)
        return taken.told

    async def _awaited(self, found: File, taken: Step, want: Want, own: Own | None, pods: list[SeenPod]) -> bool:
        """Makes a step after which a Workload is to be there that does not hold units of a grant."""
        if own is not None and (own.offer != want.offer or own.seen.is_terminating or own.seen.eviction is not None):
            found.wants_anew(want)
            await self._withdraw(found, own, pods, taken.state.message)
            return True
        if found.lost:
            found.forget()
        found.wants_anew(want)
        if own is None and not found.waits:
            await self._ask(found, want)
            if found.waits:
                return False
        if not taken.told:
            if taken.hints:
                await self._tell(found, taken.state, "" if own is None else own.seen.name)
            raise NotYetError("its Workload is not decided on yet")
        await self._tell(found, taken.state, "" if own is None else own.seen.name)
        return True

    async def _ask(self, found: File, want: Want) -> None:
        """Creates the Workload of as many units as are free, or of the least; none if ``want`` is for free ones
        alone.
        """
        units = self._most(found, want, want.most if found.most is None else found.most)
        if not units and want.free_only:
            found.waits = True
            return
        meta = found.request.metadata
        owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta.name, "uid": meta.uid, "controller": True}
        mark = f"{want.offer}/{units or want.least}/{found.tries}/{found.state.state}/{math.floor(self._clock.wall())}"
        metadata = {
            "name": workload_name(found.request, mark),
            "namespace": meta.namespace,
            "labels": {CAPACITY_REQUEST: meta.name},
            "ownerReferences": [owner],
            "finalizers": [names.RESOURCE_IN_USE],
        }
        await self._act(found, CreateWorkload(body=self._body(found, want, units or want.least, metadata)))

    async def _act(self, found: File, action: WorkloadAction) -> None:
        await self._workloads.carry_out(action, found.request.metadata.namespace, KIND, ())

    def _body(self, found: File, want: Want, units: int, metadata: Json) -> Json:
        kept = found.kept
        template = kept.elsewhere if want.elsewhere else kept.template
        runtime = "" if want.lasts_s is None else f"{want.lasts_s:g}s"
        return self._composer.body(found.request, units, template, metadata, notes(runtime, want.offer))

    def _tried(self, found: File, want: Want) -> Callable[[int], Workload]:
        meta = found.request.metadata
        created = status.moment(self._clock.wall()).isoformat()
        metadata = {"name": _TRIED, "namespace": meta.namespace, "uid": _TRIED, "creationTimestamp": created}
        return lambda units: decode(self._body(found, want, units, metadata), Workload)

    def _most(self, found: File, want: Want, most: int) -> int:
        """The largest number of units that it gets at once, of those that are wanted; 0 for none."""
        if most < want.least:
            return 0
        make, now_s = self._tried(found, want), self._clock.wall()
        if want.free_only:
            return most_free(self._engine, make, want.least, most, now_s)
        return most_had(self._engine, make, want.least, most, now_s).units

    async def _answered(self, found: File, asking: Step, now_s: float) -> Step:
        """The request with offers, or its refusal."""
        wish = found.wish
        want = Want(least=wish.least, most=wish.most, lasts_s=wish.duration_s)
        away = self._tried(found, msgspec.structs.replace(want, elsewhere=True))
        is_bound = found.kept.elsewhere != found.kept.template
        makes = Makes(self._tried(found, want), away if is_bound else None)

        def question(known: Forecaster) -> Parts[Answer]:
            ends_at, lasts_s = known.ends_at(self._engine, now_s), known.lasts(self._engine)
            answering = Answering(now_s, ends_at, lasts_s, time_of, self._forecasts.comebacks())
            return answer_parts(self._engine, wish, makes, answering, now_too=asking.now_too)

        try:
            answer = await self._forecasts.answered(question)
        except (BusyError, TimeoutError):
            raise NotYetError("other requests are being answered") from None
        if answer.refusal:
            return life.refused(answer.refusal)
        return life.answered(wish, asking.state, answer.offers, now_s, self._rules)

    # -- its Workload --------------------------------------------------------------------------------------------------

    async def _withdraw(self, found: File | None, own: Own, pods: list[SeenPod], why: str) -> None:
        """Ends the pods inside of a Workload, then deletes it."""
        meta = own.typed.metadata
        if await self._granted.stop(own.seen, pods, why):
            return
        steps: list[WorkloadAction] = [*remove_finalizers([own.seen])]
        if not own.seen.is_terminating:
            steps.append(delete(own.seen))
            if found is not None:
                found.withdrawn.add(own.seen.uid)
        for each in steps:
            await self._workloads.carry_out(each, meta.namespace, KIND, ())

    async def _keep(self, found: File, own: Own, want: Want) -> None:
        """Brings the Workload of a grant up to date: how long it holds its units, and how many of them."""
        state, typed = found.state, own.typed
        lasts_s = None if state.until_s is None or state.from_s is None else state.until_s - state.from_s
        told = typed.metadata.annotations.get(RUNTIME)
        wanted = None if lasts_s is None else f"{lasts_s:g}s"
        if told != wanted:
            await self._act(found, update(own.seen, {"metadata": {"annotations": {RUNTIME: wanted}}}))
            return
        admission = typed.status.admission
        placed = any(each.topology_assignment for each in (admission.pod_set_assignments if admission else ()))
        back = own.units - want.least
        if back and not placed and {each.name: each.count for each in typed.status.reclaimable_pods} != {POD_SET: back}:
            await self._act(found, SetReclaimable(name=own.seen.name, uid=own.seen.uid, pods={POD_SET: back}))
        elif self._composer.settings.wait_for_pods_ready and not is_true(typed.status.conditions, "PodsReady"):
            said = words.granted_is_ready()
            action = SetPodsReady(name=own.seen.name, uid=own.seen.uid, status="True", reason="Started", message=said)
            await self._act(found, action)

    # -- its status ----------------------------------------------------------------------------------------------------

    async def _tell(self, found: File, state: State, workload: str) -> None:
        """Writes the status, if it is another than was written last."""
        found.state = state
        body, meta = status_of(state, workload), found.request.metadata
        if body == found.written:
            return
        tied = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        write: Write[Stamped] = stamped_write(
            Verb.MERGE_PATCH,
            CAPACITY_REQUESTS,
            {"namespace": meta.namespace, "name": meta.name},
            {"metadata": tied, "status": body},
            Failpoint.CAPACITY_STATUS,
            subresource="status",
        )
        outcome = await self._put(write)
        if isinstance(outcome, Written) and outcome.object is not None:
            found.written = body
            self._written.wrote(
                ObjectKey(meta.namespace, meta.name), meta.uid, outcome.object.metadata.resource_version
            )
            meta = msgspec.structs.replace(meta, resource_version=outcome.object.metadata.resource_version)
            request = msgspec.structs.replace(found.request, metadata=meta)
            found.kept = msgspec.structs.replace(found.kept, request=request)
        elif not isinstance(outcome, Missing):
            raise failure(outcome)


def capacity_controller(  # noqa: PLR0913
    core: Core,
    client: Client,
    writer: Writer,
    workloads: WorkloadActions,
    raws: RawWorkloads,
    feeds: Feeds,
    forecasts: ForecastService,
    *,
    composer: Composer,
    rules: BargainingRules,
    clock: Clock,
    tell: Tell,
) -> CapacityController:
    """The controller of a term. ``tell`` records an Event: about what, type, reason, note."""
    actions = PodActions(writer, workloads, tell, clock)
    return CapacityController(
        core.engine,
        core.ledger,
        raws,
        feeds,
        writer.put,
        client=client,
        workloads=workloads,
        pods=GrantedPods(core.engine, feeds, actions, composer.cluster, tell),
        composer=composer,
        forecasts=forecasts,
        rules=Rules(say=time_of, longest_hold_s=rules.longest_hold_s, answers=rules.on),
        clock=clock,
    )
