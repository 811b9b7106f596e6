"""The controllers of a term beside the core: jobs, pods, node assignment, failures. Each hears of all changes.

The former leader may have written objects that the watches do not show yet. The term itself waits for Workloads; here
controllers wait for pods, before they remove the first scheduling gate.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig, ForeignSystem
from controller.cluster.metrics.observing import Counting
from controller.cluster.watching.catchup import catch_up
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    COHORTS,
    DECLARATIONS,
    DEPLOYMENTS,
    FOREIGN_JOB_PODS,
    FOREIGN_QUEUES,
    GPU_NODES,
    JOINING_PODS,
    LOCAL_QUEUES,
    PODS,
    PROVISIONING_REQUESTS,
    QUEUED_PODS,
    QUEUES_OF,
    RawWorkloads,
)
from controller.cluster.writing.events import EventPublisher
from controller.core import Core
from controller.foreign.jobs.podgroup_shell import JobGroups
from controller.foreign.jobs.queuecommands_shell import QueueCommandController
from controller.foreign.jobs.reconcile_shell import ForeignJobController
from controller.foreign.usage.queueusage_shell import QueueUsageQueries
from controller.insight.bargaining.requests_shell import CapacityController, capacity_controller
from controller.insight.bargaining.wishes import Composer
from controller.insight.forecast.service_shell import ForecastService
from controller.jobs.framework import names
from controller.jobs.framework.settings import ClusterObjects, DevicePlan, has_no_workload, is_never_spare
from controller.objects.workload import Workload
from controller.reconcile.failures.gpufailurerecord_shell import GpuFailureRecord
from controller.reconcile.failures.gpufailures_shell import GpuFailureController
from controller.reconcile.failures.holders_shell import Foretelling
from controller.reconcile.failures.interruptioncounts_shell import FlavorInterruptions
from controller.reconcile.failures.interruptions_shell import InterruptionController
from controller.reconcile.failures.nodefailures_shell import FEATURES, NodeFailureController
from controller.reconcile.failures.restartspromised_shell import RestartPromises
from controller.reconcile.failures.stuckpods_shell import FEATURE as RECOVERY
from controller.reconcile.failures.stuckpods_shell import StuckPodController
from controller.reconcile.jobs.actions_shell import JobActions
from controller.reconcile.jobs.jobkinds_shell import JobKindController
from controller.reconcile.jobs.reconcile_shell import JobController
from controller.reconcile.jobs.startgroups_shell import StartGroups
from controller.reconcile.jobshell.clusterobjects import cluster_objects, job_settings
from controller.reconcile.jobshell.watched import JobKinds, external_kinds, serving_kinds
from controller.reconcile.jobshell.workloadactions import WorkloadActions
from controller.reconcile.placing.gateremovals_shell import GateRemovals
from controller.reconcile.placing.planresults_shell import PlanResultReporter
from controller.reconcile.placing.ungating_shell import FEATURE, TopologyUngater
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.groupobjects_shell import GroupObjects
from controller.reconcile.pods.reconcile_shell import PodController
from controller.reconcile.provisioning.placeholders_shell import PlaceholderController
from controller.reconcile.provisioning.provisioning_shell import ProvisioningController
from controller.reconcile.repairs.draining_shell import DrainController
from controller.reconcile.repairs.gpuresets_shell import GpuResetController
from controller.reconcile.repairs.maintenance_shell import MaintenanceController
from controller.reconcile.repairs.orders_shell import OrderRefusals
from controller.reconcile.repairs.planned_shell import PlannedRepairs
from controller.reconcile.repairs.repairs_shell import RepairController
from controller.reconcile.serving.deployments_shell import DeploymentController, may_be_spare
from controller.reconcile.serving.reconcile_shell import ServingController
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.config import InterruptionRules, VictimOrder
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.nodes import LEAVING
from kube.client import Client, Selection
from kube.clock import Clock, sleep
from kube.objects import ObjectReference
from kube.reading.reflector import Removed
from kube.resources import LEASES, Resource
from kube.writing.writer import Writer

LEASE: Final = "tessera-controller"
_LOOK_S: Final = 0.02

NamedTask = tuple[str, Coroutine[Any, Any, None]]
"""A name for the log, and a coroutine that runs until cancelled."""


@dataclass(frozen=True)
class ProcessContext:
    """What a process has for its terms: its configuration, its client, what its watches show, and the kinds of jobs
    that are queued during the term, with the kinds between them and their pods. ``systems``: the systems whose Queues
    are mirrored.
    """

    config: ControllerConfig
    client: Client
    feeds: Feeds
    raws: RawWorkloads
    clock: Clock
    own_namespace: str
    kinds: JobKinds
    owned: tuple[Resource, ...]
    systems: frozenset[System]


def own_lease(namespace: str) -> ObjectReference:
    """The object of Events about the controller itself."""
    return ObjectReference(LEASES.api_version, LEASES.kind, LEASE, "", namespace)


class TermControllers:
    """Starts the controllers. ``start`` once, before the core hears of any change. ``counting`` counts what becomes of
    their actions.

    Listeners hear of a change in the order in which they were added, after the core: see ``core.ChangeListener``.
    """

    def __init__(
        self,
        context: ProcessContext,
        core: Core,
        writer: Writer,
        events: EventPublisher,
        forecasts: ForecastService,
        *,
        counting: Counting,
        device_plan: DevicePlan,
    ) -> None:
        self._config, self._client, self._feeds = context.config, context.client, context.feeds
        self._raws, self._clock, self._own_namespace = context.raws, context.clock, context.own_namespace
        self._systems = context.systems
        self._core = core
        self._writer = writer
        self._events = events
        self._forecasts = forecasts
        self._counting = counting
        self._device_plan = device_plan
        self._workloads = WorkloadActions(
            core.engine, core.ledger, core.writes, writer, self._clock, created=counting.created
        )
        self._job_kinds = {resource: kind for resource, kind in context.kinds.items() if resource in self._feeds}
        self._owned = tuple(resource for resource in context.owned if resource in self._feeds)
        grouped = serving_kinds(self._config.integrations.frameworks)
        self._grouped = {resource: kind for resource, kind in grouped.items() if resource in self._feeds}
        externals = external_kinds(self._config.integrations.external_frameworks)
        self._externals = tuple(resource for resource in externals if resource in self._feeds)
        self._of_workloads: list[Callable[[Workload, bool], None]] = [self._forget_raw]
        self._of_others: list[Callable[[ObjectChange], None]] = []

    def start(self) -> Iterator[NamedTask]:
        jobs = None
        if self._job_kinds:
            groups = self._start_groups()
            jobs = self._jobs(groups)
            yield from self._job_tasks(jobs, groups)
        if (measured := self._queue_usage()) is not None:
            yield "queue-usage", measured.run()
        if (switch := self._config.foreign_jobs) is not None and FOREIGN_JOB_PODS in self._feeds:
            yield "foreign-jobs", self._foreign_jobs(switch)
            if QUEUES_OF[switch.system] in self._feeds:
                commands = QueueCommandController(self._feeds, self._writer, self._events.publish)
                self._of_others.append(commands.hear)
                yield "queue-commands", self._after_loading(commands.run)
        if DECLARATIONS in self._feeds:
            declared = JobKindController(
                self._config,
                self._client,
                self._feeds,
                self._core.ledger,
                self._writer.put,
                self._job_kinds,
                clock=self._clock,
            )
            self._of_others.append(declared.hear)
            yield "job-kinds", self._after_loading(declared.run)
        if QUEUED_PODS in self._feeds:
            yield from self._pod_controller(jobs)
        if self._grouped and QUEUED_PODS in self._feeds:
            yield "serving", self._serving(jobs)
        yield "capacity-requests", self._after_loading(self._bargaining().run)
        yield from self._node_tasks()
        yield "gpu-failures", self._after_loading(self._failed_gpus().run)
        yield from self._repairs()
        resets = GpuResetController(self._client, self._writer.put, clock=self._clock)
        self._of_others.append(resets.hear)
        yield "gpu-resets", self._after_loading(resets.run)
        refusals = OrderRefusals(self._writer.put, clock=self._clock, tell=self._events.publish)
        self._of_others.append(refusals.hear)
        yield "gpu-orders", refusals.run()
        yield "gpu-maintenance", self._after_loading(self._maintenance().run)
        yield "gpu-drains", self._after_loading(self._drains().run)
        if self._config.engine.extensions.victim_order is VictimOrder.LEAST_LOST:
            yield "restart-promises", self._after_loading(self._restart_promises().run)
        self._of_others.append(PlanResultReporter(self._counting.planned_pod, self._events.publish).hear)
        self._of_others.append(partial(_drop_series, self._counting))
        self._of_others.append(GateRemovals(self._core.ledger, self._clock, self._counting.gate_removed).hear)
        self._core.subscribe(self)

    def _node_tasks(self) -> Iterator[NamedTask]:
        """Yields the tasks about nodes that are lost, come and go."""
        if all(map(self._config.engine.gates.on, FEATURES)):
            yield "lost-nodes", self._lost_nodes().run()
        if self._config.engine.gates.on(RECOVERY):
            yield "stuck-pods", self._stuck_pods().run()
        if PROVISIONING_REQUESTS in self._feeds:
            yield "provisioning", self._after_loading(self._provisioning().run)
        if self._config.engine.extensions.leaving_nodes:
            yield from self._interruptions()
        if self._config.engine.extensions.coming_nodes:
            yield "nodes-to-come", self._after_loading(self._placeholders().run)

    def _job_tasks(self, jobs: JobController, groups: StartGroups | None) -> Iterator[NamedTask]:
        if groups is not None:
            yield "start-groups", groups.run()
        self._of_workloads.append(jobs.workload)
        self._of_others.append(jobs.hear)
        yield "jobs", self._after_loading(jobs.run)
        if self._config.engine.gates.on(FEATURE):
            yield from self._ungater()

    def _jobs(self, groups: StartGroups | None) -> JobController:
        return JobController(
            self._config,
            self._job_kinds,
            self._client,
            self._feeds,
            self._core.ledger,
            self._raws,
            JobActions(
                self._client,
                self._writer,
                self._workloads,
                self._events.publish,
                started=self._counting.job_started,
                suspended=self._counting.job_suspended,
                groups=groups,
            ),
            self._workloads,
            own_namespace=self._own_namespace,
            owned=self._owned,
            claim_devices=self._core.engine.claim_plan,
            groups=groups,
        )

    def on_workload(self, workload: Workload, gone: bool) -> None:
        for hear in self._of_workloads:
            hear(workload, gone)

    def on_object(self, observed: ObjectChange) -> None:
        for hear in self._of_others:
            hear(observed)

    def _forget_raw(self, workload: Workload, gone: bool) -> None:
        if gone:
            self._raws.forget(WorkloadKey(workload.key))

    async def _after_loading(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a controller after all workloads are known: a job is reconciled by its workloads."""
        await self._core.loaded.wait()
        await run()

    def _start_groups(self) -> StartGroups | None:
        """The PodGroups of Kubernetes' own for the starts of jobs; None if the configuration has them off."""
        if not self._config.native_gangs:
            return None
        return StartGroups(self._client, self._writer, clock=self._clock, random=random.random)

    def _queue_usage(self) -> QueueUsageQueries | None:
        source, rules = self._config.usage_source, self._config.engine.queue_usage
        if source is None or rules is None or QueueUsageQueries.system not in self._systems:
            return None
        tell = partial(self._events.publish, own_lease(self._own_namespace))
        core = self._core
        return QueueUsageQueries(source, rules, core.engine, wake=core.inbox.wake, clock=self._clock, tell=tell)

    def _ungater(self) -> Iterator[NamedTask]:
        """Yields the task that gives pods of jobs with a topology assignment their nodes, and removes their scheduling
        gate.
        """
        caught_up = asyncio.Event()

        def ready() -> bool:
            return self._core.loaded.is_set() and caught_up.is_set() and len(self._core.inbox) == 0

        ungater = TopologyUngater(
            self._core.ledger,
            self._writer.put,
            clock=self._clock,
            ready=ready,
            count=self._counting.pod_placed,
            tell=self._events.publish,
            device_plan=self._device_plan,
        )
        self._of_workloads.append(ungater.workload)
        self._of_others.append(ungater.hear)

        async def run() -> None:
            await self._feeds[PODS].wait_synced()
            ours = Selection(label_selector=names.POD_SET)
            await catch_up(self._client, self._feeds[PODS], self._clock, PODS, ours)
            caught_up.set()
            await ungater.run()

        yield "ungater", run()

    def _foreign_jobs(self, switch: ForeignSystem) -> Coroutine[Any, Any, None]:
        """Runs the lifecycle of foreign Jobs. None is reconciled before all of their pods are known."""
        controller = ForeignJobController(
            switch,
            self._feeds,
            self._writer,
            self._clock,
            self._events.publish,
            managed=self._config.namespace_selector(self._own_namespace),
            groups=JobGroups(self._writer) if switch.system in self._systems else None,
            tells_ready=self._config.engine.wait_for_pods_ready is not None,
        )
        self._of_others.append(controller.hear)

        async def run() -> None:
            await self._core.loaded.wait()
            theirs = Selection(label_selector=FOREIGN_JOB_PODS.selector)
            await catch_up(self._client, self._feeds[FOREIGN_JOB_PODS], self._clock, PODS, theirs)
            await controller.run()

        return run()

    def _lost_nodes(self) -> NodeFailureController:
        def ready() -> bool:
            return self._core.loaded.is_set() and self._feeds[PODS].synced and len(self._core.inbox) == 0

        lost = NodeFailureController(
            self._core.engine,
            self._core.ledger,
            self._core.writes,
            self._writer.put,
            clock=self._clock,
            ready=ready,
            tell=partial(self._events.publish_all, ledger=self._core.ledger),
            let_go=self._core.decisions.held.let_go,
        )
        self._of_workloads.append(lost.workload)
        self._of_others.append(lost.hear)
        return lost

    def _provisioning(self) -> ProvisioningController:
        requests = ProvisioningController(
            self._core.engine,
            self._core.ledger,
            self._core.writes,
            self._raws,
            self._feeds,
            self._client,
            self._writer.put,
            clock=self._clock,
            tell=partial(self._events.publish_all, ledger=self._core.ledger),
        )
        self._of_workloads.append(requests.workload)
        self._of_others.append(requests.hear)
        return requests

    def _interruptions(self) -> Iterator[NamedTask]:
        """Yields what evicts for nodes that are taken away, and what counts them by flavor."""
        beyond, clock = self._config.engine.extensions, self._clock
        taints, rules = LEAVING | beyond.leaving_taints, beyond.interruptions or InterruptionRules(too_often=0.0)
        count = self._counting.flavor_interrupted
        flavors = FlavorInterruptions(rules, taints, self._writer.put, clock=clock, count=count)
        leaving = InterruptionController(
            taints,
            self._client,
            self._core.ledger,
            self._core.writes,
            clock=clock,
            tell=self._events.publish,
            served=flavors.served,
        )
        self._of_others += [flavors.hear, leaving.hear]
        yield "leaving-nodes", self._after_loading(leaving.run)
        yield "interrupted-flavors", self._after_loading(flavors.run)

    def _placeholders(self) -> PlaceholderController:
        placeholders = PlaceholderController(
            self._core.engine,
            self._core.ledger,
            self._raws,
            self._feeds,
            self._client,
            self._writer.put,
            namespace=self._own_namespace,
            image=self._config.placeholder_image,
            clock=self._clock,
            tell=partial(self._events.publish_all, ledger=self._core.ledger),
        )
        self._of_workloads.append(placeholders.workload)
        self._of_others.append(placeholders.hear)
        return placeholders

    def _stuck_pods(self) -> StuckPodController:
        stuck = StuckPodController(self._client, self._writer.put, clock=self._clock, tell=self._events.publish)
        self._of_others.append(stuck.hear)
        return stuck

    def _foretelling(self) -> Foretelling:
        """Each controller has its own: its tasks end with it."""
        return Foretelling(self._core.ledger, self._forecasts.starts_again, self._events.publish, self._clock)

    def _restart_promises(self) -> RestartPromises:
        core = self._core
        promises = RestartPromises(core.ledger, core.writes, self._forecasts.again, self._events.publish, self._clock)
        self._of_workloads.append(promises.workload)
        return promises

    def _failed_gpus(self) -> GpuFailureController:
        failed = GpuFailureController(
            self._config.gpu_failures,
            self._client,
            self._core.ledger,
            self._core.writes,
            GpuFailureRecord(self._client, self._writer.put, self._own_namespace),
            clock=self._clock,
            may_write=lambda: self._writer.may_write,
            count=self._counting.gpu_failure,
            tell=self._events.publish,
            foretelling=self._foretelling(),
        )
        self._of_others.append(failed.hear)
        return failed

    def _repairs(self) -> Iterator[NamedTask]:
        """Grants and plans repairs of GPUs. Nothing is granted before all that a former leader granted is known."""
        rules, put, tell = self._config.remediation, self._writer.put, self._events.publish
        repairs = RepairController(rules, put, clock=self._clock, figures=self._counting, tell=tell)
        planned = PlannedRepairs(rules.windows, repairs.breaker, put, clock=self._clock, tell=tell)
        self._of_others += [repairs.hear, planned.hear]

        async def run() -> None:
            await self._core.loaded.wait()
            if len(self._feeds[GPU_NODES]):  # a cluster without agents may lack the kind
                await catch_up(self._client, self._feeds[GPU_NODES], self._clock, GPU_NODES)
            while len(self._core.inbox):
                await sleep(self._clock, _LOOK_S)
            await asyncio.gather(repairs.run(), planned.run())

        yield "gpu-repairs", run()

    def _maintenance(self) -> MaintenanceController:
        planned = MaintenanceController(
            self._client,
            self._writer.put,
            own_namespace=self._own_namespace,
            clock=self._clock,
            tell=self._events.publish,
        )
        self._of_others.append(planned.hear)
        return planned

    def _drains(self) -> DrainController:
        drains = DrainController(
            self._config.gpu_failures.policy,
            self._config.remediation.wait_s,
            self._client,
            self._core.ledger,
            self._core.writes,
            clock=self._clock,
            may_write=lambda: self._writer.may_write,
            count=self._counting.drain,
            tell=self._events.publish,
            foretelling=self._foretelling(),
        )
        self._of_others.append(drains.hear)
        return drains

    def _pod_controller(self, jobs: JobController | None) -> Iterator[NamedTask]:
        """Yields the tasks of plain pods. ``jobs`` is None if no kind of job is queued here: then no pod belongs to a
        queued job.
        """
        settings, cluster = job_settings(self._config, self._own_namespace), self._cluster_of_pods(jobs)
        publish = self._events.publish
        written = [system for system in self._systems if not self._config.switch(system).keep_scheduler_name]
        groups = GroupObjects(
            self._client, self._writer, self._systems, settings, cluster, publish, clock=self._clock, written=written
        )
        controller = PodController(
            self._client,
            self._feeds,
            self._core.ledger,
            self._raws,
            PodActions(self._writer, self._workloads, self._events.publish, self._clock),
            settings,
            cluster,
            self._job_kinds,
            pod_groups=groups,
            above_jobs=jobs,
        )
        self._of_workloads.append(controller.workload)
        self._of_others.append(controller.hear)

        async def run() -> None:
            await self._core.loaded.wait()
            seen = Selection(label_selector=QUEUED_PODS.selector)
            await catch_up(self._client, self._feeds[QUEUED_PODS], self._clock, PODS, seen)
            await controller.run()

        yield "pods", run()
        yield from groups.runs()
        if DEPLOYMENTS in self._feeds:
            yield "deployments", self._after_loading(self._deployments().run)

    def _cluster_of_pods(self, jobs: JobController | None) -> ClusterObjects:
        known = cluster_objects(
            self._feeds,
            self._job_kinds,
            has_no_workload if jobs is None else jobs.is_admitted,
            self._device_plan,
            self._externals,
            may_be_spare(self._feeds) if DEPLOYMENTS in self._feeds else is_never_spare,
            owned=self._owned,
        )
        return known if jobs is None else replace(known, has_workload=jobs.has_workload)

    def _deployments(self) -> DeploymentController:
        """The controller of Deployments, whose pods are queued one by one."""
        controller = DeploymentController(
            self._core.engine,
            self._feeds,
            self._core.ledger,
            PodActions(self._writer, self._workloads, self._events.publish, self._clock),
            job_settings(self._config, self._own_namespace),
            clock=self._clock,
        )
        self._of_workloads.append(controller.workload)
        self._of_others.append(controller.hear)
        return controller

    def _bargaining(self) -> CapacityController:
        settings = job_settings(self._config, self._own_namespace)
        controller = capacity_controller(
            self._core,
            self._client,
            self._writer,
            self._workloads,
            self._raws,
            self._feeds,
            self._forecasts,
            composer=Composer(settings, cluster_objects(self._feeds, {}, has_no_workload)),
            rules=self._config.bargaining,
            clock=self._clock,
            tell=self._events.publish,
        )
        self._of_workloads.append(controller.workload)
        self._of_others.append(controller.hear)
        return controller

    def _serving(self, jobs: JobController | None) -> Coroutine[Any, Any, None]:
        """Runs the controller of objects with groups of pods. None is reconciled before all of their pods are known."""
        is_admitted = (lambda _uid: False) if jobs is None else jobs.is_admitted
        controller = ServingController(
            self._client,
            self._grouped,
            self._feeds,
            self._core.ledger,
            self._raws,
            PodActions(self._writer, self._workloads, self._events.publish, self._clock),
            job_settings(self._config, self._own_namespace),
            cluster_objects(
                self._feeds, self._job_kinds, is_admitted, self._device_plan, self._externals, owned=self._owned
            ),
        )
        self._of_workloads.append(controller.workload)
        self._of_others.append(controller.hear)

        async def run() -> None:
            await self._core.loaded.wait()
            for feed in (QUEUED_PODS, JOINING_PODS):
                seen = Selection(label_selector=feed.selector)
                await catch_up(self._client, self._feeds[feed], self._clock, PODS, seen)
            await controller.run()

        return run()


def _drop_series(counting: Counting, observed: ObjectChange) -> None:
    match observed.change:
        case Removed(key=key) if observed.resource == CLUSTER_QUEUES or observed.resource in FOREIGN_QUEUES:
            counting.gone_cluster_queue(key.name)
        case Removed(key=key) if observed.resource == LOCAL_QUEUES:
            counting.gone_local_queue(key.namespace, key.name)
        case Removed(key=key) if observed.resource == COHORTS:
            counting.gone_cohort(key.name)
