"""Makes and removes ProvisioningRequests, and writes what becomes of them into the checks of Workloads, live.

Workloads, AdmissionChecks, their configurations, ProvisioningRequests -> controller.reconcile.provisioning.provisioning
-> PodTemplates, ProvisioningRequests, status.admissionChecks, the condition Active of AdmissionChecks

Each name follows from workload, check and attempt: what a former leader has made is found by its name, and is not made
twice. PodTemplates are not watched: the Workload owns them until their request is there, and then the request does.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import CHECKS, PROVISIONING_CONFIGS, PROVISIONING_REQUESTS, RawWorkloads
from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.watching.workqueue import ActionFailedError, NotYetError, WorkQueue
from controller.cluster.writing.stampedwrites import stamped_write, why_not, written
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites, outcome_of
from controller.jobs.framework.podsets import FlavorMissingError
from controller.jobs.framework.podview import MANAGED
from controller.jobs.framework.raw import JobError, Json, mapping, sequence
from controller.messages import provisioning as words
from controller.objects.meta import find_condition, object_key, to_json
from controller.objects.provisioning import AUTOSCALING, ProvisioningRequest
from controller.objects.queues import AdmissionCheck, ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.checks import ACTIVE, active
from controller.reconcile.provisioning.provisioning import Provisioning, Steps, Wanted, with_message
from controller.reconcile.provisioning.requests import InconsistentPodSetsError, bodies, reference
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.decisions.reasons import EventType
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.spot import spot_rule_of
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, WorkloadKey
from controller.scheduler.topology.requests import SpotRule
from failpoints.names import Failpoint
from inventory.api.names import FLAVORS_GIVEN_UP
from kube.client import Client
from kube.clock import Clock
from kube.errors import NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writes import Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
_Fail = Callable[[str, str, Outcome[Any]], Coroutine[Any, Any, NoReturn]]
CREATED: Final = "ProvisioningRequestCreated"
FAILED_CREATE: Final = "FailedCreate"
LOOK_S: Final = 5.0
"""Seconds between two looks at which kinds are served, while there are checks of ours."""


class ProvisioningController:
    """``hear`` takes changes of other objects, ``workload`` of Workloads; ``run``, from when all of them are known,
    works until cancelled. ``tell`` records Events of Workloads.
    """

    def __init__(  # noqa: PLR0913
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        raws: RawWorkloads,
        feeds: Feeds,
        client: Client,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        clock: Clock,
        tell: Callable[[tuple[Event, ...]], None],
    ) -> None:
        config = engine.state.config
        self.provisioning = Provisioning(config.gates, extended=config.extensions.requests_withdrawn)
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._raws = raws
        self._feeds = feeds
        self._client = client
        self._put = put
        self._clock = clock
        self._tell = tell
        self._queue = WorkQueue[ObjectKey]("checks that request nodes of", self.reconcile)
        self._checks_due = asyncio.Event()
        self._handed: set[str] = set()
        """The uids of requests that own their PodTemplates by now."""

    # -- events --------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        known, change = self.provisioning, observed.change
        if observed.resource not in (CHECKS, PROVISIONING_CONFIGS, PROVISIONING_REQUESTS):
            return
        match change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry):
                stored = entry.object
            case Removed(key=key, old=entry):
                stored = None
                self._handed.discard(entry.uid)
            case _:
                return
        if observed.resource == PROVISIONING_REQUESTS:
            self._enqueue(known.set_request(object_key(*key), stored))
            return
        put = known.set_check if observed.resource == CHECKS else known.set_config
        self._enqueue(put(key.name, stored))
        self._checks_due.set()

    def workload(self, workload: Workload, gone: bool) -> None:
        key = WorkloadKey(workload.key)
        self._enqueue(self.provisioning.set_workload(key, None if gone else workload))

    def _enqueue(self, keys: Collection[WorkloadKey]) -> None:
        for key in keys:
            namespace, _, name = key.partition("/")
            self._queue.put(ObjectKey(namespace, name))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="provisioning-workloads")
            group.create_task(self._keep_checks(), name="provisioning-checks")

    # -- AdmissionChecks -----------------------------------------------------------------------------------------------

    async def _keep_checks(self) -> None:
        while True:
            self._checks_due.clear()
            served = self._feeds.is_served(PROVISIONING_REQUESTS) and self._feeds[PROVISIONING_REQUESTS].synced
            self._enqueue(self.provisioning.set_served(served=served))
            for check in list(self.provisioning.checks.values()):
                await self._keep(check, served=served)
            await self._clock.wait(self._checks_due, LOOK_S if self.provisioning.checks else None)

    async def _keep(self, check: AdmissionCheck, *, served: bool) -> None:
        """Writes the condition Active, if it differs. What the write answers is seen by the watch."""
        wanted = active(check, self.provisioning.configs, served=served, now_s=self._clock.wall())
        known = find_condition(check.status.conditions, ACTIVE)
        if known is not None and (known.status, known.reason, known.message, known.observed_generation) == (
            wanted.status,
            wanted.reason,
            wanted.message,
            wanted.observed_generation,
        ):
            return
        if known is not None and known.status == wanted.status:
            wanted = msgspec.structs.replace(wanted, last_transition_time=known.last_transition_time)
        others = [each for each in check.status.conditions if each.type != ACTIVE]
        meta = check.metadata
        await self._put(
            stamped_write(
                Verb.MERGE_PATCH,
                CHECKS,
                {"name": meta.name},
                {
                    "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
                    "status": {"conditions": [to_json(each) for each in (*others, wanted)]},
                },
                Failpoint.CHECK_ACTIVE,
                subresource="status",
            )
        )

    # -- workloads -----------------------------------------------------------------------------------------------------

    async def reconcile(self, key: ObjectKey) -> None:
        """Takes the workload's next steps. Raises ActionFailedError and KubeError."""
        named = WorkloadKey(object_key(*key))
        entry = self._ledger.get(named)
        if entry is not None and self._is_busy(named, entry):
            raise NotYetError("it is being written")
        workload = entry.workload if entry is not None else None
        steps = self.provisioning.decide(named, workload, self._clock.wall(), self._groups(workload))
        for request in steps.remove:
            await self._remove(request)
        if entry is None or workload is None:
            return
        if steps.give_up:
            await self._give_up(entry, workload, steps.give_up)
        for wanted in steps.create:
            await self._create(entry, workload, wanted)
        for request in steps.kept:
            await self._hand_over(request)
        await self._write(named, entry, workload, steps)

    def _groups(self, workload: Workload | None) -> list[tuple[str, ...]]:
        """The flavors of the workload's ClusterQueue, by resource group."""
        admission = workload.status.admission if workload is not None else None
        queues = self._engine.state.cluster.queues
        queue = queues.get(ClusterQueueName(admission.cluster_queue)) if admission is not None else None
        return [tuple(group.flavors) for group in queue.groups] if queue is not None else []

    async def _give_up(self, entry: LedgerEntry, workload: Workload, flavors: tuple[str, ...]) -> None:
        """Notes the flavors in the Workload. The states of its checks follow from that."""
        notes = {FLAVORS_GIVEN_UP: ",".join(flavors)}
        metadata = msgspec.structs.replace(workload.metadata, annotations={**workload.metadata.annotations, **notes})
        after = msgspec.structs.replace(workload, metadata=metadata)
        changes: dict[str, Any] = {"metadata": {"annotations": notes}}
        result, why = await outcome_of(
            lambda then: self._writes.spec(entry, after, changes, then, Failpoint.FLAVORS_GIVEN_UP)
        )
        if result not in (Result.WRITTEN, Result.GONE):
            raise ActionFailedError(why)

    def _is_busy(self, key: WorkloadKey, entry: LedgerEntry) -> bool:
        unwritten = self._engine.state.unwritten
        return entry.writing or key in unwritten.admissions or key in unwritten.evictions

    async def _write(self, key: WorkloadKey, entry: LedgerEntry, workload: Workload, steps: Steps) -> None:
        """Writes the states of the checks, of a workload that is as it was decided on."""
        if steps.after is None:
            return
        if entry.workload is not workload or self._is_busy(key, entry):
            raise NotYetError("it has changed")
        result, why = await self._written(entry, steps.after)
        if result is Result.WRITTEN:
            self._tell(steps.events)
        elif result not in (Result.UNCHANGED, Result.GONE):
            raise ActionFailedError(why)

    async def _written(self, entry: LedgerEntry, after: Workload) -> tuple[Result, str]:
        return await outcome_of(lambda then: self._writes.status(entry, after, then, Failpoint.CHECK_STATE))

    # -- requests ------------------------------------------------------------------------------------------------------

    async def _remove(self, request: ProvisioningRequest) -> None:
        meta = {"namespace": request.metadata.namespace, "name": request.metadata.name}
        uid = request.metadata.uid
        write = stamped_write(Verb.DELETE, PROVISIONING_REQUESTS, meta, uid, Failpoint.PROVISIONING_REQUEST_REMOVED)
        # A conflict says that another request has the name by now.
        await written(self._put, write, Missing, Conflicted)

    async def _create(self, entry: LedgerEntry, workload: Workload, wanted: Wanted) -> None:
        """Creates the PodTemplates, then the request that names them."""
        spec = self._raws.of(WorkloadKey(workload.key))
        pod_sets: list[Json] = spec.json()["spec"].get("podSets", []) if spec is not None else []
        try:
            spot = self._spot(WorkloadKey(workload.key))
            made = bodies(workload, pod_sets, wanted.config, wanted.name, self._flavor, spot)
        except (InconsistentPodSetsError, FlavorMissingError, JobError) as error:
            raise ActionFailedError(str(error)) from None
        fail = partial(self._not_created, entry, workload, wanted.check)
        for template in made.templates:
            await self._make_template(template, fail)
        outcome = await self._put(
            stamped_write(
                Verb.CREATE,
                PROVISIONING_REQUESTS,
                made.request["metadata"],
                made.request,
                Failpoint.PROVISIONING_REQUEST,
            )
        )
        if isinstance(outcome, Written):
            self._tell((Event(WorkloadKey(workload.key), EventType.NORMAL, CREATED, words.created(wanted.name)),))
            return
        key = ObjectKey(workload.metadata.namespace, wanted.name)
        if isinstance(outcome, Conflicted) and self._feeds.entry(PROVISIONING_REQUESTS, key) is None:
            raise ActionFailedError("it is there, and the watch has not shown it yet")
        await fail("ProvisioningRequest", wanted.name, outcome)

    async def _not_created(
        self, entry: LedgerEntry, workload: Workload, check: str, kind: str, name: str, outcome: Outcome[Any]
    ) -> NoReturn:
        """Says in the check why nothing was created. Raises ActionFailedError."""
        why = why_not(outcome)
        message, key = words.not_created(kind, name, why), WorkloadKey(workload.key)
        after = with_message(workload, check, message, self._clock.wall())
        if after is not None and entry.workload is workload and not self._is_busy(key, entry):
            result, _ = await self._written(entry, after)
            if result is Result.WRITTEN:
                self._tell((Event(key, EventType.WARNING, FAILED_CREATE, message),))
        raise ActionFailedError(message)

    def _spot(self, key: WorkloadKey) -> SpotRule | None:
        cluster = self._engine.state.cluster
        holder = cluster.holders.get(key)
        return None if holder is None else spot_rule_of(cluster, holder)

    def _flavor(self, name: str) -> ResourceFlavor | None:
        return self._engine.state.cluster.flavors.get(FlavorName(name))

    # -- PodTemplates --------------------------------------------------------------------------------------------------

    async def _make_template(self, body: Json, fail: _Fail) -> None:
        """Creates a PodTemplate. One of this name may be there: from an attempt that was broken off, or of a request
        that is gone, and is going itself.
        """
        meta = body["metadata"]
        outcome = await self._put(stamped_write(Verb.CREATE, POD_TEMPLATES, meta, body, Failpoint.POD_TEMPLATE))
        if isinstance(outcome, Written):
            return
        if not isinstance(outcome, Conflicted):
            await fail("PodTemplate", meta["name"], outcome)
        known = await self._client.get(POD_TEMPLATES, meta["name"], dict[str, Any], namespace=meta["namespace"])
        if mapping(known, "metadata", "labels").get(MANAGED) != "true":
            await fail("PodTemplate", meta["name"], outcome)
        same_owner = sequence(known, "metadata", "ownerReferences") == meta["ownerReferences"]
        if known.get("template") != body["template"] or not same_owner:
            await self._change_template(known, meta["ownerReferences"], body["template"])

    async def _hand_over(self, request: ProvisioningRequest) -> None:
        """Makes the request the owner of its PodTemplates, so that they go with it."""
        if request.metadata.uid in self._handed:
            return
        owners = [reference(AUTOSCALING, "ProvisioningRequest", request)]
        for pod_set in request.spec.pod_sets:
            name, namespace = pod_set.pod_template_ref.name, request.metadata.namespace
            try:
                known = await self._client.get(POD_TEMPLATES, name, dict[str, Any], namespace=namespace)
            except NotFoundError:
                continue
            ours = mapping(known, "metadata", "labels").get(MANAGED) == "true"
            if ours and sequence(known, "metadata", "ownerReferences") != owners:
                await self._change_template(known, owners, known.get("template"))
        self._handed.add(request.metadata.uid)

    async def _change_template(self, known: Json, owners: list[Json], template: Any) -> None:
        """Replaces owners and template of a PodTemplate, if it is still as it was read. A merge patch would keep what
        the new template lacks.
        """
        meta = known["metadata"]
        body = [
            {"op": "test", "path": "/metadata/uid", "value": meta.get("uid", "")},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.get("resourceVersion", "")},
            {"op": "add", "path": "/metadata/ownerReferences", "value": owners},
            {"op": "add", "path": "/template", "value": template},
        ]
        write = stamped_write(Verb.JSON_PATCH, POD_TEMPLATES, meta, body, Failpoint.POD_TEMPLATE_CHANGED)
        await written(self._put, write)
