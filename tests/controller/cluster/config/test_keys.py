"""Each key of the table does what the table says: it changes the configuration, or is named as without effect."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from controller.cluster.config.inertgates import GONE, IDLE
from controller.cluster.config.key import Key
from controller.cluster.config.keys import API_VERSIONS, KEYS, V1BETA1
from controller.cluster.config.load import default, load, parse
from controller.cluster.config.reference import PAGES, rewritten
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.webhooks.certificates import new_authority
from controller.scheduler.model.gates import DEFAULTS, FeatureGates
from controller.scheduler.model.podrequests import RequestRules

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples" / "configs" / "controller").glob("*.yaml"))

SELECTOR = {"matchLabels": {"a": "b"}}
GIVEN: dict[str, Any] = {
    "apiVersion": V1BETA1,
    "kind": "Configuration",
    "namespace": "site",
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": SELECTOR,
    "featureGates.*": {"PartialAdmission": False},
    "fairSharing.enable": True,
    "fairSharing.preemptionStrategies[]": ["LessThanInitialShare"],
    "admissionFairSharing.usageHalfLifeTime": "1h",
    "admissionFairSharing.usageSamplingInterval": "1m",
    "admissionFairSharing.resourceWeights.*": {"cpu": 2},
    "waitForPodsReady.enable": True,
    "waitForPodsReady.timeout": "7m",
    "waitForPodsReady.recoveryTimeout": "3m",
    "waitForPodsReady.blockAdmission": False,
    "waitForPodsReady.maxTimeoutOnWorkload": "1h",
    "waitForPodsReady.requeuingStrategy.timestamp": "Creation",
    "waitForPodsReady.requeuingStrategy.backoffLimitCount": 3,
    "waitForPodsReady.requeuingStrategy.backoffBaseSeconds": 1,
    "waitForPodsReady.requeuingStrategy.backoffMaxSeconds": 2,
    "resources.quotaCheckStrategy": "IgnoreUndeclared",
    "resources.excludeResourcePrefixes[]": ["example.com/"],
    "resources.transformations[].input": "a",
    "resources.transformations[].strategy": "Replace",
    "resources.transformations[].multiplyBy": "m",
    "resources.transformations[].outputs.*": {"o": "2"},
    "resources.deviceClassMappings[].name": "gpus",
    "resources.deviceClassMappings[].deviceClassNames[]": ["other.example.com"],
    **{
        f"resources.deviceClassMappings[].sources[].{source}.{key}": value
        for source in ("counter", "capacity")
        for key, value in (
            ("name", "slices"),
            ("driver", "other.example.com"),
            ("deviceSelector.cel.expression", "device.driver == 'a'"),
        )
    },
    "integrations.frameworks[]": ["batch/job", "kubeflow.org/mxjob"],
    "integrations.externalFrameworks[]": ["Job.v1.example.com"],
    "integrations.labelKeysToCopy[]": ["team"],
    "objectRetentionPolicies.workloads.afterFinished": "0s",
    "objectRetentionPolicies.workloads.afterDeactivatedByKueue": "1h",
    "clientConnection.qps": 10,
    "clientConnection.burst": 11,
    "leaderElection.leaderElect": True,
    "leaderElection.leaseDuration": "20s",
    "leaderElection.renewDeadline": "12s",
    "leaderElection.retryPeriod": "3s",
    "leaderElection.resourceLock": "leases",
    "leaderElection.resourceName": "other",
    "leaderElection.resourceNamespace": "elsewhere",
    "metrics.bindAddress": "0",
    "metrics.enableClusterQueueResources": True,
    "metrics.localQueueMetrics.enable": False,
    "metrics.localQueueMetrics.localQueueSelector": SELECTOR,
    "health.healthProbeBindAddress": "127.0.0.1:1",
    "health.readinessEndpointName": "ready",
    "health.livenessEndpointName": "live",
    "webhook.port": 1,
    "webhook.host": "::1",
    "webhook.certDir": "/certs",
    "internalCertManagement.enable": False,
    "internalCertManagement.webhookServiceName": "service",
    "internalCertManagement.webhookSecretName": "secret",
    "tls.minVersion": "VersionTLS13",
    "tls.cipherSuites[]": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
    "tessera.policy": "kueue",
    "tessera.bargaining.enabled": True,
    "tessera.bargaining.longestHold": "5s",
    "tessera.reserveForPreemptor": False,
    "tessera.noEvictionCycles": False,
    "tessera.minimumRuntimeBeforePreemption.enabled": False,
    "tessera.minimumRuntimeBeforePreemption.default": "5m",
    "tessera.minimumRuntimeBeforePreemption.byPriorityClass.*": {"high": "5m"},
    "tessera.backfill": "none",
    "tessera.victimOrder": "newest",
    "tessera.keepLinkedGpus": False,
    "tessera.packing.emptyNodes": 1.5,
    "tessera.packing.freeNodes": True,
    "tessera.consolidation.enabled": False,
    "tessera.consolidation.minimumRuntime": "1m",
    "tessera.consolidation.movesPerHour": 3,
    "tessera.quotaFromCapacity": False,
    "tessera.honestUnits.gpuMemory": "80Gi",
    "tessera.honestUnits.computeSlices": 4,
    "tessera.honestUnits.sharedReplicas": 4,
    "tessera.fractions.granularity": 5,
    "tessera.fractions.gpuMemoryMib.*": {"NVIDIA-A100-SXM4-80GB": 81920},
    "tessera.initContainers.kuberay.cpu": "1",
    "tessera.initContainers.kuberay.memory": "1Gi",
    "tessera.initContainers.training.cpu": "0",
    "tessera.initContainers.training.memory": "1Gi",
    "tessera.pendingCondition.after": "1s",
    "tessera.pendingCondition.atMostEvery": "2m",
    "tessera.nativeGangs": False,
    "tessera.gpuFailures.policy": "evict",
    "tessera.gpuFailures.budget": 3,
    "tessera.gpuFailures.window": "1m",
    "tessera.gpuFailures.coolDown": "1m",
    "tessera.remediation.budget": "5%",
    "tessera.remediation.window": "1h",
    "tessera.remediation.levels[]": ["topology.example.com/rack"],
    "tessera.remediation.wait": "5m",
    "tessera.remediation.repairWindows[].from": "0 2 * * *",
    "tessera.remediation.repairWindows[].for": "4h",
    "tessera.remediation.repairWindows[].zone": "Europe/Berlin",
    "tessera.volcano.enabled": True,
    "tessera.volcano.leases[]": ["site/scheduler"],
    "tessera.volcano.namespaceSelector": SELECTOR,
    "tessera.volcano.schedulerNames[]": ["theirs"],
    "tessera.volcano.keepSchedulerName": True,
    "tessera.volcano.topology[].nodeLabel": "rack",
    "tessera.volcano.topology[].tierName": "rack",
    "tessera.kai.enabled": False,
    "tessera.kai.leases[]": ["site/scheduler"],
    "tessera.kai.namespaceSelector": SELECTOR,
    "tessera.kai.schedulerNames[]": ["theirs"],
    "tessera.kai.keepSchedulerName": True,
    "tessera.kai.usage.enabled": True,
    "tessera.kai.usage.kValue": 2,
    "tessera.kai.usage.windowSize": "24h",
    "tessera.kai.usage.halfLifePeriod": "12h",
    "tessera.kai.usage.fetchInterval": "30s",
    "tessera.kai.usage.windowType": "tumbling",
    "tessera.kai.usage.tumblingWindowStartTime": "2026-01-05T00:00:00Z",
    "tessera.kai.usage.cronString": "0 0 * * mon",
    "tessera.kai.usage.clientType": "prometheus",
    "tessera.kai.usage.connectionString": "http://prometheus:9090",
    "tessera.kai.usage.bearerTokenFile": "/run/token",
    "tessera.kai.usage.caFile": "/run/ca.crt",
    "tessera.kai.usage.stalenessPeriod": "10m",
    "tessera.kai.usage.usageQueryTimeout": "20s",
    "tessera.kai.usage.queryResolution": "5m",
    **{f"tessera.kai.usage.{name}AllocationMetric": "kai_queue_allocated" for name in ("gpu", "cpu", "memory")},
    **{f"tessera.kai.usage.{name}CapacityMetric": "sum(capacity)" for name in ("gpu", "cpu", "memory")},
    "tessera.page.oidc.issuerURL": "https://login.example.com",
    "tessera.page.oidc.clientID": "tessera",
    "tessera.page.oidc.clientSecretFile": "/run/oidc/secret",
    "tessera.page.oidc.redirectURL": "https://tessera.example.com/page/oidc/callback",
    "tessera.page.oidc.scopes[]": ["email"],
    "tessera.page.oidc.usernameClaim": "email",
    "tessera.page.oidc.usernamePrefix": "oidc:",
    "tessera.page.oidc.groupsClaim": "groups",
    "tessera.page.oidc.groupsPrefix": "oidc:",
    "tessera.page.oidc.requiredClaims.*": {"hd": "example.com"},
    "tessera.page.oidc.signingAlgs[]": ["ES256"],
    "tessera.page.oidc.caFile": "/run/oidc/ca.crt",
    "tessera.page.oidc.sessionLife": "2h",
    "tessera.page.oidc.displayName": "Company login",
    "tessera.page.history.folder": "/var/lib/history",
    "tessera.page.prometheus.url": "http://prometheus:9090",
    "tessera.page.prometheus.bearerTokenFile": "/run/token",
    "tessera.page.prometheus.caFile": "/run/ca.crt",
    "tessera.page.prometheus.timeout": "5s",
    "tessera.leavingTaints[]": ["site.example/leaves"],
    "tessera.spot.maxGrace": "20m",
    "tessera.spot.interruptionsWindow": "12h",
    "tessera.spot.tooOften": 2.5,
    "tessera.spotLabels.*": {"site.example/lifecycle": "Ec2Spot"},
    "tessera.placeholderImage": "site.example/pause:1",
    "tessera.batchEvents": "1ms",
    "tessera.webhookClientCA": new_authority(0.0).certificate.decode(),
    "tessera.holdEvictions": "1s",
    "tessera.holdEvictionsAtMost": "1m",
    "tessera.workloadV1beta1": "off",
}
"""A value for each honoured key that is not its default."""

UNUSED: dict[str, Any] = {"DNS": "a", "a duration": "1s", "an integer": 1, "a label selector": SELECTOR}
ALWAYS_SO = {"apiVersion", "kind", "leaderElection.resourceLock"}
"""Keys with one meaning at most: there is nothing that they could change."""
NEEDS: dict[str, dict[str, Any]] = {
    "tessera.remediation.repairWindows": {
        "tessera.remediation.repairWindows[].from": "0 1 * * *",
        "tessera.remediation.repairWindows[].for": "1h",
    },
    "fairSharing": {"fairSharing.enable": True},
    "waitForPodsReady": {"waitForPodsReady.enable": True},
    "admissionFairSharing": {"admissionFairSharing.usageHalfLifeTime": "2h"},
    "resources.transformations[]": {
        "resources.transformations[].input": "i",
        "resources.transformations[].outputs.*": {"x": 1},
    },
    "resources.deviceClassMappings[]": {
        "resources.deviceClassMappings[].name": "gpu",
        "resources.deviceClassMappings[].deviceClassNames[]": ["gpu.example.com"],
    },
    "resources.deviceClassMappings[].sources[].counter": {
        "resources.deviceClassMappings[].sources[].counter.name": "memory",
        "resources.deviceClassMappings[].sources[].counter.driver": "gpu.example.com",
    },
    "resources.deviceClassMappings[].sources[].capacity": {
        "resources.deviceClassMappings[].sources[].capacity.name": "memory",
        "resources.deviceClassMappings[].sources[].capacity.driver": "gpu.example.com",
        "featureGates.KueueDRAIntegrationConsumableCapacity": True,
    },
    "tessera": {"tessera.policy": "tessera"},
    "tessera.volcano.topology[].tierName": {"tessera.volcano.topology[].nodeLabel": "rack"},
    "tessera.kai.usage.windowType": {"tessera.kai.usage.tumblingWindowStartTime": "2026-01-05T00:00:00Z"},
    "tessera.kai.usage.tumblingWindowStartTime": {
        "tessera.kai.usage.windowType": "tumbling",
        "tessera.kai.usage.tumblingWindowStartTime": "2026-01-06T00:00:00Z",
    },
    "tessera.kai.usage.cronString": {
        "tessera.kai.usage.windowType": "cron",
        "tessera.kai.usage.cronString": "0 0 * * tue",
    },
    **{
        f"tessera.kai.usage.{key}": {
            "tessera.kai.usage.clientType": "prometheus",
            "tessera.kai.usage.connectionString": "http://other:9090",
        }
        for key in (
            "clientType",
            "connectionString",
            "bearerToken",
            "ca",
            "staleness",
            "usageQuery",
            "query",
            "gpu",
            "cpu",
            "memory",
        )
    },
    "tessera.page.oidc": {
        "tessera.page.oidc.issuerURL": "https://other.example.com",
        "tessera.page.oidc.clientID": "other",
        "tessera.page.oidc.redirectURL": "https://other.example.com/page/oidc/callback",
    },
    "tessera.packing.freeNodes": {"tessera.consolidation.enabled": True},
    "tessera.page.prometheus": {"tessera.page.prometheus.url": "http://other:9090"},
    "tessera.honestUnits": {"tessera.honestUnits.gpuMemory": "40Gi"},
}
"""What a section must hold for a key in it to mean anything."""


def plain(value: Any) -> Any:
    """The configuration as comparable data: gates and rules have no equality of their own."""
    if isinstance(value, FeatureGates | RequestRules):
        return [plain(each) for each in vars(value).values()]
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name != "without_effect"}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def document(values: dict[str, Any], version: str = V1BETA1) -> dict[str, Any]:
    """A file that holds each key (by its path in the table) once."""
    root: dict[str, Any] = {"apiVersion": version, "kind": "Configuration"}
    for path, value in values.items():
        place: Any = root
        *sections, last = path.removesuffix(".*").removesuffix("[]").split(".")
        for section in sections:
            place = place.setdefault(section.removesuffix("[]"), [{}] if section.endswith("[]") else {})
            place = place[0] if isinstance(place, list) else place
        place[last] = value
    return root


def configured(values: dict[str, Any], version: str = V1BETA1) -> ControllerConfig:
    return parse(json.dumps(document(values, version)), "f")


def needed(key: Key) -> dict[str, Any]:
    return {
        path: value for section, given in NEEDS.items() if key.path.startswith(section) for path, value in given.items()
    }


def sample(key: Key) -> Any:
    if key.path in GIVEN:
        return GIVEN[key.path]
    words = key.expected.split(" such as")[0].split(" (")[0].split(",")[0].split(" from ")[0]
    value = next((value for start, value in UNUSED.items() if words.startswith(start)), None)
    if value is None:
        value = "ClusterQueue" if "sourceKind" in key.path else "Job.v1.example.com" if "Kind." in words else "a"
    if key.path.endswith("[]"):
        return [value]
    return {"a": value} if key.path.endswith(".*") else value


def test_every_key_stands_in_the_table_once() -> None:
    paths = [key.path for key in KEYS]
    assert len(set(paths)) == len(paths)
    assert GIVEN.keys() == {key.path for key in KEYS if not key.without_effect} | {
        "waitForPodsReady.maxTimeoutOnWorkload"
    }


@pytest.mark.parametrize("key", [key for key in KEYS if not key.without_effect], ids=lambda key: key.path)
def test_a_key_that_is_honoured_changes_the_configuration(key: Key) -> None:
    given = (key.path, sample(key))
    base = dict(pair for pair in needed(key).items() if pair != given)
    with_it = configured({**base, key.path: sample(key)})
    changed = plain(with_it) != plain(configured(base))
    assert changed or key.path in ALWAYS_SO
    assert [note.key for note in with_it.without_effect] == (
        ["integrations.frameworks[1]"] if key.path == "integrations.frameworks[]" else []
    )


@pytest.mark.parametrize("key", [key for key in KEYS if key.without_effect], ids=lambda key: key.path)
def test_a_key_without_effect_is_accepted_and_named_once(key: Key) -> None:
    notes = configured({**needed(key), key.path: sample(key)}).without_effect
    named = [note for note in notes if re.sub(r"\[\d+]", "[]", note.key).startswith(key.path.removesuffix(".*"))]
    assert [note.why for note in named] == [key.without_effect]
    assert str(named[0]).startswith("f:1: ")


def test_a_list_that_has_no_effect_is_named_once_not_for_each_value() -> None:
    found = configured({"tls.curvePreferences[]": [23, 24, 25]}).without_effect
    assert [note.key for note in found] == ["tls.curvePreferences[0]"]


@pytest.mark.parametrize("key", [key for key in KEYS if key.instead], ids=lambda key: key.path)
def test_the_newer_version_refuses_what_only_the_older_has(key: Key) -> None:
    with pytest.raises(Exception, match=r"found a key of v1beta1, expected .* \(v1beta2 has no such key\)"):
        configured({key.path: sample(key)}, API_VERSIONS[0])


def test_all_other_keys_are_accepted_together_by_either_version() -> None:
    for version in API_VERSIONS:
        keys = [key for key in KEYS if not (key.instead and version != V1BETA1) and "capacity" not in key.path]
        values = {key.path: sample(key) for key in keys if key.path not in ("apiVersion", "kind")}
        values["tessera.packing.freeNodes"] = False  # with consolidation alone, which is off here
        assert configured(values, version).namespace == "site"


def test_the_documentation_lists_these_keys_and_no_others() -> None:
    page = "\n".join((ROOT / name).read_text() for name in PAGES)
    assert rewritten(page) == page, (
        f"one of {PAGES} is stale: run .venv/bin/python -m controller.cluster.config.reference"
    )
    rows = re.findall(r"^\| `([^`]+)`(?: \(v1beta1\))? \|", page, re.MULTILINE)
    tabled = [row for row in rows if row not in GONE and not hasattr(default().engine.extensions, row)]
    assert sorted(set(tabled) & {key.path for key in KEYS}) == sorted(key.path for key in KEYS)


def test_the_documentations_examples_are_accepted() -> None:
    for name in (*PAGES, "docs/kai-past-use.md"):
        for text in re.findall(r"```yaml\n(.*?)```", (ROOT / name).read_text(), re.DOTALL):
            assert parse(text).without_effect == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_read_and_all_of_it_counts(path: Path) -> None:
    config = load(path)
    assert config.policy == path.stem
    assert config.without_effect == ()
    assert yaml.safe_load(path.read_text())["apiVersion"] == API_VERSIONS[0]


def test_no_gate_is_both_there_and_gone() -> None:
    assert not DEFAULTS.keys() & GONE.keys()


def test_a_gate_is_read_somewhere_or_said_to_be_without_effect() -> None:
    tables = ("gates.py", "inertgates.py")
    files = [file for file in (ROOT / "controller").rglob("*.py") if file.name not in tables]
    named = re.compile("|".join(DEFAULTS))  # only files with a gate's name in them are worth parsing
    texts = (text for file in files if named.search(text := file.read_text()))
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert DEFAULTS.keys() - IDLE.keys() == DEFAULTS.keys() & words


@pytest.mark.parametrize("name", IDLE)
def test_a_gate_that_changes_nothing_is_named_when_it_is_not_at_its_default(name: str) -> None:
    def notes(on: bool) -> list[str]:
        text = f"apiVersion: {API_VERSIONS[0]}\nkind: Configuration\nfeatureGates: {{{name}: {str(on).lower()}}}\n"
        return [note.key for note in parse(text).without_effect]

    assert notes(DEFAULTS[name]) == []
    assert notes(not DEFAULTS[name]) == [f"featureGates.{name}"]
