"""Decodes JSON into objects. Invalid JSON gets one line of error, with the path of the field.

``null`` means absent, as it does for the API server: nulls are dropped before the typed decoding.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from controller.objects.core import LimitRange, Namespace, Node, Pod, PriorityClass, RuntimeClass
from controller.objects.deviceclaims import CLAIM_TYPES, RESOURCE
from controller.objects.meta import KubernetesObject
from controller.objects.quantity import Quantity, parse_quantity
from controller.objects.queues import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    WorkloadPriorityClass,
)
from controller.objects.workload import Workload
from inventory.api.gpunode import KIND, UNSEEN, GpuNodeStatus, repeated

KUEUE: Final = "kueue.x-k8s.io/v1beta2"

KINDS: Final[dict[tuple[str, str], type[KubernetesObject]]] = {
    **{
        (KUEUE, type_.__name__): type_
        for type_ in (
            AdmissionCheck,
            ClusterQueue,
            Cohort,
            LocalQueue,
            ResourceFlavor,
            Topology,
            Workload,
            WorkloadPriorityClass,
        )
    },
    **{("v1", type_.__name__): type_ for type_ in (LimitRange, Namespace, Node, Pod)},
    ("scheduling.k8s.io/v1", "PriorityClass"): PriorityClass,
    ("node.k8s.io/v1", "RuntimeClass"): RuntimeClass,
    **{(RESOURCE, type_.__name__): type_ for type_ in CLAIM_TYPES},
}

# Deeper JSON than this is no Kubernetes object; the bound keeps hostile input from exhausting the stack.
_MAX_DEPTH: Final = 100


class DecodeError(ValueError):
    """The object cannot be read: one line that names the kind, the object, the field and what was expected there."""


class UnknownKindError(DecodeError):
    """The kind is not one that the controller reads. Readers of manifests of all kinds may skip it."""


T = TypeVar("T")


def decode_object(
    given: bytes | str | dict[str, Any], kinds: Mapping[tuple[str, str], type[KubernetesObject]] = KINDS
) -> KubernetesObject:
    """The object of the kind that it names. Raises DecodeError; UnknownKindError for one that is not in ``kinds``."""
    data = _json(given, "object")
    version, kind = data.get("apiVersion"), data.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        raise DecodeError("object: apiVersion and kind must be strings")
    type_ = kinds.get((version, kind))
    if type_ is None:
        raise UnknownKindError(f"{kind[:63]!r} of {version[:63]!r} is no kind that is read here")
    return _convert(data, type_)


def decode(given: bytes | str | dict[str, Any], type_: type[T]) -> T:
    """An object, or a part of one such as a PodTemplateSpec, of a kind known beforehand. Raises DecodeError."""
    return _convert(_json(given, type_.__name__), type_)


def _json(given: bytes | str | dict[str, Any], what: str) -> dict[str, Any]:
    data: Any = given
    if not isinstance(given, dict):
        try:
            data = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise DecodeError(f"{what}: no JSON: {_one_line(error)}") from None
    if not isinstance(data, dict):
        raise DecodeError(f"{what}: expected a JSON object, found {type(data).__name__}")
    return cast("dict[str, Any]", _without_nulls(data, _MAX_DEPTH, what))


def _without_nulls(value: Any, depth: int, what: str) -> Any:
    if isinstance(value, dict):
        if depth == 0:
            raise DecodeError(f"{what}: nested deeper than {_MAX_DEPTH} levels")
        return {key: _without_nulls(item, depth - 1, what) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        if depth == 0:
            raise DecodeError(f"{what}: nested deeper than {_MAX_DEPTH} levels")
        return [_without_nulls(item, depth - 1, what) for item in value]
    return value


def _convert(data: dict[str, Any], type_: type[T]) -> T:
    try:
        return msgspec.convert(data, type_, dec_hook=read_custom)
    except (msgspec.ValidationError, OverflowError) as error:
        raise DecodeError(f"{_named(data, type_)}: {_one_line(error)}") from None


def read_custom(type_: type, value: Any) -> Any:
    """The ``dec_hook`` of every decoder of API objects, for types that msgspec does not know."""
    if type_ is Quantity:
        return parse_quantity(value)
    raise NotImplementedError(f"no reader for {type_.__name__}")


def _named(data: dict[str, Any], type_: type) -> str:
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{type_.__name__} {name[:63]!r}" if isinstance(name, str) and name else type_.__name__


def _one_line(error: Exception) -> str:
    """The library's error in one line. The library writes ``message - at `$.path` ``; a path reads better without its
    root.
    """
    return " ".join(str(error).split()).replace("`$.", "`")[:300]


class GpuNode(KubernetesObject, frozen=True, kw_only=True):
    """A GpuNode, named as its node. The status is ``inventory.api.gpunode``'s, ``tessera.dev/v1alpha1``.

    The agent alone writes it, and its content is hostile until it is checked: every text and list is bounded, as in the
    CRD, and two devices of one identifier are refused.
    """

    status: GpuNodeStatus = UNSEEN

    def __post_init__(self) -> None:
        problem = repeated(self.status)
        if problem is not None:
            raise ValueError(problem)


def read_gpu_node(given: bytes | str | dict[str, Any]) -> GpuNode:
    """The decoded GpuNode. Raises DecodeError: one line with the field, what was found and what is expected."""
    found = decode(given, GpuNode)
    if not found.metadata.name:
        raise DecodeError(f"{KIND}: metadata.name: expected a node's name, found none")
    return found
