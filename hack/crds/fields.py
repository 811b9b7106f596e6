"""The fields of the kinds that a simulation reads, by name and type, as a table:
``controller/insight/simulation/fields.json``.

Kubernetes' part is taken from its OpenAPI documents, others' from their CRDs, both by ``take``; the parts of the Kueue
kinds and of CapacityRequest, from the CRDs made here, and of JAXJob, which is like another, are written anew. ``kinds``
leads from ``apiVersion kind`` to a type, ``types`` from a type to its fields, and a field is

    ""      free: anything may stand below
    "#S"    a scalar: string, integer, number, boolean, quantity, int-or-string, or words of which it is one, "A|B"
    "[]#S"  a list of such
    "T"     an object of type T, or a list of them
    "{}T"   a map of such, or with "{}#S" of scalars
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from controller.insight.simulation.fields import TABLE
from hack.crds.podtemplate import META, ROOT, pod_template
from inventory.api.names import GROUP

Schema = dict[str, Any]
Types = dict[str, dict[str, str]]

DOCUMENTS: Final = {
    "api__v1": ("v1", ("LimitRange", "Namespace", "Node", "Pod")),
    "apis__apps__v1": ("apps/v1", ("Deployment", "StatefulSet")),
    "apis__batch__v1": ("batch/v1", ("Job",)),
    "apis__node.k8s.io__v1": ("node.k8s.io/v1", ("RuntimeClass",)),
    "apis__resource.k8s.io__v1": (
        "resource.k8s.io/v1",
        ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"),
    ),
    "apis__scheduling.k8s.io__v1": ("scheduling.k8s.io/v1", ("PriorityClass",)),
    "apis__scheduling.k8s.io__v1beta1": ("scheduling.k8s.io/v1beta1", ("PodGroup", "Workload")),
    "apis__scheduling.k8s.io__v1alpha3": (
        "scheduling.k8s.io/v1alpha3",
        ("CompositePodGroup", "PodGroup", "Workload"),
    ),
    "apis__scheduling.k8s.io__v1alpha2": ("scheduling.k8s.io/v1alpha2", ("PodGroup", "Workload")),
}
"""Files, and the kinds that are taken from each. One that a release lacks stays as an earlier release had it."""
_FREE: Final = {
    "Quantity": "#quantity",
    "IntOrString": "#int-or-string",
    "Time": "#string",
    "MicroTime": "#string",
    "FieldsV1": "",
    "RawExtension": "",
}
"""Definitions without fields of their own, and what stands for them."""
_KUBERNETES: Final = "io.k8s."
"""What names of Kubernetes' own types begin with."""
_SCALARS: Final = ("string", "integer", "number", "boolean")


class Table:
    """What has been found so far."""

    def __init__(self, kinds: dict[str, str], types: Types) -> None:
        self.kinds = kinds
        self.types = types

    def text(self) -> str:
        kinds = json.dumps(self.kinds, indent=1, sort_keys=True)
        lines = (f"{json.dumps(name)}: {json.dumps(self.types[name], sort_keys=True)}" for name in sorted(self.types))
        return f'{{"kinds": {kinds},\n"types": {{\n' + ",\n".join(lines) + "\n}}\n"

    def add_crd(self, crd: Schema) -> None:
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            name = f"{group}/{version['name']} {kind}"
            self.kinds[name] = name
            self._add(name, version["schema"]["openAPIV3Schema"])
            self.types[name] |= {"apiVersion": "#string", "kind": "#string", "metadata": META}

    def _add(self, name: str, schema: Schema) -> None:
        self.types[name] = {
            key: self._inner(f"{name}.{key}", value) for key, value in schema.get("properties", {}).items()
        }

    def _inner(self, name: str, schema: Schema) -> str:
        """What stands for a field of a CRD; types of its own on the way are added."""
        if schema.get("type") == "array":
            return _listed(self._inner(name, schema["items"]))
        if schema == pod_template() or _is_pod_template(schema):
            return ROOT
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and more.get("type") == "object":
            return "{}" + self._inner(name, more)
        if isinstance(more, dict) and (inner := _leaf(more)):
            return "{}" + inner
        if "properties" not in schema:
            return _leaf(schema)
        self._add(name, schema)
        return name

    def add_openapi(self, version: str, kinds: Iterable[str], definitions: dict[str, Schema]) -> None:
        wanted = []
        for name, schema in definitions.items():
            for named in schema.get("x-kubernetes-group-version-kind", ()):
                if _version(named) == version and named["kind"] in kinds:
                    self.kinds[f"{version} {named['kind']}"] = name
                    wanted.append(name)
        while wanted:
            name = wanted.pop()
            if name not in self.types:
                fields = {key: _referred(value) for key, value in definitions[name].get("properties", {}).items()}
                self.types[name] = fields
                wanted += [field.removeprefix("{}") for field in fields.values() if field and "#" not in field]


def rendered() -> str:
    """The table as it should be: what is kept, and the CRDs made here."""
    from hack.crds import capacityrequest, kueue

    kept = json.loads(TABLE.read_text())
    ours = (f"{kueue.GROUP}/", f"{GROUP}/")
    table = Table(*({key: value for key, value in kept[part].items() if not key.startswith(ours)} for part in kept))
    for crd in (*kueue.crds(), capacityrequest.capacityrequest_crd()):
        table.add_crd(crd)
    _add_jax(table)
    _add_present_trainer(table)
    return table.text()


def _add_jax(table: Table) -> None:
    """JAXJob is a PyTorchJob without what is PyTorch's own, by the operator's types (``jax_types.go``, release 1.9)."""
    like, name = "kubeflow.org/v1 PyTorchJob", "kubeflow.org/v1 JAXJob"
    spec = table.types[f"{like}.spec"]
    table.kinds[name] = name
    table.types[name] = {**table.types[like], "spec": f"{name}.spec"}
    table.types[f"{name}.spec"] = {
        "jaxReplicaSpecs": spec["pytorchReplicaSpecs"],
        "runPolicy": spec["runPolicy"],
    }


_TRAIN_JOB: Final = "trainer.kubeflow.org/v1alpha1 TrainJob"
_PATCH: Final = f"{_TRAIN_JOB}.spec.runtimePatches"
_INITIALIZER: Final = f"{_TRAIN_JOB}.spec.initializer"
_CORE: Final = "io.k8s.api.core.v1"
_PRESENT_TRAINER: Final[Types] = {
    f"{_TRAIN_JOB}.spec": {
        "activeDeadlineSeconds": "#integer",
        "initializer": _INITIALIZER,
        "podTemplateOverrides": "",
        "runtimePatches": _PATCH,
    },
    f"{_TRAIN_JOB}.status": {"trainerStatus": ""},
    _INITIALIZER: dict.fromkeys(("dataset", "model"), f"{_INITIALIZER}.of"),
    f"{_INITIALIZER}.of": {
        "env": f"{_CORE}.EnvVar",
        "secretRef": f"{_CORE}.LocalObjectReference",
        "storageUri": "#string",
    },
    _PATCH: {"manager": "", "time": "", "trainingRuntimeSpec": f"{_PATCH}.runtime"},
    f"{_PATCH}.runtime": {"template": f"{_PATCH}.jobSet"},
    f"{_PATCH}.jobSet": {"metadata": META, "spec": f"{_PATCH}.jobSet.spec"},
    f"{_PATCH}.jobSet.spec": {"replicatedJobs": f"{_PATCH}.replicatedJob"},
    f"{_PATCH}.replicatedJob": {"name": "", "template": f"{_PATCH}.job"},
    f"{_PATCH}.job": {"metadata": META, "spec": f"{_PATCH}.job.spec"},
    f"{_PATCH}.job.spec": {"template": f"{_PATCH}.pod"},
    f"{_PATCH}.pod": {"metadata": META, "spec": f"{_PATCH}.pod.spec"},
    f"{_PATCH}.pod.spec": {
        "affinity": f"{_CORE}.Affinity",
        "containers": f"{_PATCH}.container",
        "imagePullSecrets": f"{_CORE}.LocalObjectReference",
        "initContainers": f"{_PATCH}.container",
        "nodeSelector": "{}#string",
        "schedulingGates": f"{_CORE}.PodSchedulingGate",
        "securityContext": f"{_CORE}.PodSecurityContext",
        "serviceAccountName": "#string",
        "tolerations": f"{_CORE}.Toleration",
        "volumes": f"{_CORE}.Volume",
    },
    f"{_PATCH}.container": {
        "env": f"{_CORE}.EnvVar",
        "name": "#string",
        "securityContext": f"{_CORE}.SecurityContext",
        "volumeMounts": f"{_CORE}.VolumeMount",
    },
    **{
        f"trainer.kubeflow.org/v1alpha1 {runtime}.spec.mlPolicy.torch": {"elasticPolicy": "", "numProcPerNode": ""}
        for runtime in ("ClusterTrainingRuntime", "TrainingRuntime")
    },
}


def _add_present_trainer(table: Table) -> None:
    """What TrainJobs have beside the fields of the older CRD, by the trainer's types (``trainjob_types.go``, 2.2).

    ``podTemplateOverrides`` is of release 2.1: it is known, and refused. A patch has some of a pod template's fields
    (``PodSpecPatch``, ``ContainerPatch``): others, such as a container's resources, are the runtime's alone. What a
    runtime says of torch differs between releases.
    """
    for name, fields in _PRESENT_TRAINER.items():
        table.types[name] = {**table.types.get(name, {}), **fields}


def take(folder: Path, crds: Iterable[Path]) -> None:
    """Write the table from OpenAPI v3 documents (``api/openapi-spec/v3`` of k8s.io/kubernetes) and others' CRDs.

    What is kept of a CRD that is not among these stays.
    """
    before = json.loads(TABLE.read_text())
    files = {file: folder / f"{file}_openapi.json" for file in DOCUMENTS}
    gone = tuple(f"{_KUBERNETES}api.{_short(DOCUMENTS[file][0])}." for file, path in files.items() if not path.exists())
    others = {name for name in before["types"] if not name.startswith(_KUBERNETES) or name.startswith(gone)}
    table = Table(
        {kind: name for kind, name in before["kinds"].items() if name in others},
        {name: before["types"][name] for name in others},
    )
    for file, (version, kinds) in DOCUMENTS.items():
        if not files[file].exists():
            continue
        found = json.loads(files[file].read_text())
        table.add_openapi(version, kinds, found["components"]["schemas"])
    for path in crds:
        table.add_crd(yaml.safe_load(path.read_text()))
    TABLE.write_text(table.text())
    TABLE.write_text(rendered())


def _short(version: str) -> str:
    """The part of a definition's name that says its group and version, such as ``scheduling.v1beta1``."""
    group, _, number = version.rpartition("/")
    return f"{group.partition('.')[0] or 'core'}.{number}"


def _version(one: dict[str, str]) -> str:
    return f"{one['group']}/{one['version']}" if one["group"] else one["version"]


def _is_pod_template(schema: Schema) -> bool:
    """Whether a foreign CRD has Kubernetes' own written out here, of whatever version."""
    spec = schema.get("properties", {}).get("spec", {})
    properties: Schema = spec.get("properties", {})
    return {"containers", "tolerations", "nodeSelector"} <= properties.keys()


def _referred(schema: Schema) -> str:
    """What stands for a field of an OpenAPI definition."""
    if schema.get("type") == "array":
        return _listed(_referred(schema["items"]))
    if isinstance(more := schema.get("additionalProperties"), dict):
        inner = _referred(more)
        return inner and "{}" + inner
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ())), "")
    name = str(reference).rpartition("/")[2]
    return _FREE.get(name.rpartition(".")[2], name) if name else _leaf(schema)


def _leaf(schema: Schema) -> str:
    """What stands for a scalar; empty for anything else."""
    if schema.get("x-kubernetes-int-or-string"):
        return "#quantity" if "pattern" in schema else "#int-or-string"
    if schema.get("enum") and all(isinstance(each, str) and each for each in schema["enum"]):
        return f"#{'|'.join(schema['enum'])}" + ("|" if len(schema["enum"]) == 1 else "")
    return f"#{schema['type']}" if schema.get("type") in _SCALARS else ""


def _listed(inner: str) -> str:
    """A list of what ``inner`` stands for. Lists of lists, of maps and of nothing known are free."""
    return f"[]{inner}" if inner.startswith("#") else "" if inner.startswith(("[]", "{}#")) else inner
