"""What a configuration promises, as the judge takes it."""

from cli.audit.promises import UNKNOWN, UNREAD, promises
from history.settings import Settings

TEXT = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: gpus
integrations: {frameworks: [batch/job, pod]}
managedJobsNamespaceSelector: {matchLabels: {queued: "yes"}}
featureGates: {KueueDRAIntegrationConsumableCapacity: true}
resources:
  excludeResourcePrefixes: [example.com/]
  transformations: [{input: nvidia.com/mig-1g.5gb, strategy: Replace, outputs: {example.org/memory: 5Gi}}]
  deviceClassMappings:
  - {name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}
tessera:
  policy: tessera
  backfill: conservative
  minimumRuntimeBeforePreemption: {default: 5m, byPriorityClass: {low: 1m}}
  consolidation: {enabled: true, minimumRuntime: 20m, movesPerHour: 7}
"""


def test_every_promise_is_read() -> None:
    spaces = [{"kubernetes.io/metadata.name": "team", "queued": "yes"}, {"kubernetes.io/metadata.name": "other"}]
    settings, unknown = promises(TEXT, "tessera-system", spaces)
    assert unknown == []
    assert settings == Settings(
        unmanaged=("kube-system", "other", "tessera-system"),
        queues_pods=True,
        device_classes={"gpu.nvidia.com": "nvidia.com/gpu"},
        uncounted=(
            "example.com/",
            "example.org/memory",
            "nvidia.com/mig-1g.5gb",
            "tessera.dev/gpu-memory-gib",
            "tessera.dev/gpu-compute-slices",
        ),
        backfill=True,
        minimum_runtime_s=300.0,
        minimum_runtime_by_class={"low": 60.0},
        move_after_s=1200.0,
        moves_per_hour=7,
    )


def test_kueues_policy_promises_a_strict_order() -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    settings, _ = promises(text, "kueue-system", [])
    assert (settings.backfill, settings.moves_per_hour, settings.queues_pods) == (False, None, False)


def test_without_a_configuration_nothing_is_promised_and_that_is_said() -> None:
    assert promises(None, "own", []) == (Settings(unmanaged=("kube-system", "own")), [UNKNOWN])
    assert promises("tessera: {", "own", []) == (Settings(unmanaged=("kube-system", "own")), [UNREAD])
