"""Makes and removes placeholders, and copies of the claim templates that they name, live.

Workloads, pods, what the engine keeps for workloads that wait -> controller.reconcile.provisioning.placeholders -> Pods
and ResourceClaimTemplates in the controller's own namespace

They have no owner, since owners do not reach across namespaces: those whose Workload does not wait any more, or is
gone, are removed at each change, when a leader begins, and once a minute.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import CLAIM_TEMPLATES, DEVICE_CLAIMS, DEVICE_SLICES, NODES, PODS, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import ActionFailedError, NotYetError, WorkQueue
from controller.cluster.writing.stampedwrites import failure, stamped_write, why_not
from controller.jobs.framework.podsets import FlavorMissingError
from controller.jobs.framework.raw import JobError, Json, mapping
from controller.messages import provisioning as words
from controller.objects.core import ENDED_PHASES, Pod
from controller.objects.decode import DecodeError, decode
from controller.objects.deviceclaims import ResourceClaim, ResourceClaimTemplate
from controller.objects.meta import object_key
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.claimcopies import (
    ClaimCopy,
    asks_as_admin,
    claims_by_template,
    copy_body,
    copy_name,
    copy_of,
)
from controller.reconcile.provisioning.placeholderpods import flavors_of, placeholder_body
from controller.reconcile.provisioning.placeholders import (
    Placeholder,
    Placeholders,
    phase_of,
    placeholder_of,
    sent_to,
)
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.decisions.reasons import EventType
from controller.scheduler.dra.allocation.held import pod_of
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.spot import spot_rule_of
from controller.scheduler.kueue.comingnodes import coming_places
from controller.scheduler.model.nodetemplate import NodeTemplateError, template_of
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.topology.requests import SpotRule
from failpoints.names import Failpoint
from inventory.api.names import PLACEHOLDER_OF, WORKLOAD_OF_POD
from kube.client import Client, Selection
from kube.clock import Clock, sleep
from kube.errors import KubeError, NotFoundError
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource
from kube.writing.writes import Conflicted, Missing, Outcome, Verb, Write, Written

log = logging.getLogger(__name__)

CREATED: Final = "NodesAwaited"
FAILED_CREATE: Final = "FailedCreate"
_LOOK_S: Final = 60.0
_GATHER_S: Final = 0.2
"""Changes are gathered for so long: a node that joins changes many times."""


class PlaceholderController:
    """``hear`` takes changes of other objects, ``workload`` of Workloads; ``run``, from when all of them are known,
    works until cancelled. ``tell`` records Events of Workloads.
    """

    def __init__(  # noqa: PLR0913
        self,
        engine: Engine,
        ledger: Ledger,
        raws: RawWorkloads,
        feeds: Feeds,
        client: Client,
        put: Callable[[Write[Any]], "asyncio.Future[Outcome[Any]]"],
        *,
        namespace: str,
        image: str,
        clock: Clock,
        tell: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self.placeholders = Placeholders()
        self._engine = engine
        self._ledger = ledger
        self._raws = raws
        self._feeds = feeds
        self._client = client
        self._put = put
        self._namespace = namespace
        self._image = image
        self._clock = clock
        self._tell = tell
        self._queue = WorkQueue[ObjectKey]("nodes to come for", self.reconcile)
        self._due = asyncio.Event()
        self._followed = False
        self._missing: Mapping[WorkloadKey, Mapping[str, int]] = {}
        """The numbers of pods that are to go to nodes to come, by workload that waits and by pod set. ``_look`` makes
        it anew; a workload that does not fit now is not in it.
        """

    # -- events --------------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        if observed.resource in (NODES, DEVICE_SLICES):
            self._wake()
        elif observed.resource == CLAIM_TEMPLATES:
            self._template(observed)
        elif observed.resource == DEVICE_CLAIMS:
            match observed.change:
                case Added(new=entry) | Changed(new=entry):
                    self._claim(entry.object)
        elif observed.resource == PODS:
            match observed.change:
                case Added(key=key, new=entry) | Changed(key=key, new=entry):
                    self._pod(object_key(*key), entry.object)
                case Removed(key=key, old=entry):
                    self._gone(object_key(*key), entry.object)

    def _claim(self, claim: ResourceClaim) -> None:
        if claim.metadata.namespace == self._namespace:
            name = pod_of(claim.metadata).partition("/")[2]
            self._enqueue(*self.placeholders.tell_claim(name, self._clock.monotonic()))

    def _template(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if key.namespace == self._namespace:
                self._enqueue(*self.placeholders.tell_copy(key.name, copy_of(entry.object)))
            case Removed(key=key) if key.namespace == self._namespace:
                self._enqueue(*self.placeholders.tell_copy(key.name, None))

    def _pod(self, key: str, pod: Pod) -> None:
        if pod.metadata.namespace == self._namespace and PLACEHOLDER_OF in pod.metadata.labels:
            self._enqueue(*self._told(pod.metadata.name, placeholder_of(pod)))
            self._due.set()
        elif (named := pod.metadata.annotations.get(WORKLOAD_OF_POD)) is not None:
            workload = WorkloadKey(object_key(pod.metadata.namespace, named))
            self._enqueue(*self.placeholders.tell_pod(key, workload, sent_to(pod), waits=_waits(pod)))

    def _gone(self, key: str, pod: Pod) -> None:
        if pod.metadata.namespace == self._namespace and PLACEHOLDER_OF in pod.metadata.labels:
            self._enqueue(*self._told(pod.metadata.name, None))
            self._wake()
        elif WORKLOAD_OF_POD in pod.metadata.annotations:
            self.placeholders.remove_pod(key)

    def _told(self, name: str, placeholder: Placeholder | None) -> list[WorkloadKey]:
        return self.placeholders.tell(name, placeholder, self._clock.monotonic())

    def workload(self, workload: Workload, gone: bool) -> None:
        key = WorkloadKey(workload.key)
        if key in self._engine.state.cluster.coming or key in self._missing:
            self._wake()
        if gone or self.placeholders.has(key):
            self._enqueue(key)

    def _wake(self) -> None:
        if self._engine.state.cluster.coming or self._missing:
            self._due.set()

    def _enqueue(self, *keys: WorkloadKey) -> None:
        for key in keys:
            namespace, _, name = key.partition("/")
            self._queue.put(ObjectKey(namespace, name))

    # -- work ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await self._find_left()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(), name="placeholders")
            group.create_task(self._keep_looking(), name="nodes-to-come")

    async def _find_left(self) -> None:
        """Takes in what a former leader left: where no Topology is left pods are not watched, and claim templates only
        once a Workload or a flavor needs them.
        """
        while True:
            try:
                pods = await self._client.list_all(PODS, dict[str, Any], Selection(label_selector=PLACEHOLDER_OF))
                copies = await self._left_copies()
                break
            except KubeError as error:
                log.warning("placeholders cannot be listed: %s", error)
                await sleep(self._clock, _LOOK_S)
        for raw in pods.items:
            try:
                pod = decode(raw, Pod)
            except DecodeError as error:
                log.warning("a pod with the label of placeholders cannot be read: %s", error)
                continue
            if pod.metadata.namespace == self._namespace and pod.metadata.name not in self.placeholders.names():
                self._enqueue(*self._told(pod.metadata.name, placeholder_of(pod)))
        for template in copies:
            if not self.placeholders.has_copy(template.metadata.name):
                self._enqueue(*self.placeholders.tell_copy(template.metadata.name, copy_of(template)))

    async def _left_copies(self) -> tuple[ResourceClaimTemplate, ...]:
        """Raises KubeError."""
        if not self._copies_claims():
            return ()
        ours = Selection(namespace=self._namespace, label_selector=PLACEHOLDER_OF)
        try:
            return (await self._client.list_all(CLAIM_TEMPLATES, ResourceClaimTemplate, ours)).items
        except NotFoundError:
            return ()

    def _copies_claims(self) -> bool:
        """Whether claims count, and their templates are served."""
        return CLAIM_TEMPLATES in self._feeds and self._feeds.is_served(CLAIM_TEMPLATES)

    async def _keep_looking(self) -> None:
        while True:
            self._due.clear()
            self._look()
            await self._clock.wait(self._due, _LOOK_S)
            await sleep(self._clock, _GATHER_S)

    def _follow(self) -> None:
        """Looks once for pods of workloads that had placeholders before this leader began, and for claims: they were
        heard of before it was known whose placeholders there are.
        """
        pods = self._feeds[PODS]
        if not self._followed and pods.synced:
            self._followed = True
            for pod in list(pods.objects()) if self.placeholders.names() else ():
                if WORKLOAD_OF_POD in pod.metadata.annotations:
                    self._pod(pod.key, pod)
            for claim in list(self._feeds[DEVICE_CLAIMS].objects()) if DEVICE_CLAIMS in self._feeds else ():
                self._claim(claim)

    def _look(self) -> None:
        """Asks the engine anew what is to come, and has every workload looked at that this concerns."""
        self._follow()
        before = self._missing
        self._missing = {
            key: {place.pod_set: place.pods_to_come for place in places}
            for key, places in coming_places(self._engine.state.cluster).items()
        }
        self._enqueue(*{*before, *self._missing, *self.placeholders.workloads()})

    async def reconcile(self, key: ObjectKey) -> None:
        """Takes the workload's next steps. Raises ActionFailedError and KubeError."""
        named = WorkloadKey(object_key(*key))
        entry = self._ledger.get(named)
        workload = entry.workload if entry is not None else None
        missing, now_s = self._missing.get(named), self._clock.monotonic()
        joining = self._joining(workload)
        steps = self.placeholders.decide(named, workload, phase_of(workload), missing, now_s, joining=joining)
        for each in steps.remove:
            await self._remove(each)
        for copy in steps.remove_copies:
            await self._remove_copy(copy)
        copies: dict[str, str] = {}
        for pod_set in steps.claiming:
            if (wanted := self._wanted(named, pod_set)) is not None:
                await self._copies(*wanted, copies)
        for name, pod_set in steps.create:
            await self._create(named, name, pod_set, copies)
        if steps.create:
            event = words.placeholders_created(str(len(steps.create)))
            self._tell((Event(named, EventType.NORMAL, CREATED, event),))
        if steps.unsettled:
            raise NotYetError("placeholders were bound or gave way just now")

    def _joining(self, workload: Workload | None) -> Callable[[str, str], bool]:
        """Whether a node for a pod set of the workload has joined, and its drivers have not published devices yet."""
        admission = workload.status.admission if workload is not None else None
        assignments = admission.pod_set_assignments if admission is not None else ()
        flavors = {pod_set.name: {*pod_set.flavors.values()} for pod_set in assignments}
        placement = self._engine.state.cluster.placement
        return lambda pod_set, node: any(
            placement.awaits_devices(FlavorName(flavor), node) for flavor in flavors.get(pod_set, ())
        )

    async def _remove(self, placeholder: Placeholder) -> None:
        outcome = await self._deleted(PODS, placeholder, Failpoint.PLACEHOLDER_REMOVED)
        if isinstance(outcome, Missing):
            self._told(placeholder.name, None)

    async def _remove_copy(self, copy: ClaimCopy) -> None:
        outcome = await self._deleted(CLAIM_TEMPLATES, copy, Failpoint.PLACEHOLDER_CLAIMS_REMOVED)
        if isinstance(outcome, Written | Missing):
            self.placeholders.tell_copy(copy.name, None)

    async def _deleted(self, resource: Resource, what: Placeholder | ClaimCopy, failpoint: Failpoint) -> Outcome[Any]:
        """Raises ActionFailedError unless the object is deleted, gone, or another one has its name by now."""
        meta = {"namespace": self._namespace, "name": what.name}
        outcome = await self._put(stamped_write(Verb.DELETE, resource, meta, what.uid, failpoint))
        if not isinstance(outcome, Written | Missing | Conflicted):
            raise failure(outcome)
        return outcome

    async def _create(self, key: WorkloadKey, name: str, pod_set: str, copies: dict[str, str]) -> None:
        """Creates a placeholder. ``copies``: the copies of the workload's claim templates, by template; those that are
        missing are made and added.
        """
        wanted = self._wanted(key, pod_set)
        if wanted is None:
            return
        try:
            spot, copied = self._spot(key), await self._copies(*wanted, copies)
            body = placeholder_body(name, self._namespace, self._image, *wanted, self._flavor, spot, copied)
        except (FlavorMissingError, JobError) as error:
            raise ActionFailedError(str(error)) from None
        outcome = await self._put(stamped_write(Verb.CREATE, PODS, body["metadata"], body, Failpoint.PLACEHOLDER))
        if isinstance(outcome, Written | Conflicted):  # a conflict: the watch has not shown it yet
            return
        message = words.placeholder_refused(name, why_not(outcome))
        self._tell((Event(key, EventType.WARNING, FAILED_CREATE, message),))
        raise ActionFailedError(message)

    def _wanted(self, key: WorkloadKey, pod_set: str) -> tuple[Workload, Json] | None:
        """The workload, and its pod set as JSON; None where there is none."""
        spec, entry = self._raws.of(key), self._ledger.get(key)
        pod_sets: list[Json] = spec.json()["spec"].get("podSets", []) if spec is not None else []
        named = next((each for each in pod_sets if each.get("name") == pod_set), None)
        return None if named is None or entry is None else (entry.workload, named)

    async def _copies(self, workload: Workload, pod_set: Json, copies: dict[str, str]) -> dict[str, str]:
        """The copies of the claim templates of placeholders for the pod set, by template; none where its autoscaler
        takes no claims. ``copies`` as for ``_create``. Raises ActionFailedError and KubeError.
        """
        if not (self._copies_claims() and self._with_claims(workload, str(pod_set.get("name")))):
            return {}
        for template in sorted({*claims_by_template(mapping(pod_set, "template")).values()}):
            name = copy_name(workload.metadata.uid, template)
            known = template in copies or self.placeholders.has_copy(name)
            if known or await self._copied(workload, template):
                copies[template] = name
        return copies

    def _with_claims(self, workload: Workload, pod_set: str) -> bool:
        """Whether the autoscalers of the pod set's flavors bring nodes for pods with claims."""
        for name in flavors_of(workload, pod_set):
            flavor = self._flavor(name)
            try:
                template = template_of(flavor) if flavor is not None else None
            except NodeTemplateError:
                continue
            if template is not None and not template.placeholder_claims:
                return False
        return True

    async def _copied(self, workload: Workload, template: str) -> bool:
        """Copies a claim template, as JSON: the watch keeps only the fields that count. Returns whether there is a copy
        now. Raises ActionFailedError and KubeError.
        """
        named = Selection(namespace=workload.metadata.namespace, field_selector=f"metadata.name={template}")
        listed = (await self._client.list_all(CLAIM_TEMPLATES, dict[str, Any], named)).items
        if not listed or asks_as_admin(listed[0]):
            return False
        body = copy_body(self._namespace, workload, listed[0])
        write = stamped_write(Verb.CREATE, CLAIM_TEMPLATES, body["metadata"], body, Failpoint.PLACEHOLDER_CLAIMS)
        outcome = await self._put(write)
        if isinstance(outcome, Written | Conflicted):  # a conflict: the watch has not shown it yet
            return True
        message = words.claims_not_copied(template, why_not(outcome))
        self._tell((Event(WorkloadKey(workload.key), EventType.WARNING, FAILED_CREATE, message),))
        raise ActionFailedError(message)

    def _spot(self, key: WorkloadKey) -> SpotRule | None:
        cluster = self._engine.state.cluster
        holder = cluster.holders.get(key)
        return None if holder is None else spot_rule_of(cluster, holder)

    def _flavor(self, name: str) -> ResourceFlavor | None:
        return self._engine.state.cluster.flavors.get(FlavorName(name))


def _waits(pod: Pod) -> bool:
    """Whether the pod may be bound, and is not."""
    spec, meta = pod.spec, pod.metadata
    held = spec.node_name or spec.scheduling_gates or meta.deletion_timestamp is not None
    return not held and pod.status.phase not in ENDED_PHASES
