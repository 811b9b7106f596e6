"""Every key of the configuration file: its parser, what it means here, or why it has no effect.

``[]`` in a path stands for each value of a list, ``*`` for each key of a map. ``docs/controller-config*.md`` is made
from these tables. Kueue's keys: API reference of ``config.kueue.x-k8s.io``, v1beta1 and v1beta2.
"""

from typing import Final

from controller.cluster.config.key import Key
from controller.cluster.config.key import key as _key
from controller.cluster.config.key import labels as _labels
from controller.cluster.config.key import selector as _selector
from controller.cluster.config.key import unused as _unused
from controller.cluster.config.pagekeys import PAGE
from controller.cluster.config.runningkeys import RUNNING
from controller.cluster.config.settings import FOREIGN_LEASES, INJECTED, Policy, Webhook
from controller.cluster.config.values import (
    ADDRESS,
    ANY_TEXT,
    AUTO,
    CERTIFICATES,
    CIPHER,
    CRON,
    DNS_LABEL,
    KIND,
    LABEL_VALUE,
    LEASE,
    NOT_EMPTY,
    QUALIFIED,
    QUANTITY,
    SERVED,
    SUBDOMAIN,
    SWITCH,
    TIME,
    TLS_VERSION,
    choice,
    duration,
    number,
    opaque,
)
from controller.foreign.rules.schedulers import SCHEDULERS
from controller.jobs.kinds.kubeflow import INIT_PYTORCH
from controller.jobs.kinds.raypods import WAIT_GCS_READY
from controller.scheduler.mirror.specs import System
from controller.scheduler.model.config import BackfillPolicy, PreemptionStrategy, QuotaCheckStrategy, VictimOrder
from inventory.listsize import MAX_REPLICAS
from yamlfile.parsers import BOOL, HTTP_URL, PATH, integer, one_of

API_VERSIONS: Final = ("config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1")
V1BETA1: Final = API_VERSIONS[1]
_INT32: Final = 2**31 - 1
_PORT: Final = integer(1, 65535)
_COUNT: Final = integer(0, _INT32)

_DECISIONS: Final = (
    _key("apiVersion", choice(*API_VERSIONS), "", "which version's keys and defaults hold"),
    _key("kind", choice("Configuration"), "", "what the file is"),
    _key("namespace", DNS_LABEL, "the controller's own", "the namespace that default selectors leave out"),
    _key("manageJobsWithoutQueueName", BOOL, "false", "jobs without a queue label are suspended and wait for one"),
    _selector(
        "managedJobsNamespaceSelector",
        "all but kube-system and the controller's own",
        "namespaces whose jobs are managed; with pods as a job kind it may select neither of those two",
    ),
    _key("featureGates.*", BOOL, "Kueue's", "Kueue's feature gates; one that older versions had has no effect"),
    _key(
        "fairSharing.enable",
        BOOL,
        "false",
        "whether cohorts share by dominant resource share",
        instead="fairSharing itself, which turns it on",
    ),
    _key(
        "fairSharing.preemptionStrategies[]",
        one_of(PreemptionStrategy),
        "both, in this order",
        "when one queue's workload may be preempted for another's: the first, the second, or both in order",
    ),
    _key(
        "admissionFairSharing.usageHalfLifeTime",
        duration(),
        "168h (Kueue: 0s, which keeps no history)",
        "the time in which past usage counts half; 0s keeps no history, as in Kueue",
    ),
    _key("admissionFairSharing.usageSamplingInterval", duration(), "5m", "how often past usage is brought up to date"),
    _key("admissionFairSharing.resourceWeights.*", number(least=0), "1", "how much a unit of a resource counts"),
    _key(
        "waitForPodsReady.enable",
        BOOL,
        "false",
        "whether workloads whose pods do not get ready are evicted",
        instead="the block itself; the gate DisableWaitForPodsReady turns it off",
    ),
    _key(
        "waitForPodsReady.timeout",
        duration(),
        "30m (v1beta1: 5m)",
        "time from admission until all pods are ready; 0s is the default",
    ),
    _key(
        "waitForPodsReady.recoveryTimeout",
        duration(),
        "the timeout (v1beta1: none)",
        "time from a pod's failure until all are ready again; 0s: no limit",
    ),
    _key(
        "waitForPodsReady.blockAdmission",
        BOOL,
        "false (v1beta1: true)",
        "nothing else is admitted while an admitted workload's pods are not ready",
    ),
    _unused("waitForPodsReady.maxTimeoutOnWorkload", duration(), "a workload cannot ask for a timeout of its own"),
    _key(
        "waitForPodsReady.requeuingStrategy.timestamp",
        choice("Eviction", "Creation"),
        "Eviction",
        "the time by which such a workload queues again",
    ),
    _key(
        "waitForPodsReady.requeuingStrategy.backoffLimitCount",
        _COUNT,
        "no limit",
        "requeues before the workload is deactivated",
    ),
    _key(
        "waitForPodsReady.requeuingStrategy.backoffBaseSeconds", _COUNT, "60", "the first wait; each is twice the last"
    ),
    _key("waitForPodsReady.requeuingStrategy.backoffMaxSeconds", _COUNT, "3600", "the longest wait"),
    _key(
        "resources.quotaCheckStrategy",
        one_of(QuotaCheckStrategy),
        "BlockUndeclared",
        "what a request means that the queue has no quota for",
    ),
    _key("resources.excludeResourcePrefixes[]", NOT_EMPTY, "none", "resources that count against no quota"),
    _key("resources.transformations[].input", QUALIFIED, "", "the resource that counts as others, each once; not pods"),
    _key(
        "resources.transformations[].strategy",
        choice("Retain", "Replace"),
        "Retain",
        "whether the input itself counts too",
    ),
    _key(
        "resources.transformations[].multiplyBy",
        QUALIFIED,
        "none",
        "another requested resource by whose amount the input is multiplied",
    ),
    _key("resources.transformations[].outputs.*", QUANTITY, "none", "what one unit of the input counts as"),
)

_MAPPINGS: Final = "resources.deviceClassMappings[]"
_CLAIMS: Final = (
    _key(f"{_MAPPINGS}.name", QUALIFIED, "", "the resource that claims of devices count as"),
    _key(f"{_MAPPINGS}.deviceClassNames[]", QUALIFIED, "", "DeviceClasses whose devices count as it"),
    *(
        _key(f"{_MAPPINGS}.sources[].{source}.{key}", parser, default, meaning)
        for source, what in (("counter", "of a counter"), ("capacity", "of a capacity"))
        for key, parser, default, meaning in (
            ("name", QUALIFIED, "", f"a device counts as what it takes {what}, not as one: its name"),
            ("driver", SUBDOMAIN, "", "the driver whose devices are looked at"),
            ("deviceSelector.cel.expression", NOT_EMPTY, "all", "CEL that says which of them"),
        )
    ),
)

_BY_QUEUE: Final = "the queue label and managedJobsNamespaceSelector say which pods are managed"
_JOBS: Final = (
    _key(
        "integrations.frameworks[]",
        NOT_EMPTY,
        "every kind whose CRD is there, without pods (Kueue: batch/job)",
        "job kinds that are managed, by Kueue's names; one that is not there yet has no effect",
    ),
    _key(
        "integrations.externalFrameworks[]",
        KIND,
        "none",
        "kinds that other controllers queue: they are left alone here, and so are the parts that they own",
    ),
    _key("integrations.labelKeysToCopy[]", QUALIFIED, "none", "labels that a new Workload gets from its job"),
    _selector(
        "integrations.podOptions.namespaceSelector",
        "",
        "",
        without_effect=_BY_QUEUE,
        instead="managedJobsNamespaceSelector",
    ),
    _selector(
        "integrations.podOptions.podSelector",
        "",
        "",
        without_effect=_BY_QUEUE,
        instead="managedJobsNamespaceSelector",
    ),
    _key(
        "objectRetentionPolicies.workloads.afterFinished",
        duration(),
        "never",
        "time until a finished Workload is deleted",
    ),
    _key(
        "objectRetentionPolicies.workloads.afterDeactivatedByKueue",
        duration(),
        "never",
        "time until the job of a workload that the controller deactivated is deleted",
    ),
)

_PROCESS: Final = (
    _key(
        "clientConnection.qps",
        number(),
        "300",
        "requests a second to the API server; negative: no limit; 0: the default",
    ),
    _key("clientConnection.burst", integer(1, _INT32), "500", "requests at once"),
    _key("leaderElection.leaderElect", BOOL, "as --leader-elect says", "whether replicas elect one that decides"),
    _key("leaderElection.leaseDuration", duration(least_s=1), "15s", "time until another replica may take over"),
    _key("leaderElection.renewDeadline", duration(), "10s", "time after which a leader that cannot renew gives up"),
    _key("leaderElection.retryPeriod", duration(), "2s", "time between attempts"),
    _key("leaderElection.resourceLock", choice("leases"), "leases", "Leases are the only kind"),
    _key("leaderElection.resourceName", SUBDOMAIN, "c1f6bfd2.kueue.x-k8s.io", "the Lease's name, which Kueue's is too"),
    _key("leaderElection.resourceNamespace", DNS_LABEL, "the controller's own", "the Lease's namespace"),
    _key(
        "metrics.bindAddress",
        ADDRESS,
        "0.0.0.0:8080 (Kueue: :8443)",
        'where metrics are served; "0": nowhere; --metrics-address wins',
    ),
    _key("metrics.enableClusterQueueResources", BOOL, "false", "series for usage and quota of each resource too"),
    _key("metrics.localQueueMetrics.enable", BOOL, "true", "series for LocalQueues too"),
    _selector("metrics.localQueueMetrics.localQueueSelector", "all", "the LocalQueues that have series"),
    *(
        _unused(f"metrics.customLabels[].{key}", parser, "series carry no labels of objects")
        for key, parser in (
            ("name", NOT_EMPTY),
            ("sourceLabelKey", QUALIFIED),
            ("sourceAnnotationKey", QUALIFIED),
            ("sourceKind", choice("Cohort", "LocalQueue", "ClusterQueue", "Workload")),
            ("trackedValues[]", ANY_TEXT),
        )
    ),
    _key("health.healthProbeBindAddress", ADDRESS, "0.0.0.0:8081", 'where probes are answered; "0": nowhere'),
    _key("health.readinessEndpointName", NOT_EMPTY, "readyz", "the readiness probe's path"),
    _key("health.livenessEndpointName", NOT_EMPTY, "healthz", "the liveness probe's path"),
    _key("webhook.port", _PORT, "9443", "the webhook's port"),
    _key("webhook.host", ANY_TEXT, "all addresses", "the address that the webhook listens on"),
    _key(
        "webhook.certDir",
        PATH,
        Webhook().cert_dir,
        "folder of tls.crt and tls.key when certificates are not managed here",
    ),
    _key("internalCertManagement.enable", BOOL, "true", "the controller makes and renews the webhook's certificates"),
    _key("internalCertManagement.webhookServiceName", DNS_LABEL, "the chart's", "the Service they are valid for"),
    _key("internalCertManagement.webhookSecretName", SUBDOMAIN, "the chart's", "the Secret they are kept in"),
    _key("tls.minVersion", TLS_VERSION, "OpenSSL's", "the oldest TLS version that servers speak"),
    _key("tls.cipherSuites[]", CIPHER, "OpenSSL's", "cipher suites of TLS 1.2; those of 1.3 cannot be chosen"),
    _unused("tls.curvePreferences[]", integer(1, 65535), "key exchange is as OpenSSL has it"),
    _unused("pprofBindAddress", ANY_TEXT, "that is a profiler of Go"),
    _unused(
        "controller.groupKindConcurrency.*", integer(1, 10_000), "one loop decides, and all its writes go out at once"
    ),
    _unused("controller.cacheSyncTimeout", integer(0, 2**62), "deciding begins when everything has been read"),
)

_NO_MULTIKUEUE: Final = "there is no MultiKueue yet"
_NO_VISIBILITY: Final = "the visibility API is served at `--web-address`, with what is known at that moment"
_ELSEWHERE: Final = (
    _unused("multiKueue.gcInterval", duration(), _NO_MULTIKUEUE),
    _unused("multiKueue.origin", LABEL_VALUE, _NO_MULTIKUEUE),
    _unused("multiKueue.workerLostTimeout", duration(), _NO_MULTIKUEUE),
    _unused("multiKueue.dispatcherName", NOT_EMPTY, _NO_MULTIKUEUE),
    _unused("multiKueue.incrementalDispatcherConfig.stepSize", integer(1, _INT32), _NO_MULTIKUEUE),
    _unused("multiKueue.externalFrameworks[].name", KIND, _NO_MULTIKUEUE),
    *(
        key
        for section in ("accessProviders", "credentialsProviders")
        for key in (
            _unused(f"multiKueue.clusterProfile.{section}[].name", NOT_EMPTY, _NO_MULTIKUEUE),
            Key(
                path=f"multiKueue.clusterProfile.{section}[].execConfig",
                read=opaque,
                expected="anything",
                without_effect=_NO_MULTIKUEUE,
            ),
        )
    ),
    _unused("visibilityServer.bindAddress", ANY_TEXT, _NO_VISIBILITY),
    _unused("visibilityServer.bindPort", _PORT, _NO_VISIBILITY),
    _unused("queueVisibility.clusterQueues.maxCount", integer(0, 4000), _NO_VISIBILITY, instead="nothing"),
    _unused("queueVisibility.updateIntervalSeconds", integer(1, _INT32), _NO_VISIBILITY, instead="nothing"),
)

KUEUE: Final = (*_DECISIONS, *_CLAIMS, *_JOBS, *_PROCESS, *_ELSEWHERE)
"""Kueue's keys."""

_BY_POLICY: Final = "tessera: true, kueue: false"
OWN: Final = (
    _key(
        "tessera.policy",
        one_of(Policy),
        "tessera; kueue in a file without the block",
        "kueue: Kueue's behaviour; tessera: each feature below is on unless its key says otherwise",
    ),
    _key(
        "tessera.reserveForPreemptor",
        BOOL,
        _BY_POLICY,
        "what evicted workloads free is kept for the workload that they were evicted for, until it starts",
    ),
    _key(
        "tessera.noEvictionCycles",
        BOOL,
        _BY_POLICY,
        "no two workloads evict each other unless something changed from outside in between",
    ),
    _key(
        "tessera.backfill",
        one_of(BackfillPolicy),
        "tessera: conservative, kueue: none",
        "a blocked head of a queue keeps a reservation, and others pass it only where they do not delay it",
    ),
    _key(
        "tessera.victimOrder",
        one_of(VictimOrder),
        "tessera: leastLost, kueue: newest",
        "the first of victims of equal rank: the newest, or the one that loses the least GPU-time",
    ),
    _key(
        "tessera.keepLinkedGpus",
        BOOL,
        _BY_POLICY,
        "of nodes that hold a pod, the one where it leaves most GPUs usable for requests like the recent ones",
    ),
    _key(
        "tessera.packing.emptyNodes",
        number(least=0),
        "0",
        "how many nodes more a job may be spread over to leave one node empty; 0: empty nodes are worth nothing",
    ),
    _key(
        "tessera.packing.freeNodes",
        BOOL,
        "false",
        "while no workload waits, running ones move so that a whole node is free, within the bounds of consolidation",
    ),
    _key("tessera.quotaFromCapacity", BOOL, _BY_POLICY, "quotas may be written as shares of live healthy capacity"),
    _key(
        "tessera.honestUnits.gpuMemory",
        QUANTITY,
        "none: no units",
        "memory of a whole GPU: requests are charged in `tessera.dev/gpu-memory-gib` and `gpu-compute-slices` too",
    ),
    _key("tessera.honestUnits.computeSlices", integer(1, 1024), "7", "compute slices of a whole GPU"),
    _key(
        "tessera.honestUnits.sharedReplicas",
        integer(1, MAX_REPLICAS),
        "1",
        "how many containers share one `.shared` device",
    ),
    *(
        _key(
            f"tessera.initContainers.{operator}.{resource}",
            QUANTITY,
            f"tessera: {INJECTED[container][resource]}, kueue: 0",
            f"{resource} that `{container}` requests, which {whose} puts into {pods}; charged where it is more than the"
            " containers request; 0 for both where it is not there",
        )
        for operator, container, whose, pods in (
            ("kuberay", WAIT_GCS_READY, "KubeRay", "each worker"),
            ("training", INIT_PYTORCH, "the training operator", "each worker of a PyTorchJob with a master"),
        )
        for resource in ("cpu", "memory")
    ),
    _key(
        "tessera.pendingCondition.after", duration(), "5s", "time until a pending workload's condition gives the reason"
    ),
    _key(
        "tessera.pendingCondition.atMostEvery",
        duration(least_s=1),
        "60s",
        "how often it is written again while the reason stays the same",
    ),
    _key(
        "tessera.nativeGangs",
        AUTO,
        "tessera: auto, kueue: off",
        "jobs of several pods start with a PodGroup of `scheduling.k8s.io`; auto: where v1beta1 or v1alpha3 is served",
    ),
    _key(
        "tessera.consolidation.enabled",
        SWITCH,
        "tessera: auto, kueue: false",
        "running workloads move, each to a place found for it in the same decision, so that one that waits fits; auto:"
        " in trees of KAI's Queues alone; never under policy kueue",
    ),
    _key("tessera.consolidation.minimumRuntime", duration(), "10m", "how long a workload runs before it may be moved"),
    _key("tessera.consolidation.movesPerHour", _COUNT, "30", "most workloads that move in any hour, of all queues"),
    *RUNNING,
    *(
        key
        for system, name in ((System.VOLCANO, "Volcano"), (System.KAI, "KAI"))
        for key in (
            _key(
                f"tessera.{system}.enabled",
                SWITCH,
                "tessera: auto, kueue: false",
                f"{name}'s Queues are queues here; auto: where they are served and {name}'s own parts have renewed none"
                " of the leases for 60s, looked up again every 10s; once one is held they are not",
            ),
            _key(f"tessera.{system}.leases[]", LEASE, ", ".join(FOREIGN_LEASES[system]), f"{name}'s leases"),
            _selector(
                f"tessera.{system}.namespaceSelector",
                "all",
                f"namespaces whose jobs may use {name}'s Queues; in others nothing of {name} is looked at",
            ),
            _key(
                f"tessera.{system}.schedulerNames[]",
                SUBDOMAIN,
                SCHEDULERS[system.value],
                f"names by which pods ask for {name}'s scheduler",
            ),
            _key(
                f"tessera.{system}.keepSchedulerName",
                BOOL,
                "false",
                f"{name}'s scheduler runs and chooses nodes for what is admitted here: jobs get quota alone. Needs"
                " `enabled: true` where it holds a lease",
            ),
        )
    ),
    _key(
        "tessera.kai.usage.enabled",
        BOOL,
        "true with the section, else false",
        "whether what KAI's Queues had before counts in the division of what is beyond their quotas",
    ),
    _key("tessera.kai.usage.kValue", number(least=0), "1", "how much it counts: KAI's k; 0 is not at all"),
    _key("tessera.kai.usage.windowSize", duration(least_s=60), "168h", "how far back"),
    _key(
        "tessera.kai.usage.halfLifePeriod",
        duration(),
        "0s",
        "the time in which use counts half; 0s: all of the window counts alike",
    ),
    _key("tessera.kai.usage.fetchInterval", duration(least_s=1), "1m", "how often it is sampled, and asked for"),
    _key(
        "tessera.kai.usage.windowType",
        choice("sliding", "tumbling", "cron"),
        "sliding",
        "the last `windowSize`; windows of that size one after the other; or since `cronString` fired, `windowSize` at"
        " most",
    ),
    _key(
        "tessera.kai.usage.tumblingWindowStartTime",
        TIME,
        "none",
        "when one of the windows of `windowType: tumbling` begins",
    ),
    _key("tessera.kai.usage.cronString", CRON, "none", "when the windows of `windowType: cron` begin"),
    _key(
        "tessera.kai.usage.clientType",
        choice("prometheus"),
        "none: the controller's own books",
        "who is asked for past use; the controller's books count while there is no fresh answer",
    ),
    _key(
        "tessera.kai.usage.connectionString", HTTP_URL, "none", "the URL of Prometheus; it may hold user and password"
    ),
    _key(
        "tessera.kai.usage.bearerTokenFile",
        PATH,
        "none",
        "file with a bearer token for Prometheus, read for each question",
    ),
    _key(
        "tessera.kai.usage.caFile",
        PATH,
        "the system's",
        "file with the authorities of its certificate in PEM form, read for each question",
    ),
    _key(
        "tessera.kai.usage.stalenessPeriod",
        duration(least_s=1),
        "5m",
        "how long an answer counts: longer than `fetchInterval`",
    ),
    _key("tessera.kai.usage.usageQueryTimeout", duration(least_s=1), "10s", "how long Prometheus may take to answer"),
    _key("tessera.kai.usage.queryResolution", duration(least_s=1), "1m", "between two moments that a query looks at"),
    *(
        key
        for name, resource in (("gpu", "nvidia.com/gpu"), ("cpu", "cpu"), ("memory", "memory"))
        for key in (
            _key(
                f"tessera.kai.usage.{name}AllocationMetric",
                NOT_EMPTY,
                f"tessera_queue_allocated{{resource={resource}}}",
                f"an expression of PromQL: what Queues have of {resource}, by the label `queue_name`",
            ),
            _key(
                f"tessera.kai.usage.{name}CapacityMetric",
                NOT_EMPTY,
                f"tessera_queue_capacity{{resource={resource}}}",
                f"one that has one number: the {resource} that there is",
            ),
        )
    ),
    _key(
        "tessera.volcano.topology[].nodeLabel",
        QUALIFIED,
        "no table",
        "the label of nodes that stands for a tier of HyperNodes, tier 1 first: what `networkTopology` means; a node"
        " without it is alone in its domain",
    ),
    _key(
        "tessera.volcano.topology[].tierName",
        NOT_EMPTY,
        "none",
        "the tier's name, for `networkTopology.highestTierName`",
    ),
    _key(
        "tessera.fractions.granularity",
        integer(1, 100),
        "1",
        "what KAI's and HAMi's parts of GPUs are rounded up to, where the API server asks the controller's webhook to"
        " translate them; the chart writes it",
    ),
    _key(
        "tessera.fractions.gpuMemoryMib.*",
        integer(1, _INT32),
        "none",
        "MiB of one GPU by its `nvidia.com/gpu.product`, for the same",
    ),
    _key(
        "tessera.webhookClientCA",
        CERTIFICATES,
        "none",
        "what signs the certificate that the API server shows on the webhooks' admission paths; without it none is"
        " asked for",
    ),
    _key("tessera.leavingTaints[]", QUALIFIED, "none", "more taints by which a node leaves"),
    _labels("tessera.spotLabels.*", "none", "more labels by which nodes are spot, each with its value"),
    _key("tessera.placeholderImage", NOT_EMPTY, "registry.k8s.io/pause:3.10", "image of pods that bring nodes"),
    _key(
        "tessera.batchEvents",
        duration(),
        "20ms",
        "how long events are gathered before the engine decides; longer, up to 100ms, while the API server is slow",
    ),
    _key(
        "tessera.holdEvictions",
        duration(),
        "500ms",
        "how long preemptions wait, and are decided anew, while 10 decisions a second or more are carried out, twice"
        " as long at most; with `tessera.holdEvictionsAtMost` also while the API server is slow or many workloads end"
        " each second, and up to that; 0s: not at all, whatever `tessera.holdEvictionsAtMost` is",
    ),
    _key(
        "tessera.holdEvictionsAtMost",
        duration(most_s=600),
        "30s; 0s under `policy: kueue`",
        "how far that wait grows with the time that ends of workloads take to be seen, also while the API server is"
        " slow or many end each second: 10m at most; 0s: not at all, also where `tessera.holdEvictions` is 0s",
    ),
    _key(
        "tessera.workloadV1beta1",
        SERVED,
        "served",
        "off: the API server no longer answers v1beta1 of Workload, and keeps no copy of every Workload for it; all"
        " other kinds stay served in both versions",
    ),
    _key(
        "tessera.bargaining.enabled",
        BOOL,
        "false",
        "CapacityRequests of the cluster are answered; off: what was granted before lasts as it was told",
    ),
    _key(
        "tessera.bargaining.longestHold",
        duration(most_s=3600),
        "60s",
        "how long an offer to a CapacityRequest is held at most, whatever its `answerWithin` says; 0s: offers are not"
        " held",
    ),
    *PAGE,
)
"""Tessera's own keys."""

KEYS: Final = (*KUEUE, *OWN)
