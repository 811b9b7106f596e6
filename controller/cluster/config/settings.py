"""The controller's settings: one frozen struct for a configuration file of either version, defaults filled in.

The defaults are Kueue's (``config.kueue.x-k8s.io/v1beta2``) unless a field says otherwise. Durations are seconds.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from controller.cluster.config.pagesettings import OidcProvider, PagePrometheus
from controller.foreign.rules.fractions import Fleet
from controller.foreign.rules.schedulers import SCHEDULERS, bound_by
from controller.jobs.framework.tiers import Tiers
from controller.jobs.kinds.kubeflow import INIT_PYTORCH
from controller.jobs.kinds.raypods import WAIT_GCS_READY
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.apps import Deployment
from controller.jobs.serving.kind import StampedKind
from controller.jobs.serving.table import STAMPED_KINDS
from controller.objects.meta import LabelSelector, LabelSelectorRequirement
from controller.scheduler.mirror.specs import Adoption, System
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.cron import Window
from controller.scheduler.model.resources import ResourceName

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
KUEUE_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"
JOB: Final = "batch/job"
POD: Final = "pod"
VOLCANO_JOB: Final = "batch.volcano.sh/job"
_VOLCANO_KIND: Final = "Job.v1alpha1.batch.volcano.sh"


POD_FRAMEWORKS: Final = frozenset({POD, "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"})
"""Job kinds that are queued pod by pod, by the names that Kueue's configuration gives them."""

INJECTED: Final[Mapping[str, Mapping[str, str]]] = {
    WAIT_GCS_READY: {"cpu": "200m", "memory": "256Mi"},
    INIT_PYTORCH: {"cpu": "50m", "memory": "10Mi"},
}
"""Requests of the init containers that operators put into pods, by name (KubeRay 1.7, training operator 1.8.1)."""

KNOWN_FRAMEWORKS: Final = POD_FRAMEWORKS | {
    JOB,
    VOLCANO_JOB,
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/mxjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
}
"""All frameworks that Kueue has, and Volcano's Jobs."""

DEFAULT_FRAMEWORKS: Final = (*(kind.framework for kind in JOB_KINDS), *(kind.framework for kind in STAMPED_KINDS))
"""The frameworks if the configuration names none: every kind of job that the API server serves. Pods are queued only if
it names them."""

MANAGED_FRAMEWORKS: Final = frozenset({POD, VOLCANO_JOB, *DEFAULT_FRAMEWORKS})
"""The frameworks that this version manages. Volcano's Jobs are on only by name, or with ``tessera.volcano``: Tessera
runs them, and so may Volcano's controller."""

IMPLIED_FRAMEWORKS: Final[Mapping[str, tuple[str, ...]]] = {
    VOLCANO_JOB: (POD,),
    **{kind.framework: (POD,) for kind in STAMPED_KINDS},
}
"""Job kinds that others need: they are on for the objects of these alone. Pods of a Volcano Job above its minimum are
queued one by one."""


def implied(
    frameworks: Collection[str], implies: Mapping[str, Collection[str] | None] = IMPLIED_FRAMEWORKS
) -> frozenset[str]:
    """Job kinds that are on because the named ones need them, and are not named themselves."""
    needed = {name for framework in frameworks for name in implies.get(framework) or ()}
    return frozenset(needed.difference(frameworks))


class Policy(StrEnum):
    """The behaviour: exactly Kueue's, or with all features beyond it."""

    KUEUE = "kueue"
    TESSERA = "tessera"


class Address(Struct, frozen=True):
    """The address of a server."""

    host: str
    port: int


class Integrations(Struct, frozen=True, kw_only=True):
    """The frameworks. ``frameworks`` are Kueue's names of job kinds, ``external_frameworks`` ``Kind.version.group`` of
    kinds that other controllers bring to Kueue's API; ``label_keys_to_copy`` are copied from a job to its new Workload.
    """

    frameworks: tuple[str, ...] = DEFAULT_FRAMEWORKS
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()

    @property
    def queue_pods(self) -> bool:
        """Whether pods are queued: all that name a queue, or pods of serving kinds alone."""
        return POD in self.frameworks or POD in implied(self.frameworks)

    @property
    def serving_kinds(self) -> tuple[StampedKind, ...]:
        return tuple(kind for kind in STAMPED_KINDS if kind.framework in self.frameworks)


class ClientLimits(Struct, frozen=True, kw_only=True):
    """``qps``: requests a second to the API server, None without a limit. ``burst``: requests at once."""

    qps: float | None = 300.0
    burst: int = 500


class LeaderElection(Struct, frozen=True, kw_only=True):
    """The leases. ``enabled`` is None if neither the file nor its version sets it: then the flag decides.

    ``resource_namespace`` None is the controller's own.
    """

    enabled: bool | None = None
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_name: str = KUEUE_LEASE
    resource_namespace: str | None = None


class Metrics(Struct, frozen=True, kw_only=True):
    """``address`` None turns metrics off. The default is Tessera's own port: Kueue's 8443 speaks TLS."""

    address: Address | None = Address("0.0.0.0", 8080)  # noqa: S104 - scraped from outside the pod
    cluster_queue_resources: bool = False
    local_queues: bool = True
    local_queue_selector: LabelSelector = LabelSelector()


class Health(Struct, frozen=True, kw_only=True):
    """The probes; ``address`` None turns them off. The names are the last part of the path."""

    address: Address | None = Address("0.0.0.0", 8081)  # noqa: S104 - the kubelet asks from outside the pod
    readiness: str = "readyz"
    liveness: str = "healthz"


class Webhook(Struct, frozen=True, kw_only=True):
    """The webhooks. ``cert_dir`` holds tls.crt and tls.key when the certificates come from elsewhere."""

    host: str = ""
    port: int = 9443
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - Kueue's path: cert-manager mounts there
    client_ca: str = ""
    """The authority that signs the certificate which the API server shows for admission, in PEM; empty if it shows
    none."""


class Certificates(Struct, frozen=True, kw_only=True):
    """The certificates. ``internal``: the controller makes and renews its own, kept in ``secret_name``, valid for
    ``service_name``.

    The names are None if the file does not have them: the chart's own are used then.
    """

    internal: bool = True
    service_name: str | None = None
    secret_name: str | None = None


class Tls(Struct, frozen=True, kw_only=True):
    """``min_version`` is ``1.2`` or the like, empty for the library's default; ``ciphers`` are OpenSSL's names, () for
    all.
    """

    min_version: str = ""
    ciphers: tuple[str, ...] = ()


class Retention(Struct, frozen=True, kw_only=True):
    """The times after which Workloads are deleted; None never, 0 at once."""

    after_finished_s: float | None = None
    after_deactivated_s: float | None = None


class PendingReports(Struct, frozen=True, kw_only=True):
    """When a pending condition is written: after ``after_s`` of waiting, when its reason changes, else every
    ``every_s``.
    """

    after_s: float = 5.0
    every_s: float = 60.0


class OnGpuFailure(StrEnum):
    """What happens to a pod whose GPU fails: the values of its annotation ``tessera.dev/on-gpu-failure``."""

    NOTIFY = "notify"
    EVICT = "evict"
    REQUEUE_GANG = "requeue-gang"


class GpuFailureRules(Struct, frozen=True, kw_only=True):
    """The rules about failed GPUs. ``policy`` applies to pods without the annotation. At most ``budget`` actions in any
    ``window_s``, 0 for none; after an action a workload is spared for ``cool_down_s``.
    """

    policy: OnGpuFailure = OnGpuFailure.NOTIFY
    budget: int = 10
    window_s: float = 600.0
    cool_down_s: float = 300.0


class RepairBudget(Struct, frozen=True, kw_only=True):
    """The most GPUs of one flavor that may be in action: ``gpus``, or else ``percent`` of those that it has, at least
    one.
    """

    gpus: int | None = None
    percent: int = 10

    def of(self, total: int) -> int:
        return self.gpus if self.gpus is not None else max(1, total * self.percent // 100)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.gpus is None else str(self.gpus)


class RemediationRules(Struct, frozen=True, kw_only=True):
    """The rules about repairs of GPUs. A GPU counts against ``budget`` for ``window_s`` after it was granted a step,
    and while it is reset. ``levels``: labels of nodes; of the nodes with one value of such a label only one has GPUs in
    action. ``wait_s``: a pod that is left alone by its policy may use a GPU that is drained for so long. ``windows``:
    when the resets are ordered that GPUs are due which work; none: people order them.
    """

    budget: RepairBudget = RepairBudget()
    window_s: float = 600.0
    levels: tuple[str, ...] = ()
    wait_s: float = 3600.0
    windows: tuple[Window, ...] = ()


class ForeignSystem(Struct, frozen=True, kw_only=True):
    """Whether Tessera decides for Volcano, or for KAI. ``enabled`` None: if its Queue is served and none of ``leases``
    is held, which are ``namespace/name`` of the leases of its own schedulers and controllers.

    ``scheduler_names``: the names by which pods ask for its scheduler. ``keep_scheduler_name``: that scheduler runs and
    chooses nodes for pods that are admitted here. ``tiers``: the levels for Volcano's HyperNodes.
    """

    system: System
    enabled: bool | None = False
    leases: tuple[str, ...] = ()
    namespaces: LabelSelector = LabelSelector()
    scheduler_names: tuple[str, ...] = ()
    keep_scheduler_name: bool = False
    tiers: Tiers = ()

    @property
    def adoption(self) -> Adoption:
        levels = tuple(tier.node_label for tier in reversed(self.tiers))
        return Adoption(places=not self.keep_scheduler_name, namespaces=self.namespaces, levels=levels)

    def binds(self, scheduler_name: str) -> str:
        """The ``schedulerName`` of a pod that the controller makes, whose template or job names this one."""
        return bound_by(scheduler_name, self.system.value, names=self.scheduler_names, keep=self.keep_scheduler_name)


FOREIGN_LEASES: Final[Mapping[System, tuple[str, ...]]] = {
    System.VOLCANO: ("volcano-system/volcano", "volcano-system/vc-controller-manager"),
    System.KAI: ("kai-scheduler/kai-scheduler",),
}


def with_foreign_jobs(integrations: Integrations, foreign: Mapping[System, ForeignSystem]) -> Integrations:
    """The integrations where no frameworks are named: Volcano's Jobs are among them if Tessera may decide for Volcano,
    and no external framework has them.
    """
    if foreign[System.VOLCANO].enabled is False or _VOLCANO_KIND in integrations.external_frameworks:
        return integrations
    return structs.replace(integrations, frameworks=(*integrations.frameworks, VOLCANO_JOB))


class WithoutEffect(Struct, frozen=True, kw_only=True):
    """A key, or a value of one, that is known and changes nothing here. ``where`` is ``file:line``."""

    where: str
    key: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: no effect: {self.why}"


class BargainingRules(Struct, frozen=True, kw_only=True):
    """``on``: CapacityRequests of the cluster are answered. ``longest_hold_s``: how long an offer is held at most."""

    on: bool = False
    longest_hold_s: float = 60.0


class UsageMetrics(Struct, frozen=True, kw_only=True):
    """Expressions of PromQL: the amount of a resource that each Queue has, by the label ``queue_name``, and the
    capacity.
    """

    allocated: str
    capacity: str


class UsageSource(Struct, frozen=True, kw_only=True):
    """The Prometheus that has past use of KAI's Queues. ``metrics``: by resource.

    The files are read for each query: their content may change.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    timeout_s: float = 10.0
    resolution_s: float = 60.0
    metrics: Mapping[ResourceName, UsageMetrics] = {}


class ControllerConfig(Struct, frozen=True, kw_only=True):
    """The whole configuration. ``namespace`` None is the one that the controller runs in."""

    policy: Policy
    engine: EngineConfig
    namespace: str | None = None
    manage_jobs_without_queue_name: bool = False
    managed_namespaces: LabelSelector | None = None
    """The namespaces whose jobs are managed. None is the default of ``namespace_selector``."""
    integrations: Integrations = Integrations()
    client: ClientLimits = ClientLimits()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = Metrics()
    health: Health = Health()
    webhook: Webhook = Webhook()
    certificates: Certificates = Certificates()
    tls: Tls = Tls()
    retention: Retention = Retention()
    pending_reports: PendingReports = PendingReports()
    gpu_failures: GpuFailureRules = GpuFailureRules()
    remediation: RemediationRules = RemediationRules()
    foreign: Mapping[System, ForeignSystem] = {}
    """The switches of Volcano and KAI; a system without one is off."""
    usage_source: UsageSource | None = None
    """The source of past use of KAI's Queues; without it the controller's own records count."""
    oidc: OidcProvider | None = None
    page_prometheus: PagePrometheus | None = None
    page_history: Path | None = None
    """The folder in which this replica records the past; None: it does not."""
    injected: Mapping[str, Mapping[str, str]] = {}
    """Requests that are charged for init containers which operators put into pods, by their name."""
    fractions: Fleet = Fleet()
    """The fleet by which KAI's and HAMi's parts of GPUs become percents, if the controller's webhook translates
    them."""
    placeholder_image: str = "registry.k8s.io/pause:3.10"
    """The image of placeholders, which does nothing."""
    batch_events_s: float = 0.02
    """The time for which events are gathered before the engine decides."""
    hold_evictions_s: float = 0.5
    """The time for which preemptions are held back while many decisions are written; 0 for none."""
    hold_evictions_at_most_s: float = 0.0
    """The bound of ``hold_evictions_s`` if ends take long to be seen; ``hold_evictions_s`` itself if the bound is
    less."""
    bargaining: BargainingRules = BargainingRules()
    native_gangs: bool = False
    """Whether jobs start with PodGroups of ``scheduling.k8s.io`` that the controller makes, where they are served."""
    serve_old_workloads: bool = True
    """Whether v1beta1 of Workload is served; the CRDs' other kinds always serve it."""
    without_effect: tuple[WithoutEffect, ...] = ()

    @property
    def counts_replicas(self) -> bool:
        """Whether replicas of a Deployment are known as such: its minimum is kept, and rollouts keep their quota."""
        return self.policy is Policy.TESSERA and Deployment.framework in self.integrations.frameworks

    @property
    def jobs_grow(self) -> bool:
        """Whether pods above a job's minimum are let go of and queued: otherwise it would run with its minimum for
        ever.
        """
        return self.engine.gates.on("TopologyAwareScheduling") and self.integrations.queue_pods

    def switch(self, system: System) -> ForeignSystem:
        return self.foreign.get(system) or ForeignSystem(system=system)

    @property
    def foreign_jobs(self) -> ForeignSystem | None:
        """The switch of the system whose Jobs are run here; None if they are not among the frameworks."""
        return self.switch(System.VOLCANO) if VOLCANO_JOB in self.integrations.frameworks else None

    @property
    def serving_gangs(self) -> ForeignSystem:
        """The switch of the system whose annotation makes gangs of serving objects."""
        return self.switch(System.VOLCANO)

    @property
    def job_namespaces(self) -> dict[str, LabelSelector]:
        """The namespaces in which jobs of a framework are queued, by the framework; others are queued in all."""
        return {VOLCANO_JOB: self.switch(System.VOLCANO).namespaces}

    @property
    def tiers(self) -> Tiers:
        """The levels of nodes that foreign jobs may ask for."""
        return self.switch(System.VOLCANO).tiers

    @property
    def schedulers(self) -> dict[str, System]:
        """The systems by the names of their schedulers."""
        found = {system: self.switch(system).scheduler_names or (SCHEDULERS[system.value],) for system in System}
        return {name: system for system, names in found.items() for name in names}

    @property
    def local_queue_metrics(self) -> bool:
        """Whether LocalQueues have series: by the file, and by the gate."""
        return self.metrics.local_queues and self.engine.gates.on("LocalQueueMetrics")

    def namespace_selector(self, own_namespace: str) -> LabelSelector:
        """The selector of namespaces whose jobs are managed: the file's, else all but kube-system and the controller's
        own.
        """
        if self.managed_namespaces is not None:
            return self.managed_namespaces
        return all_but("kube-system", self.namespace or own_namespace)


def all_but(*namespaces: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=namespaces)
    return LabelSelector(match_expressions=(requirement,))
