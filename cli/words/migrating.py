"""Sentences of the plan that ``tessera migrate`` prints: what is lost, what stays, and what each step does."""

from typing import Final

HEADINGS: Final = {
    "lost": "Lost:",
    "kept": "Stays the GPU Operator's:",
    "values": "Values for charts/tessera:",
    "steps": "Steps, each with the way back (take back the last one first):",
}
NOTHING_LOST: Final = "Lost: nothing"
NO_STEPS: Final = "Nothing to migrate: no ClusterPolicy was read."

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
METRICS_FILE: Final = "the chart mounts no file of metrics: the agent's own list holds"
HPC_JOBS: Final = "files that map GPUs to HPC jobs are not read"
SERVICE: Final = "the agent's Service is of type ClusterIP without a traffic policy"
RELABELINGS: Final = "the chart's ServiceMonitor has one relabeling, to the label node"
SCRAPE_TIMEOUT: Final = "the chart's ServiceMonitor leaves it to Prometheus"
HONOR_LABELS: Final = "the chart's ServiceMonitor always honors labels"
MIG_FILE: Final = "the chart mounts no mig-parted file: the agent makes the configurations all-* from the hardware"
MIG_DEFAULT: Final = "a node without the label nvidia.com/mig.config is left as it is: label new nodes"
MIG_CLIENTS: Final = "no client is stopped while a GPU is cut: the agent cuts what nobody uses"
MIG_VARIABLES: Final = "the agent cuts GPUs itself, without a reboot of the node and without a MIG manager to set"
MPS: Final = (
    "a ClusterPolicy does not say whether its files share GPUs by MPS: if one does, install with --set mps.enabled=true"
)
NO_PATH: Final = "the chart takes absolute paths alone"
MPS_PATH: Final = "the chart takes absolute paths of at most 40 characters alone"
INTERVAL: Final = "the chart takes one number with ms, s or m"
FILE_NAME: Final = "it is no name of a file in a ConfigMap"
PATTERNS: Final = "the agent separates expressions by commas: one with a comma cannot be given"
OTHER_POLICY: Final = "the operator obeys one ClusterPolicy: the first that was read is migrated"

# What a step does.
MAKE_NAMESPACE: Final = "Make the namespace; its label lets the agent mount host folders"
CRDS: Final = "Create the kinds of objects that the agent writes"
INSTALL: Final = "Install the agent; the controller with its queues can follow by itself"
INSTALL_THERE: Final = (
    "Install the agent for nodes that the operator's device plugin has left, which are none so far; the controller "
    "with its queues can follow by itself"
)


def label_kept(key: str) -> str:
    return f"the chart sets {key} on the agent's pods itself"


def variable_unread(name: str) -> str:
    return f"the agent does not read {name}"


def variable_set(name: str) -> str:
    return f"{name} names something inside of the operator's container, or is set by the chart itself"


def switch_off(part: str) -> str:
    return f"Switch the operator's {part} off, on all nodes"


def leave_node(part: str, node: str) -> str:
    return f"Let the operator's {part} leave node {node}"


def copy_config(name: str, namespace: str) -> str:
    return f"Copy the device plugin's ConfigMap {name} into {namespace}"


def found_expected(place: str, path: str, found: str, expected: str) -> str:
    return f"{place}: {path}: found {found}, expected {expected}. Correct it"


def not_read(place: str, version: str, kind: str) -> str:
    return f"{place}: {kind} ({version}) is not read by this command; passed over"


def unknown_field(place: str, path: str, kind: str) -> str:
    return f"{place}: {path}: found a field that {kind} does not have; passed over"
