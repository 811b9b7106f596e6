"""Sentences of the plan that ``tessera migrate`` prints: what is lost, what stays, and what each step does."""

from typing import Final

HEADINGS: Final = {
    "lost": "Lost:",
    "kept": "Stays as it is:",
    "values": "Values for charts/tessera:",
    "steps": "Steps, each with the way back (take back the last one first):",
}
NOTHING_LOST: Final = "Lost: nothing"
NO_STEPS: Final = "Nothing to migrate: nothing was read that Tessera stands in for."
ANY_INPUT: Final = (
    "an object with apiVersion, kind and metadata, Helm values, or a configuration file of the systems in --help"
)
CHECK_OF_FILES: Final = "--check reads the cluster: found FILES, expected none"
NODES_WITHOUT_OPERATOR: Final = (
    "found single nodes and no GPU Operator, expected a ClusterPolicy or GPUCluster: its labels let one node go over"
)

# Why a field stays the operator's.
DRIVER: Final = "the operator installs the driver; the agent uses what it finds"
TOOLKIT: Final = "the operator installs the container toolkit; the agent uses its runtime and its CDI hook"
VALIDATOR: Final = (
    "the operator goes on with validating nodes; its workload asks for nvidia.com/gpu, which the agent serves"
)
OPERATOR: Final = "the operator itself goes on running"
CDI: Final = "the runtime's default is set by the operator's toolkit"
HOST_ROOT: Final = "the operator's own operands mount it; the agent's host folders have values of their own"
DCGM: Final = (
    "the host engine goes on running; the agent does not need it, and nothing of the operator's uses it afterwards"
)
STATUS: Final = "it tells how the operator's own parts do"
CONFIDENTIAL: Final = "confidential computing is set by the operator"
VIRTUAL: Final = "virtual machines get their GPUs from the operator's parts; the agent serves containers"
KATA: Final = "Kata's runtime classes are made by the operator"
MODULES: Final = "the kernel module is installed with the operator's driver"
SECURITY: Final = "it labels the operator's own namespace"

# Why a field is lost.
ARGUMENTS: Final = "the chart passes no arguments to the agent: give each one as its variable in `env`"
HOST_NETWORK: Final = "the agent does not use the host's network: scrape its pods or its Service"
RESOURCES: Final = "one agent stands in the place of four programs: the chart's `resources` hold"
EXPORTER_ANNOTATIONS: Final = (
    "they would be on the agent's pods, whoever scrapes them: add them to `podAnnotations` if you want that"
)
HPC_JOBS: Final = "files that map GPUs to HPC jobs are not read"
SERVICE: Final = "the agent's Service is of type ClusterIP without a traffic policy"
RELABELINGS: Final = "the chart's ServiceMonitor has one relabeling, to the label node"
SCRAPE_TIMEOUT: Final = "the chart's ServiceMonitor leaves it to Prometheus"
HONOR_LABELS: Final = "the chart's ServiceMonitor always honors labels"
MIG_DEFAULT: Final = "a node without the label nvidia.com/mig.config is left as it is: label new nodes"
MIG_CLIENTS: Final = "no client is stopped while a GPU is cut: the agent cuts what nobody uses"
MIG_VARIABLES: Final = "the agent cuts GPUs itself, without a reboot of the node and without a MIG manager to set"
MPS: Final = (
    "its files were not read: if one shares GPUs by MPS, give the ConfigMap to this command too, or install with"
    " --set mps.enabled=true"
)
NO_PATH: Final = "the chart takes absolute paths alone"
MPS_PATH: Final = "the chart takes absolute paths of at most 40 characters alone"
INTERVAL: Final = "the chart takes one number with ms, s or m"
FILE_NAME: Final = "it is no name of a file in a ConfigMap"
PATTERNS: Final = "the agent separates expressions by commas: one with a comma cannot be given"
OTHER_POLICY: Final = "the operator obeys one ClusterPolicy: the first that was read is migrated"

AFFINITY: Final = "the agents go where the device plugin was"
WEB_CONFIG: Final = "metrics are served without TLS and passwords: let a NetworkPolicy say who may read them"
VOLUMES: Final = "the chart mounts what it needs, and no other volumes"
SERVICE_ANNOTATIONS: Final = "the agent's Service has no annotations of its own: scrape it by its ServiceMonitor"
TEGRA: Final = "devices without NVML are not served"
FIELD_PATH: Final = "the list is a file of the exporter's image or of a volume: give it to this command as a file"
NO_PORT: Final = "no port can be told from it: the agent serves its metrics at the chart's metrics.port"
NO_FLAG: Final = "the agent has no such flag"
NO_FIELD: Final = "the line cannot be used"
MIG_EXTRAS: Final = "the agent runs no hooks and stops no service of the host while it cuts a GPU"
FILES_NOT_READ: Final = "its configuration files were not read: give their ConfigMap to this command too"
BESIDE_OPERATOR: Final = (
    "it runs beside the operator, and no label lets it leave a node: stop it before an agent comes to its nodes"
)
PROGRAMS_BESIDE: Final = "programs beside the operator"
NO_RUNTIME_CLASS: Final = "no RuntimeClass"
OPERATORS_PLUGIN: Final = "the operator's device plugin"
OTHER_CONFIG: Final = "another one is used: a release has one such configuration"
HEALTH_CHECK: Final = "the agent's probes are answered at its metrics' port"
CONTROLLER_POD: Final = "the controller's pods have values of their own: controller.resources and its neighbours"
CERTIFICATES: Final = (
    "the controller makes its own certificates; for cert-manager set controller.webhook.certificates.selfManaged=false"
)
TLS: Final = "the controller's servers have TLS settings of their own, below controller.config.tls"
CREATED_MEANWHILE: Final = "Jobs and Pods that are created while neither Kueue nor the controller runs"
UNQUEUED: Final = (
    "they start without being queued, from Kueue's stop until the controller is ready, and on the way back"
)
WEBHOOK_SERVER: Final = "the chart sets where the controller's webhooks are served, and with which certificates"
PROBES: Final = "the chart sets where the controller's probes are answered"
KUEUE_VIZ: Final = "the controller's page shows queues and workloads"
VISIBILITY_APF: Final = "no priority levels for the visibility API are created"
METRICS_TLS: Final = "the controller's metrics are served at a port of their own, without TLS"
METRICS_SERVICE: Final = "the controller's metrics have a Service of the chart's"
RUNTIME_CLASS_OF_PODS: Final = "no RuntimeClass is written into pods: let them name one, or make it the default"
DEFAULT_QUEUE: Final = (
    "default-parent-queue and default-queue are there without an object: write Queues for other amounts"
)
SCALING_PODS: Final = "no pods are made for a cluster autoscaler: ProvisioningRequests are (docs/provisioning.md)"
NAMESPACES_OF_KAI: Final = "say in which namespaces by controller.kai.namespaceSelector"
NAMESPACES_OF_VOLCANO: Final = "say in which namespaces by controller.volcano.namespaceSelector"
QUEUE_LABEL: Final = "the label of queues is kai.scheduler/queue"
KAI_ACTIONS: Final = "all of them run, in an order of their own"
PLACEMENT: Final = "where a pod goes is no setting: best fit, and least fragmentation"
COLOCATION: Final = "a node is never given more pods than its resources hold"
NO_INTERVALS: Final = "time slices of another length than the default are refused by the agent"
NO_METADATA: Final = "containers get no files about their devices"
NO_PASSTHROUGH: Final = "GPUs are not passed through to virtual machines"
NO_GATE: Final = "there is no such feature gate here"
NO_RESCHEDULING: Final = (
    "running pods are not moved by their nodes' load; tessera.consolidation moves workloads for room"
)
NODE_ORDER: Final = "weights of nodes are not a setting: kube-scheduler ranks them, and queues place by best fit"
NO_DRF: Final = "jobs are not ordered by dominant shares; queues are, with fairSharing"
NO_ENQUEUE: Final = "a job that waits has no pods, so that nothing is enqueued over what there is"
NO_SLA: Final = "a job that waits long does not move ahead: give it a higher priority"
NO_ZONES: Final = "nodes are not lent for hours of the day"
NO_NUMA: Final = "no scheduler places pods on NUMA nodes: tessera.dev/required-gpu-link does for GPUs"
NO_LOAD: Final = "the real load of nodes does not decide"
NO_EXTENDER: Final = "no other program is asked"
NO_DEVICE_SHARE: Final = "names of vGPUs are not translated: pods ask for tessera.dev/gpu-percent"
NO_TASK_TOPOLOGY: Final = "affinity among tasks is not read: a level of nodes for all pods of a job is"
NO_NODE_GROUP: Final = "queues have no node groups: ResourceFlavors with nodeLabels have"
RESOURCE_QUOTA: Final = "a ResourceQuota is enforced when pods are created, and not before"
NO_BUDGETS: Final = "PodDisruptionBudgets do not keep a workload from being preempted"
NO_COOL_DOWN: Final = "a running job may be a victim at once, unless volcano.sh/preemptable is false"
NO_ACTION: Final = "nothing of that name is done here"
NO_PLUGIN: Final = "nothing of that name decides here"
NO_OPTIONS: Final = "these settings have no effect: what the plugin does is done as by default"
NOBODY_READS: Final = "nothing here reads it"
NO_MULTIKUEUE: Final = "jobs are not sent to other clusters; the object is left alone"
DOMAINS_LEAVE: Final = (
    "NVIDIA's DaemonSet has both drivers, and ComputeDomains leave a node with it: leave nodes with NVIDIA whose"
    " pods use them"
)
DOMAINS_GATE: Final = "it is about ComputeDomains, which leave a node with NVIDIA's DaemonSet"

# Why something stays as it is, beside the operator's.
NFD: Final = "node feature discovery goes on running: its labels tell which nodes have GPUs"
DOMAINS: Final = "it is about ComputeDomains, which are NVIDIA's driver's alone"
DOMAINS_ALONE: Final = "it serves ComputeDomains alone, beside the agent"
DOMAINS_CONTROLLER: Final = "the controller of ComputeDomains goes on running"
CLAIM_OBJECTS: Final = "the agent serves it as it is: the driver has the same name and gives devices the same names"
FRACTIONS: Final = "pods that ask for a part of a GPU are translated; nodes need a layout of mode fractional"
SAME_OBJECT: Final = "the controller reads and writes the same object"
APPLIED_AS_IT_IS: Final = "it is applied as it is"
LABEL_WORKS: Final = "the agent follows it"
GPUS_ON_NODES: Final = "what serves GPUs on nodes"
UPGRADED: Final = "it is there already: the steps upgrade it, and its other values stay, with its CRDs"
POLICY_STAYS: Final = "it is there already: controller.policy stays as it is"
INSTALLED: Final = "it is there already, and nothing was read that it would take over"
GOES_ON: Final = "it goes on: agents, which would take its place, come to no node yet"
NAME_NOT_TOLD: Final = (
    "its name is not in the values: give the DaemonSet to this command too, or take the release away when agents are on"
    " the nodes"
)
AGENT_WAITS: Final = (
    "nothing about it was read: agents come to nodes with nvidia.com/gpu.deploy.device-plugin=false alone"
)

# What a ConfigMap is for people.
PLUGIN_CONFIG: Final = "the device plugin's"
MIG_CONFIG: Final = "mig-parted's"
FIELDS_CONFIG: Final = "dcgm-exporter's"

# What the check says.
SERVERS: Final = "servers of GPUs"
STILL_ASKED: Final = "the API server still asks it"
CHECK_HEADINGS: Final = {
    "unknown": "Not known:",
    "left": "Left of the old parts:",
    "lacking": "Pods and nodes that miss what they had:",
}
NOTHING_THERE: Final = {
    "left": "Left of the old parts: nothing",
    "lacking": "Every pod that asks for GPUs holds them by an agent",
}
NOT_LISTED: Final = "they may not be listed by this account, and nothing is said about them"

# What a step does.
ALL_CRDS: Final = "Create the kinds of objects that the agent and the controller read and write"
INSTALL_BOTH: Final = "Install the agent, and the controller with its queues"
INSTALL_CONTROLLER: Final = "Install the controller; agents follow when nodes get their label"
LEAVE_NODES: Final = "Let the operator's DRA driver leave its nodes, which the agents come to"
CONVERSION: Final = "Note whom the API server asks to convert Kueue's kinds: the controller will change it"
APISERVICES: Final = (
    "Take Kueue's visibility API away, which the controller serves under the same name; on the way back no namespace"
    " can be deleted (NamespaceDeletionDiscoveryFailure) until these APIServices are Available"
)
MISSING_CRDS: Final = "Create the kinds of objects that the controller reads and writes, where they are not there"
UPGRADE: Final = "Upgrade the release tessera, which is there already, with these values beside its own"
MAKE_NAMESPACE: Final = "Make the namespace, where it is not there; its label lets the agent mount host folders"
LABEL_NAMESPACE: Final = "Label the namespace, which is there already: the label lets the agent mount host folders"
CRDS: Final = "Create the kinds of objects that the agent writes"
INSTALL: Final = "Install the agent; the controller with its queues can follow by itself"
INSTALL_THERE: Final = (
    "Install the agent for nodes that the operator's device plugin has left, which are none so far; the controller "
    "with its queues can follow by itself"
)


def other_release(place: str, what: str, found: str, expected: str) -> str:
    return (
        f"{place}: {what}: found Tessera installed already, as {found}, expected {expected} or none: the steps cannot"
        " upgrade it. Give files without Tessera's own objects, or upgrade it by hand"
    )


def other_agents(release: str) -> str:
    return (
        f"{release}: found agents whose place is not the plan's, expected none, or agents that wait for the label by"
        " which single nodes go over (--node). Give the queues' objects alone, or upgrade the release by hand"
    )


def may_not_list(plural: str) -> str:
    return f"cluster: {plural}: found 403 Forbidden, expected that this account may list them in all namespaces"


def still_on(parts: list[str], nodes: int) -> str:
    return f"{', '.join(parts)}: on, and {nodes} nodes have the label of the device plugin"


def still_runs(count: int) -> str:
    return f"it still has pods: {count}"


def not_a_holder(resources: str, node: str) -> str:
    return f"it asks for {resources} and is no holder in GpuNode {node}"


def no_agent(pods: int) -> str:
    return f"no GpuNode is there, and pods on it ask for GPUs: {pods}. Is the agent on the node?"


def nobody_serves(resources: str) -> str:
    return f"it offered {resources} and offers none now, and no GpuNode is there: no agent came to it"


def no_server(stopped: list[str]) -> str:
    return f"no node has any: stopped were {', '.join(stopped)}, and no agent came. Did a step fail? Run it again"


def no_place(pods: int) -> str:
    return f"no node fits its affinity, nodeSelector and tolerations, and pods that ask for GPUs wait: {pods}"


def offers_less(asked: int, offered: int) -> str:
    return f"pods ask for {asked}, the node offers {offered}"


def label_kept(key: str) -> str:
    return f"the chart sets {key} on the agent's pods itself"


def other_set(value: str) -> str:
    return f"another container says {value}, which all agents get: a release has one value of it"


def plugins_own(usual: str) -> str:
    return (
        "the operator's device plugin is off: the agents have what the plugin that serves GPUs says, where it says"
        f" nothing its default, {usual}"
    )


def other_place(name: str) -> str:
    return f"the agents go where {name} is: another place needs a release of its own"


def variable_unread(name: str) -> str:
    return f"the agent does not read {name}"


def variable_set(name: str) -> str:
    return f"{name} names something inside of the operator's container, or is set by the chart itself"


def variable_unfit(expected: str) -> str:
    return f"the agent takes no such value: expected {expected}"


def switch_off(part: str) -> str:
    return f"Switch the operator's {part} off, on all nodes"


def leave_node(part: str, node: str) -> str:
    return f"Let the operator's {part} leave node {node}"


def copy_config(what: str, name: str, namespace: str) -> str:
    return f"Copy {what} ConfigMap {name} into {namespace}"


def make_config(what: str, name: str, namespace: str) -> str:
    return f"Make a ConfigMap {name} in {namespace} of {what} file"


def stop_set(program: str, name: str) -> str:
    return f"Take the pods of NVIDIA's {program} (DaemonSet {name}) from all nodes"


def stop_controller(system: str, name: str) -> str:
    return f"Stop {system}'s {name}: two must never decide; nothing is queued until the controller is ready"


def stop_agent(system: str, name: str) -> str:
    return f"Take the pods of {system}'s {name} from all nodes: their scheduler is gone"


def stop_all(system: str, namespace: str) -> str:
    return (
        f"Stop all of {system} in {namespace}: two must never decide; nothing is queued until the controller is ready"
    )


def drop_webhooks(system: str) -> str:
    return f"Take {system}'s webhooks away: without their server they refuse objects"


def claim_layout(gpus: int | None, usual: int) -> str:
    words = f"Give the {gpus or usual} GPUs of each of these nodes to claims"
    return words if gpus else f"{words}; no file says how many they have, so correct the number"


def nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def no_file(name: str) -> str:
    return f"none of the files that were read is called {name}"


def no_mig_config(name: str) -> str:
    return f"no file that was read has a MIG configuration {name}, and none of that name is made from the hardware"


def found_expected(place: str, path: str, found: str, expected: str) -> str:
    return f"{place}: {path}: found {found}, expected {expected}. Correct it"


def unknown_program(place: str, kind: str, name: str, image: str) -> str:
    return f"{place}: {kind} {name}: image {image} is not one of the programs that this command knows; passed over"


def not_read(place: str, version: str, kind: str) -> str:
    return f"{place}: {kind} ({version}) is not read by this command; passed over"


def unknown_field(place: str, path: str, kind: str) -> str:
    return f"{place}: {path}: found a field that {kind} does not have; passed over"


def unknown_value(place: str, path: str, chart: str) -> str:
    return f"{place}: {path}: found a value that the chart {chart} is not known to have; passed over"
