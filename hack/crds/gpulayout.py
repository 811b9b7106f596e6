"""The CRD of GpuLayout, from inventory/api/gpulayout.py."""

from agent.cluster.gpulayouts import GPU_LAYOUTS
from agent.config.layoutsection import KEYS
from hack.crds.gpunode import Schema, own_crd, structural
from inventory.api.gpulayout import SpecFields
from inventory.layout.entries import FractionPlacement, LayoutMode, WhenBusy

SOURCE = "inventory/api/gpulayout.py"

_CLIENTS = "has(self.clients) && size(self.clients) > 0"
_FIRST = "self.clients[0]"
_EQUAL = (
    f"(has(c.memory) ? c.memory : '') == (has({_FIRST}.memory) ? {_FIRST}.memory : '') && "
    f"(has(c.threads) ? c.threads : 0) == (has({_FIRST}.threads) ? {_FIRST}.threads : 0)"
)
_RULES = (
    (
        "self.mode != 'timeSlicing' || (has(self.replicas) && self.replicas >= 2)",
        "timeSlicing needs 2 or more replicas",
    ),
    (
        f"self.mode != 'mps' || has(self.replicas) != ({_CLIENTS})",
        "mps needs either replicas or clients",
    ),
    ("self.mode != 'mig' || (has(self.profiles) && size(self.profiles) > 0)", "mig needs profiles"),
    ("!has(self.granularity) || (self.granularity > 0 && 100 % self.granularity == 0)", "granularity divides 100"),
    (
        "!has(self.shares) || !has(self.shares.granularity) || 100 % self.shares.granularity == 0",
        "granularity divides 100",
    ),
    (
        f"!({_CLIENTS}) || self.clients.all(c, has(c.resource)) || self.clients.all(c, {_EQUAL})",
        "clients of unequal size carry a resource each (resource: nvidia.com/gpu-large), one name for each size",
    ),
    (
        "!has(self.clients) || self.clients.all(c, has(c.memory) || has(c.threads))",
        "a client has memory or threads",
    ),
    ("!has(self.rename) || !has(self.resource)", "either resource or rename"),
)


def _only_with(key: str) -> tuple[str, str]:
    modes = [mode.value for mode in LayoutMode if key in KEYS[mode]]
    names = ", ".join(f"'{mode}'" for mode in modes)
    return f"!has(self.{key}) || self.mode in [{names}]", f"{key} stands with mode {' or '.join(modes)} only"


def gpulayout_crd() -> Schema:
    """The CustomResourceDefinition of GpuLayout."""
    spec = structural(SpecFields)
    entry = spec["properties"]["layout"]["items"]
    entry["properties"]["mode"]["enum"] = [mode.value for mode in LayoutMode]
    entry["properties"]["whenBusy"]["enum"] = [word.value for word in WhenBusy]
    entry["properties"]["placement"]["enum"] = [word.value for word in FractionPlacement]
    entry["properties"]["sharing"]["enum"] = [LayoutMode.TIME_SLICING.value, LayoutMode.MPS.value]
    entry["properties"]["profiles"]["items"]["pattern"] = r"^(\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb([+-][a-z.]+)*$"
    keys = dict.fromkeys(key for allowed in KEYS.values() for key in allowed)
    entry["x-kubernetes-validations"] = [
        {"rule": rule, "message": message} for rule, message in (*_RULES, *map(_only_with, keys))
    ]
    spec["properties"]["nodeSelector"]["maxProperties"] = 16
    return own_crd(
        GPU_LAYOUTS,
        short="gl",
        columns=(
            ("Selector", "string", ".spec.nodeSelector"),
            ("Modes", "string", ".spec.layout[*].mode"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        description="How the GPUs of some nodes are to be cut and shared, GPU by GPU. At most one may "
        "select a node; what came of it is in each node's GpuNode.",
        section=("spec", spec),
    )
