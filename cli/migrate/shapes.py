"""The fields of NVIDIA's ClusterPolicy (``nvidia.com/v1``, GPU Operator 26.7) and GPUCluster (``v1alpha1``), with the
values that each one allows.

A test walks the operator's CRD and compares: every field of it stands here with its type, words and bounds.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from controller.insight.simulation.problems import shown
from controller.insight.simulation.sources import Path_


class Type(StrEnum):
    """The types of an OpenAPI schema. ``EITHER``: a whole number or a string."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"
    EITHER = "int-or-string"


_EXPECTED: Final = {
    Type.BOOLEAN: "true or false",
    Type.INTEGER: "a whole number",
    Type.STRING: "a string",
    Type.ARRAY: "a list",
    Type.OBJECT: "an object",
    Type.EITHER: "a whole number or a string",
}


class Shape(Struct, frozen=True):
    """The values that a field allows.

    ``words``: a string's only values; ``pattern``: what is found in it, called ``name``; ``least``: a number's bound.
    ``fields`` are an object's; ``each`` is the shape of a list's items or of the values of an object with free keys;
    an object with neither may hold anything.
    """

    type: Type
    words: tuple[str, ...] = ()
    pattern: str = ""
    name: str = ""
    least: int | None = None
    fields: "dict[str, Shape]" = {}
    each: "Shape | None" = None


class Misfit(NamedTuple):
    """A value that its field does not allow. ``expected`` is empty for a field that does not exist."""

    path: Path_
    found: str
    expected: str


def misfits(value: Any, shape: Shape, path: Path_ = ()) -> Iterator[Misfit]:
    """Every value that the shape does not allow, in the order of the document. Nothing (null) counts as not given."""
    if value is None:
        return
    if not _fits(value, shape):
        yield Misfit(path, shown(value), _expected(shape))
    elif isinstance(value, list) and shape.each:
        for index, item in enumerate(value):
            yield from misfits(item, shape.each, (*path, index))
    elif isinstance(value, dict) and (shape.fields or shape.each):
        for key, inner in value.items():
            inside = shape.fields.get(str(key)) or shape.each
            if inside is None:
                yield Misfit((*path, str(key)), "", "")
            else:
                yield from misfits(inner, inside, (*path, str(key)))


def _fits(value: Any, shape: Shape) -> bool:
    match shape.type:
        case Type.BOOLEAN:
            return isinstance(value, bool)
        case Type.INTEGER:
            return _is_whole(value) and (shape.least is None or value >= shape.least)
        case Type.ARRAY:
            return isinstance(value, list)
        case Type.OBJECT:
            return isinstance(value, dict)
        case Type.EITHER if _is_whole(value):
            return True
    return isinstance(value, str) and (
        value in shape.words if shape.words else re.search(shape.pattern, value) is not None
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _expected(shape: Shape) -> str:
    if shape.words:
        every = [word or '""' for word in shape.words]
        return f"{', '.join(every[:-1])} or {every[-1]}"
    if shape.least is not None:
        return f"{_EXPECTED[shape.type]} of at least {shape.least}"
    return shape.name or _EXPECTED[shape.type]


BOOL: Final = Shape(Type.BOOLEAN)
INT: Final = Shape(Type.INTEGER)
COUNT: Final = Shape(Type.INTEGER, least=1)
NATURAL: Final = Shape(Type.INTEGER, least=0)
TEXT: Final = Shape(Type.STRING)
TEXTS: Final = Shape(Type.ARRAY, each=TEXT)
LABELS: Final = Shape(Type.OBJECT, each=TEXT)
IMAGE: Final = Shape(Type.STRING, pattern=r"[a-zA-Z0-9\-]+", name="an image's name")
AMOUNT: Final = Shape(
    Type.EITHER,
    pattern=r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    name="an amount such as 500m or 64Mi",
)
DURATION: Final = Shape(
    Type.STRING,
    pattern=r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
    name="a duration such as 15s",
)
CONDITION_REASON: Final = Shape(Type.STRING, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", name="a reason")
CONDITION_TYPE: Final = Shape(
    Type.STRING,
    pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    name="a condition's type",
)


def obj(**fields: Shape) -> Shape:
    return Shape(Type.OBJECT, fields=fields)


def words(*allowed: str) -> Shape:
    return Shape(Type.STRING, words=allowed)


def items(each: Shape) -> Shape:
    return Shape(Type.ARRAY, each=each)


ENV: Final = items(obj(name=TEXT, value=TEXT))
_CHOSEN: Final = obj(default=TEXT, name=TEXT)
_NAMED: Final = obj(name=TEXT)
_WITH_ENV: Final = obj(env=ENV)
_PULLED: Final = {
    "image": IMAGE,
    "imagePullPolicy": TEXT,
    "imagePullSecrets": TEXTS,
    "repository": TEXT,
    "version": TEXT,
}
_MANAGER: Final = Shape(Type.OBJECT, fields=_PULLED | {"env": ENV})
_AMOUNTS: Final = Shape(Type.OBJECT, each=AMOUNT)
_PART: Final = _PULLED | {
    "args": TEXTS,
    "enabled": BOOL,
    "env": ENV,
    "hostNetwork": BOOL,
    "resources": obj(limits=_AMOUNTS, requests=_AMOUNTS),
}
_PROBE: Final = obj(
    failureThreshold=COUNT, initialDelaySeconds=INT, periodSeconds=COUNT, successThreshold=COUNT, timeoutSeconds=COUNT
)
_ACTIONS: Final = ("replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase")
_CAPITALS: Final = {"hashmod": "HashMod", "labelmap": "LabelMap", "labeldrop": "LabelDrop", "labelkeep": "LabelKeep"}
_RELABELING: Final = obj(
    action=words(
        *(word for each in _ACTIONS for word in (each, _CAPITALS.get(each, each.capitalize()))),
        *("keepequal", "KeepEqual", "dropequal", "DropEqual"),
    ),
    modulus=NATURAL,
    regex=TEXT,
    replacement=TEXT,
    separator=TEXT,
    sourceLabels=TEXTS,
    targetLabel=TEXT,
)
_SERVICE_MONITOR: Final = obj(
    additionalLabels=LABELS,
    enabled=BOOL,
    honorLabels=BOOL,
    interval=DURATION,
    relabelings=items(_RELABELING),
    scrapeTimeout=DURATION,
)
_PROFILE: Final = obj(localhostProfile=TEXT, type=TEXT)
_POD_SECURITY: Final = obj(
    appArmorProfile=_PROFILE,
    fsGroup=INT,
    fsGroupChangePolicy=TEXT,
    runAsGroup=INT,
    runAsNonRoot=BOOL,
    runAsUser=INT,
    seLinuxChangePolicy=TEXT,
    seLinuxOptions=obj(level=TEXT, role=TEXT, type=TEXT, user=TEXT),
    seccompProfile=_PROFILE,
    supplementalGroups=items(INT),
    supplementalGroupsPolicy=TEXT,
    sysctls=ENV,
    windowsOptions=obj(gmsaCredentialSpec=TEXT, gmsaCredentialSpecName=TEXT, hostProcess=BOOL, runAsUserName=TEXT),
)
_TOLERATION: Final = obj(effect=TEXT, key=TEXT, operator=TEXT, tolerationSeconds=INT, value=TEXT)


def _part(*without: str, **more: Shape) -> Shape:
    return Shape(Type.OBJECT, fields={key: shape for key, shape in _PART.items() if key not in without} | more)


_DRIVER: Final = _part(
    certConfig=_NAMED,
    kernelModuleConfig=_NAMED,
    kernelModuleType=words("auto", "open", "proprietary"),
    licensingConfig=obj(configMapName=TEXT, nlsEnabled=BOOL, secretName=TEXT),
    livenessProbe=_PROBE,
    manager=_MANAGER,
    rdma=obj(enabled=BOOL, useHostMofed=BOOL),
    readinessProbe=_PROBE,
    repoConfig=obj(configMapName=TEXT),
    secretEnv=TEXT,
    startupProbe=_PROBE,
    upgradePolicy=obj(
        autoUpgrade=BOOL,
        drain=obj(deleteEmptyDir=BOOL, enable=BOOL, force=BOOL, podSelector=TEXT, timeoutSeconds=NATURAL),
        maxParallelUpgrades=NATURAL,
        maxUnavailable=Shape(Type.EITHER),
        podDeletion=obj(deleteEmptyDir=BOOL, force=BOOL, timeoutSeconds=NATURAL),
        waitForCompletion=obj(podSelector=TEXT, timeoutSeconds=NATURAL),
    ),
    useNvidiaDriverCRD=BOOL,
    useOpenKernelModules=BOOL,
    usePrecompiled=BOOL,
    virtualTopology=obj(config=TEXT),
)
_EXPORTER: Final = _part(
    annotations=LABELS,
    config=_NAMED,
    enablePodLabels=BOOL,
    enablePodUID=BOOL,
    hostPID=BOOL,
    hpcJobMapping=obj(directory=TEXT, enabled=BOOL),
    podLabelAllowlistRegex=TEXTS,
    service=obj(internalTrafficPolicy=TEXT, type=TEXT),
    serviceMonitor=_SERVICE_MONITOR,
)
_RUNTIME_CLASS: Final = obj(artifacts=obj(pullSecret=TEXT, url=TEXT), name=TEXT, nodeSelector=LABELS)
SPEC: Final = obj(
    ccManager=_part(defaultMode=words("on", "off", "devtools")),
    cdi=obj(default=BOOL, enabled=BOOL, nriPluginEnabled=BOOL),
    daemonsets=obj(
        annotations=LABELS,
        labels=LABELS,
        podSecurityContext=_POD_SECURITY,
        priorityClassName=TEXT,
        rollingUpdate=obj(maxUnavailable=TEXT),
        tolerations=items(_TOLERATION),
        updateStrategy=words("RollingUpdate", "OnDelete"),
    ),
    dcgm=_part(hostPort=INT),
    dcgmExporter=_EXPORTER,
    devicePlugin=_part(config=_CHOSEN, mps=obj(root=TEXT)),
    driver=_DRIVER,
    gdrcopy=_part("hostNetwork", "resources"),
    gds=_part("hostNetwork", "resources"),
    gfd=_part(),
    hostPaths=obj(driverInstallDir=TEXT, kubeletRootDir=TEXT, rootFS=TEXT),
    kataManager=_part(config=obj(artifactsDir=TEXT, runtimeClasses=items(_RUNTIME_CLASS))),
    kataSandboxDevicePlugin=_part(),
    mig=obj(strategy=words("none", "single", "mixed")),
    migManager=_part(config=obj(default=words("all-disabled", ""), name=TEXT), gpuClientsConfig=_NAMED),
    nodeStatusExporter=_part(),
    operator=obj(
        annotations=LABELS,
        defaultRuntime=TEXT,
        initContainer=Shape(Type.OBJECT, fields=_PULLED),
        labels=LABELS,
        metrics=obj(serviceMonitor=_SERVICE_MONITOR),
        runtimeClass=TEXT,
        use_ocp_driver_toolkit=BOOL,
    ),
    psa=obj(enabled=BOOL),
    psp=obj(enabled=BOOL),
    sandboxDevicePlugin=_part(),
    sandboxWorkloads=obj(
        defaultWorkload=words("container", "vm-passthrough", "vm-vgpu"), enabled=BOOL, mode=words("kubevirt", "kata")
    ),
    toolkit=_part(installDir=TEXT),
    validator=_part(
        "enabled",
        cuda=_WITH_ENV,
        driver=_WITH_ENV,
        plugin=_WITH_ENV,
        toolkit=_WITH_ENV,
        vfioPCI=_WITH_ENV,
        vgpuDevices=_WITH_ENV,
        vgpuManager=_WITH_ENV,
    ),
    vfioManager=_part(driverManager=_MANAGER),
    vgpuDeviceManager=_part(config=_CHOSEN),
    vgpuManager=_part(driverManager=_MANAGER, kernelModuleConfig=_NAMED),
)
_CONDITIONS: Final = items(
    obj(
        lastTransitionTime=TEXT,
        message=TEXT,
        observedGeneration=NATURAL,
        reason=CONDITION_REASON,
        status=words("True", "False", "Unknown"),
        type=CONDITION_TYPE,
    )
)
STATUS: Final = obj(conditions=_CONDITIONS, namespace=TEXT, state=words("ignored", "ready", "notReady"))

_LIMITS: Final = _PART["resources"]
_PLUGIN_OF_CLAIMS: Final = obj(env=ENV, healthcheck=obj(enabled=BOOL, port=COUNT), resources=_LIMITS)
_PLAIN_IMAGE: Final = Shape(Type.STRING, pattern=r"^[a-zA-Z0-9\-]+$", name="an image's name")
CLUSTER_SPEC: Final = obj(
    daemonsets=SPEC.fields["daemonsets"],
    dcgm=SPEC.fields["dcgm"],
    dcgmExporter=_EXPORTER,
    draDriver=Shape(
        Type.OBJECT,
        fields=_PULLED
        | {
            "image": _PLAIN_IMAGE,
            "computeDomains": obj(
                controller=obj(env=ENV, resources=_LIMITS), enabled=BOOL, kubeletPlugin=_PLUGIN_OF_CLAIMS
            ),
            "featureGates": Shape(Type.OBJECT, each=BOOL),
            "gpus": obj(kubeletPlugin=_PLUGIN_OF_CLAIMS),
        },
    ),
    hostPaths=obj(driverInstallDir=TEXT, kubeletRootDir=TEXT),
)
CLUSTER_STATUS: Final = obj(conditions=_CONDITIONS, namespace=TEXT, state=words("ready", "notReady", "disabled"))
