"""Reads a configuration file into a ControllerConfig. ``parse`` is pure; ``load`` reads the file and nothing else."""

from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from controller.cluster.config.decisions import engine_config
from controller.cluster.config.keys import API_VERSIONS, KEYS, V1BETA1
from controller.cluster.config.page import oidc_provider, page_prometheus
from controller.cluster.config.queueusage import usage_source
from controller.cluster.config.reader import Found, read
from controller.cluster.config.runningkeys import REPAIR_WINDOWS
from controller.cluster.config.settings import (
    DEFAULT_FRAMEWORKS,
    FOREIGN_LEASES,
    INJECTED,
    KNOWN_FRAMEWORKS,
    MANAGED_FRAMEWORKS,
    NAMESPACE_NAME_LABEL,
    POD_FRAMEWORKS,
    BargainingRules,
    Certificates,
    ClientLimits,
    ControllerConfig,
    ForeignSystem,
    GpuFailureRules,
    Health,
    Integrations,
    LeaderElection,
    Metrics,
    PendingReports,
    Policy,
    RemediationRules,
    Retention,
    Tls,
    Webhook,
    with_foreign_jobs,
)
from controller.foreign.rules.fractions import Fleet
from controller.foreign.rules.schedulers import SCHEDULERS
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.tiers import Tier, Tiers
from controller.jobs.kinds.kubeflow import INIT_PYTORCH
from controller.jobs.kinds.raypods import WAIT_GCS_READY
from controller.jobs.kinds.table import JOB_KINDS
from controller.jobs.serving.kind import StampedKind
from controller.jobs.serving.table import STAMPED_KINDS
from controller.objects.meta import LabelSelector
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.cron import Window
from yamlfile import ConfigError, Document, Place, YamlKind, parse_text, read_text

T = TypeVar("T")
HOLD_AT_MOST_S: Final = 30.0
"""The longest time for which preemptions under ``policy: tessera`` are held, if ends take that long to be seen."""

_SECTIONS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "leader_election": (
        LeaderElection,
        {
            "enabled": "leaderElection.leaderElect",
            "lease_duration_s": "leaderElection.leaseDuration",
            "renew_deadline_s": "leaderElection.renewDeadline",
            "retry_period_s": "leaderElection.retryPeriod",
            "resource_name": "leaderElection.resourceName",
            "resource_namespace": "leaderElection.resourceNamespace",
        },
    ),
    "metrics": (
        Metrics,
        {
            "address": "metrics.bindAddress",
            "cluster_queue_resources": "metrics.enableClusterQueueResources",
            "local_queues": "metrics.localQueueMetrics.enable",
            "local_queue_selector": "metrics.localQueueMetrics.localQueueSelector",
        },
    ),
    "health": (
        Health,
        {
            "address": "health.healthProbeBindAddress",
            "readiness": "health.readinessEndpointName",
            "liveness": "health.livenessEndpointName",
        },
    ),
    "certificates": (
        Certificates,
        {
            "internal": "internalCertManagement.enable",
            "service_name": "internalCertManagement.webhookServiceName",
            "secret_name": "internalCertManagement.webhookSecretName",
        },
    ),
    "retention": (
        Retention,
        {
            "after_finished_s": "objectRetentionPolicies.workloads.afterFinished",
            "after_deactivated_s": "objectRetentionPolicies.workloads.afterDeactivatedByKueue",
        },
    ),
    "pending_reports": (
        PendingReports,
        {"after_s": "tessera.pendingCondition.after", "every_s": "tessera.pendingCondition.atMostEvery"},
    ),
    "gpu_failures": (
        GpuFailureRules,
        {
            "policy": "tessera.gpuFailures.policy",
            "budget": "tessera.gpuFailures.budget",
            "window_s": "tessera.gpuFailures.window",
            "cool_down_s": "tessera.gpuFailures.coolDown",
        },
    ),
    "bargaining": (
        BargainingRules,
        {"on": "tessera.bargaining.enabled", "longest_hold_s": "tessera.bargaining.longestHold"},
    ),
    "remediation": (
        RemediationRules,
        {
            "budget": "tessera.remediation.budget",
            "window_s": "tessera.remediation.window",
            "wait_s": "tessera.remediation.wait",
        },
    ),
}
"""Settings that are one key each: field of ControllerConfig -> its type, and the path of each of its fields."""


def process_settings(found: Found, policy: Policy) -> dict[str, Any]:
    """The fields of ControllerConfig beside policy, engine and what has no effect. Raises ConfigError."""
    settings: dict[str, Any] = {
        name: type_(**{field: found.get(path) for field, path in paths.items() if path in found})
        for name, (type_, paths) in _SECTIONS.items()
    }
    _check_election(found, settings["leader_election"])
    integrations = _integrations(found)
    settings.update(
        namespace=found.get("namespace"),
        manage_jobs_without_queue_name=found.get("manageJobsWithoutQueueName", False),
        managed_namespaces=_managed_namespaces(found),
        integrations=integrations,
        client=_client(found),
        webhook=Webhook(
            host=found.get("webhook.host", ""),
            port=found.get("webhook.port", Webhook().port),
            cert_dir=str(found.get("webhook.certDir", Webhook().cert_dir)),
            client_ca=found.get("tessera.webhookClientCA", ""),
        ),
        tls=Tls(min_version=found.get("tls.minVersion", ""), ciphers=found.values("tls.cipherSuites")),
    )
    levels = tuple(dict.fromkeys(found.values("tessera.remediation.levels")))
    settings["remediation"] = msgspec.structs.replace(settings["remediation"], levels=levels, windows=_windows(found))
    settings["fractions"] = Fleet(
        granularity=found.get("tessera.fractions.granularity", Fleet().granularity),
        memory_mib=found.entries("tessera.fractions.gpuMemoryMib"),
    )
    if "tessera.placeholderImage" in found:
        settings["placeholder_image"] = found.get("tessera.placeholderImage")
    if "tessera.batchEvents" in found:
        settings["batch_events_s"] = found.get("tessera.batchEvents")
    if "tessera.workloadV1beta1" in found:
        settings["serve_old_workloads"] = found.get("tessera.workloadV1beta1")
    if "tessera.holdEvictions" in found:
        settings["hold_evictions_s"] = found.get("tessera.holdEvictions")
    usual_s = HOLD_AT_MOST_S if policy is Policy.TESSERA else 0.0
    settings["native_gangs"] = found.get("tessera.nativeGangs", policy is Policy.TESSERA)
    settings["hold_evictions_at_most_s"] = found.get("tessera.holdEvictionsAtMost", usual_s)
    return settings


def _check_election(found: Found, election: LeaderElection) -> None:
    """Checks that a lease outlives the renewal's deadline, and the deadline several attempts: client-go's rule. Raises
    ConfigError.
    """
    for key, value, low, other in (
        ("renewDeadline", election.renew_deadline_s, election.retry_period_s, "retryPeriod"),
        ("leaseDuration", election.lease_duration_s, election.renew_deadline_s, "renewDeadline"),
    ):
        if value <= low or low <= 0:
            named = key if f"leaderElection.{key}" in found else other
            place = found.places[f"leaderElection.{named}"]
            raise place.error(f"leaseDuration > renewDeadline > retryPeriod > 0s ({key} is {value:g}s)")


def _client(found: Found) -> ClientLimits:
    default = ClientLimits()
    qps = found.get("clientConnection.qps", default.qps)
    if qps == 0:
        qps = default.qps
    return ClientLimits(
        qps=None if qps is None or qps < 0 else qps, burst=found.get("clientConnection.burst", default.burst)
    )


def _integrations(found: Found) -> Integrations:
    frameworks = []
    for path in found.items("integrations.frameworks"):
        place, name = found.places[path], found.get(path)
        if name not in KNOWN_FRAMEWORKS:
            raise place.error(f"one of {', '.join(sorted(KNOWN_FRAMEWORKS))}")
        if name not in MANAGED_FRAMEWORKS:
            found.note(place, f"{name} is no job kind of this version")
        frameworks.append(name)
    external = found.values("integrations.externalFrameworks")
    kinds: tuple[JobKind | StampedKind, ...] = (*JOB_KINDS, *STAMPED_KINDS)
    others = {kind.framework for kind in kinds if f"{kind.kind}.{kind.version}.{kind.group}" in external}
    wanted = dict.fromkeys(frameworks or DEFAULT_FRAMEWORKS)
    return Integrations(
        frameworks=tuple(name for name in wanted if name not in others),
        external_frameworks=tuple(dict.fromkeys(external)),
        label_keys_to_copy=tuple(dict.fromkeys(found.values("integrations.labelKeysToCopy"))),
    )


def _managed_namespaces(found: Found) -> LabelSelector | None:
    path = "managedJobsNamespaceSelector"
    selector: LabelSelector | None = found.get(path)
    named = {found.get(name) for name in found.items("integrations.frameworks")}
    if selector is None or POD_FRAMEWORKS.isdisjoint(named):
        return selector
    for name in ("kube-system", found.get("namespace")):
        if name is not None and selector.matches({NAMESPACE_NAME_LABEL: name}):
            raise found.places[path].error(
                f"one that leaves out {name}: its pods must start without us", f"a selector that matches {name}"
            )
    return selector


def load(file: Path | None) -> ControllerConfig:
    """The configuration in ``file``; without one, ``default()``. Raises ConfigError."""
    return default() if file is None else parse(read_text(file), str(file))


def default() -> ControllerConfig:
    """The configuration without a file: Kueue's defaults, and Tessera's policy."""
    return _build(Found(), Policy.TESSERA, newest=True)


def parse(text: str, file: str = "config") -> ControllerConfig:
    """The configuration in ``text``; ``file`` is its name in messages. Raises ConfigError."""
    root = Place(Document(file=file), "", parse_text(text, file))
    newest = _check_version(root)
    block = root.node.entries.get("tessera")
    if block is not None and block.kind is YamlKind.NULL:
        # An empty block does not tell which policy holds, and the two evict different workloads.
        raise ConfigError(f"{file}:{block.line}", "tessera", "nothing", "a section, e.g. {policy: tessera}")
    found = read(root, KEYS, newest=newest)
    policy = found.get("tessera.policy", Policy.TESSERA if "tessera" in found else Policy.KUEUE)
    return _build(found, policy, newest=newest)


def _build(found: Found, policy: Policy, *, newest: bool) -> ControllerConfig:
    engine = engine_config(found, policy, newest=newest)
    settings = process_settings(found, policy)
    settings["usage_source"] = usage_source(found)
    settings["oidc"], settings["page_prometheus"] = oidc_provider(found), page_prometheus(found)
    settings["page_history"] = found.get("tessera.page.history.folder")
    if settings["page_prometheus"] is not None and "metrics.enableClusterQueueResources" not in found:
        # The page's history of queues is made of these series.
        settings["metrics"] = msgspec.structs.replace(settings["metrics"], cluster_queue_resources=True)
    settings["injected"] = _injected(found, policy)
    foreign = {system: _foreign(found, policy, system) for system in System}
    settings["foreign"] = foreign
    if not found.items("integrations.frameworks"):
        settings["integrations"] = with_foreign_jobs(settings["integrations"], foreign)
    return ControllerConfig(policy=policy, engine=engine, without_effect=tuple(found.without_effect), **settings)


def _foreign(found: Found, policy: Policy, system: System) -> ForeignSystem:
    section = f"tessera.{system}"
    leases = found.values(f"{section}.leases") if f"{section}.leases" in found else FOREIGN_LEASES[system]
    usual = None if policy is Policy.TESSERA else False
    return ForeignSystem(
        system=system,
        enabled=found.get(f"{section}.enabled", usual),
        leases=leases,
        namespaces=found.get(f"{section}.namespaceSelector", LabelSelector()),
        scheduler_names=found.values(f"{section}.schedulerNames") or (SCHEDULERS[system.value],),
        keep_scheduler_name=found.get(f"{section}.keepSchedulerName", False),
        tiers=_tiers(found, f"{section}.topology"),
    )


def _tiers(found: Found, path: str) -> Tiers:
    tiers = tuple(
        Tier(node_label=found.required(item, "nodeLabel"), name=found.get(f"{item}.tierName", ""))
        for item in found.items(path)
    )
    for index, tier in enumerate(tiers):
        if tier.node_label in (HOSTNAME_LABEL, *(other.node_label for other in tiers[:index])):
            place = found.places[f"{path}[{index}].nodeLabel"]
            raise place.error(f"a label of its own, wider than that of the tier before, and not {HOSTNAME_LABEL}")
    return tiers


def _windows(found: Found) -> tuple[Window, ...]:
    return tuple(
        Window(found.required(item, "from"), found.required(item, "for"), found.get(f"{item}.zone", "UTC"))
        for item in found.items(REPAIR_WINDOWS)
    )


def _injected(found: Found, policy: Policy) -> dict[str, dict[str, str]]:
    """Requests by init container; a container that requests nothing is left out."""
    charged = {}
    for container, section in (
        (WAIT_GCS_READY, "tessera.initContainers.kuberay"),
        (INIT_PYTORCH, "tessera.initContainers.training"),
    ):
        usual = INJECTED[container] if policy is Policy.TESSERA else {}
        asked = {name: found.get(f"{section}.{name}", usual.get(name)) for name in ("cpu", "memory")}
        requests = {name: str(amount) for name, amount in asked.items() if amount is not None and str(amount) != "0"}
        if requests:
            charged[container] = requests
    return charged


def _check_version(root: Place) -> bool:
    """Whether the file is of the newest version. Raises ConfigError for a file that is no configuration at all."""
    if root.node.kind is not YamlKind.MAP:
        raise root.error(f"a section with apiVersion: {API_VERSIONS[0]} and kind: Configuration")
    children = dict(root.children())
    for key, words in (("apiVersion", API_VERSIONS), ("kind", ("Configuration",))):
        if key not in children or children[key].is_null:
            raise root.error(f"the key {key}, {' or '.join(words)}", "none")
        if children[key].node.text not in words or children[key].node.kind is not YamlKind.STRING:
            hint = ""
            if children[key].node.text in ("v1", "ConfigMap") and "data" in children:
                hint = " (a ConfigMap's file is the text below its data)"
            raise children[key].error(f"{' or '.join(words)}{hint}")
    return children["apiVersion"].node.text != V1BETA1
