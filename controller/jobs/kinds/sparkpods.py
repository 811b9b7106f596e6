"""The pods of a SparkApplication, which Spark makes of its own configuration and of the operator's fields.

Source: Spark 3.5, BasicDriverFeatureStep and BasicExecutorFeatureStep (requests), JavaUtils.byteStringAs (amounts of
memory); spark-operator 2, internal/controller/sparkapplication/submission.go (which field becomes which property) and
internal/webhook/sparkpod_defaulter.go (what its webhook adds to the pods).
"""

import re
from typing import Any, Final

from controller.jobs.framework.raw import JobError, Json, at, integer, mapping, sequence, shown, strings, text
from controller.objects.quantity import parse_quantity

ROLES: Final = ("driver", "executor")

_CONTAINERS: Final = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
_LOCAL_DIR: Final = "spark-local-dir-"
_JAVA_MEMORY: Final = re.compile(r"([0-9]{1,15})([a-z]*)", re.ASCII)
_UNITS: Final = {
    unit: 1024**power
    for power, units in enumerate((("b",), ("k", "kb"), ("m", "mb"), ("g", "gb"), ("t", "tb"), ("p", "pb")))
    for unit in units
}
_MIB: Final = 1024**2
_DEFAULT_MEMORY: Final = "1g"
_LEAST_OVERHEAD_MIB: Final = 384
_FACTORS: Final = {"Python": 0.4, "R": 0.4}
_JVM_FACTOR: Final = 0.1
_RESOURCE: Final = re.compile(r"spark\.(driver|executor)\.resource\.([^.]+)\.amount")


def pod(role: Json, app: Json, name: str) -> Json:
    """The template of the role's pods: ``role`` is ``spec.driver`` or ``spec.executor`` of ``app``."""
    base = mapping(role, "template")
    metadata = {key: {**strings(base, "metadata", key), **strings(role, key)} for key in ("labels", "annotations")}
    spec = with_volumes(_spec(role, app, name), app, name)
    kept = {key: value for key, value in metadata.items() if value}
    return {**({"metadata": kept} if kept else {}), "spec": spec}


def least_template(role: Json, name: str) -> Json:
    """The role's own template, with Spark's container in it: the API server refuses a template without containers."""
    base, container = mapping(role, "template"), [{"name": _CONTAINERS[name]}]
    spec = mapping(base, "spec")
    return {**base, "spec": {**spec, "containers": sequence(spec, "containers") or container}}


def with_volumes(spec: Json, app: Json, name: str) -> Json:
    """Volumes of the application that the role mounts. Spark itself adds the volumes of its local directories."""
    known = {text(volume, "name"): volume for volume in sequence(app, "spec", "volumes")}
    mounts = [
        mount
        for mount in sequence(app, "spec", name, "volumeMounts")
        if text(mount, "name") in known and not text(mount, "name").startswith(_LOCAL_DIR)
    ]
    if not mounts:
        return spec
    used = dict.fromkeys(text(mount, "name") for mount in mounts)
    containers = list(sequence(spec, "containers"))
    index = _spark_container(containers, name)
    containers[index] = {**containers[index], "volumeMounts": [*sequence(containers[index], "volumeMounts"), *mounts]}
    volumes = [*sequence(spec, "volumes"), *(known[volume] for volume in used)]
    return {**spec, "containers": containers, "volumes": volumes}


def _spec(role: Json, app: Json, name: str) -> Json:
    base = mapping(least_template(role, name), "spec")
    containers: list[Json] = list(base["containers"])
    index = _spark_container(containers, name)
    containers[index] = {**containers[index], "resources": _resources(containers[index], role, app, name)}
    spec = {
        **base,
        "containers": _more(containers, sequence(role, "sidecars")),
        "initContainers": _more(sequence(base, "initContainers"), sequence(role, "initContainers")),
        "nodeSelector": {
            **strings(base, "nodeSelector"),
            **strings(app, "spec", "nodeSelector"),
            **strings(role, "nodeSelector"),
        },
        "tolerations": [*sequence(base, "tolerations"), *sequence(role, "tolerations")],
        "affinity": mapping(role, "affinity") or mapping(base, "affinity"),
        "priorityClassName": text(role, "priorityClassName") or text(base, "priorityClassName"),
    }
    return {key: value for key, value in spec.items() if value}


def _spark_container(containers: list[Json], name: str) -> int:
    """The index of the container of that name, else of the first."""
    named = (index for index, container in enumerate(containers) if text(container, "name") == _CONTAINERS[name])
    return next(named, 0)


def _more(containers: list[Json], others: list[Json]) -> list[Json]:
    have = {(text(one, "name"), text(one, "image")) for one in containers}
    return [*containers, *(one for one in others if (text(one, "name"), text(one, "image")) not in have)]


def _resources(container: Json, role: Json, app: Json, name: str) -> Json:
    requests = {
        **mapping(container, "resources", "requests"),
        "cpu": _cpu(role, app, name),
        "memory": _memory(role, app, name),
    }
    limits = {**mapping(container, "resources", "limits"), **_limits(role, app, name)}
    return {**({"limits": limits} if limits else {}), "requests": requests}


def _limits(role: Json, app: Json, name: str) -> Json:
    limits: Json = {}
    if limit := text(role, "coreLimit"):
        limits["cpu"] = _quantity(limit, f"spec.{name}.coreLimit")
    if limit := text(role, "memoryLimit"):
        limits["memory"] = _written_memory(limit, f"spec.{name}.memoryLimit")
    conf = strings(app, "spec", "sparkConf")
    for key, amount in conf.items():
        match = _RESOURCE.fullmatch(key)
        vendor = conf.get(key.removesuffix("amount") + "vendor", "")
        if match is not None and match[1] == name and vendor:
            limits[f"{vendor}/{match[2]}"] = _quantity(amount, f"spec.sparkConf[{key}]")
    if (resource := text(role, "gpu", "name")) and (quantity := integer(role, "gpu", "quantity", default=0)) > 0:
        limits[resource] = str(quantity)
    return limits


def _cpu(role: Json, app: Json, name: str) -> str:
    """The requested CPU, else the cores that Spark runs with, which are one by default."""
    conf = strings(app, "spec", "sparkConf")
    asked = text(role, "coreRequest") or conf.get(f"spark.kubernetes.{name}.request.cores", "")
    if asked:
        return _quantity(asked, f"spec.{name}.coreRequest")
    cores = at(role, "cores")
    return str(integer(role, "cores", default=1)) if cores is not None else conf.get(f"spark.{name}.cores", "1")


def _memory(role: Json, app: Json, name: str) -> str:
    """The requested memory with its overhead.

    An amount in Kubernetes' notation is taken unchanged: Spark refuses it, and makes no pod.
    """
    conf, where = strings(app, "spec", "sparkConf"), f"spec.{name}.memory"
    asked = text(role, "memory") or conf.get(f"spark.{name}.memory", _DEFAULT_MEMORY)
    overhead = text(role, "memoryOverhead") or conf.get(f"spark.{name}.memoryOverhead", "")
    heap = _java_bytes(asked, _MIB)
    extra = None if not overhead else _java_bytes(overhead, _MIB)
    if heap is None or (overhead and extra is None):
        more = _quantity(overhead, f"spec.{name}.memoryOverhead") if overhead and extra is None else f"{extra or 0}"
        total = parse_quantity(_written_memory(asked, where)) + parse_quantity(more)
        return str(total)
    mib = heap // _MIB
    added = max(int(_factor(app, conf, name) * mib), _LEAST_OVERHEAD_MIB) if extra is None else extra // _MIB
    return f"{mib + added + (_executor_mib(app, conf) if name == 'executor' else 0)}Mi"


def _factor(app: Json, conf: dict[str, str], name: str) -> float:
    written = (
        conf.get(f"spark.{name}.memoryOverheadFactor")
        or conf.get("spark.kubernetes.memoryOverheadFactor")
        or text(app, "spec", "memoryOverheadFactor")
    )
    if not written:
        return _FACTORS.get(text(app, "spec", "type"), _JVM_FACTOR)
    try:
        factor = float(written)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < _MIB:
        raise JobError(f"spec.memoryOverheadFactor: expected a number of at least 0, found {shown(written)}")
    return factor


def _executor_mib(app: Json, conf: dict[str, str]) -> int:
    """Memory in MiB beside the heap that only executors have: of Python, and off the heap."""
    beside_mib = 0
    if text(app, "spec", "type") == "Python" and (python := conf.get("spark.executor.pyspark.memory")):
        beside_mib += (_java_bytes(python, _MIB) or 0) // _MIB
    if conf.get("spark.memory.offHeap.enabled", "").lower() == "true":
        beside_mib += (_java_bytes(conf.get("spark.memory.offHeap.size", "0"), 1) or 0) // _MIB
    return beside_mib


def _java_bytes(amount: str, unit: int) -> int | None:
    """Bytes of an amount such as ``512m`` as Java and Spark write it, in ``unit`` for a plain number; None for a text
    that they do not understand.
    """
    match = _JAVA_MEMORY.fullmatch(amount.strip().lower())
    if match is None or (match[2] and match[2] not in _UNITS):
        return None
    return int(match[1]) * (_UNITS[match[2]] if match[2] else unit)


def _written_memory(amount: str, where: str) -> str:
    """An amount of memory in Kubernetes' notation."""
    found = _java_bytes(amount, _MIB)
    return _quantity(amount, where) if found is None else f"{found // _MIB}Mi" if found % _MIB == 0 else str(found)


def _quantity(amount: Any, where: str) -> str:
    try:
        parse_quantity(amount)
    except ValueError:
        raise JobError(f"{where}: expected an amount, found {shown(amount)}") from None
    return str(amount)
