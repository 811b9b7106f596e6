"""Keys of what happens to workloads that run: how long they are spared, failed GPUs and repairs."""

from typing import Final

from controller.cluster.config.key import key as _key
from controller.cluster.config.settings import OnGpuFailure
from controller.cluster.config.values import QUALIFIED, REPAIR_BUDGET, ZONE, ZONED_CRON, duration, number
from yamlfile.parsers import BOOL, integer, one_of

REPAIR_WINDOWS: Final = "tessera.remediation.repairWindows"
_COUNT: Final = integer(0, 2**31 - 1)
_BY_POLICY: Final = "tessera: true, kueue: false"

RUNNING: Final = (
    _key(
        "tessera.minimumRuntimeBeforePreemption.enabled",
        BOOL,
        _BY_POLICY,
        "whether workloads run for a while before they may be preempted, queues' annotations included",
    ),
    _key(
        "tessera.minimumRuntimeBeforePreemption.default",
        duration(),
        "0s",
        "that while; the annotation `tessera.dev/minimum-runtime-before-preemption` of a ClusterQueue wins",
    ),
    _key(
        "tessera.minimumRuntimeBeforePreemption.byPriorityClass.*",
        duration(),
        "the default",
        "that while for workloads of a priority class",
    ),
    _key(
        "tessera.gpuFailures.policy",
        one_of(OnGpuFailure),
        "notify",
        "what happens to a pod whose GPU fails, where its annotation `tessera.dev/on-gpu-failure` does not say",
    ),
    _key("tessera.gpuFailures.budget", _COUNT, "10", "most pods evicted and gangs requeued for that in any window"),
    _key("tessera.gpuFailures.window", duration(least_s=1), "10m", "that window"),
    _key(
        "tessera.spot.maxGrace",
        duration(least_s=30, most_s=86400),
        "10m",
        "up to what a job's `tessera.dev/checkpoint-grace` is believed, as its pods are given so much whatever their"
        " template says; the chart writes it",
    ),
    _key(
        "tessera.spot.interruptionsWindow",
        duration(least_s=3600, most_s=604800),
        "24h",
        "over how long interruptions of a flavor's nodes are counted, in steps of a 24th of it",
    ),
    _key(
        "tessera.spot.tooOften",
        number(least=0),
        "1",
        "a flavor with more interruptions per node-day than that is tried after the others; 0: none is; under `policy:"
        " tessera` alone",
    ),
    _key("tessera.gpuFailures.coolDown", duration(), "5m", "how long a workload is spared after such an action"),
    _key("tessera.remediation.budget", REPAIR_BUDGET, "10%", "GPUs of a flavor repaired in any window; 0: none"),
    _key("tessera.remediation.window", duration(least_s=600), "10m", "that window; a grant holds for ten minutes"),
    _key("tessera.remediation.levels[]", QUALIFIED, "none", "labels of nodes: one node of each value at a time"),
    _key("tessera.remediation.wait", duration(), "60m", "how long `notify` pods may use a GPU being drained"),
    _key(
        f"{REPAIR_WINDOWS}[].from",
        ZONED_CRON,
        "no windows",
        "when a time begins, in its `zone`, in which due resets of GPUs are ordered",
    ),
    _key(f"{REPAIR_WINDOWS}[].for", duration(least_s=60), "", "how long it lasts"),
    _key(f"{REPAIR_WINDOWS}[].zone", ZONE, "UTC", "the time zone of `from`"),
)
"""Keys of workloads that hold quota."""
