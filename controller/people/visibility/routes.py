"""The object that a request asks for, and the right that it takes. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from inventory.api.names import VIEW_GROUP, VIEW_VERSION

KUEUE_GROUP: Final = "visibility.kueue.x-k8s.io"
KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")
"""Versions of Kueue's visibility API, the preferred one first."""
EXTERNAL_GROUP: Final = "external.metrics.k8s.io"
EXTERNAL_VERSION: Final = "v1beta1"
ADMISSIBLE: Final = "tessera_local_queue_admissible_units"
USABLE: Final = "tessera_local_queue_usable_units"
SERIES: Final = (ADMISSIBLE, USABLE)
MAX_LIMIT: Final = 100_000
MAX_ITEMS: Final = 10_000
"""The most items of one answer, whatever ``limit`` asks for: further items are reached by ``offset``."""
PAGE: Final = 1_000
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_DIGITS: Final = 9
_FORECASTS: Final = re.compile(rf"/apis/{VIEW_GROUP}/{VIEW_VERSION}/namespaces/({_NAME.pattern})/forecasts")


class What(Enum):
    """Kinds of questions."""

    DOCUMENT = auto()
    """Discovery and OpenAPI: the same for everybody, by every replica."""
    QUEUES = auto()
    QUEUE = auto()
    PENDING = auto()
    """The pending workloads of a ClusterQueue, with reasons."""
    WORKLOAD = auto()
    LOCAL_QUEUE = auto()
    """Units of a LocalQueue that would be admitted now, and when the next would be."""
    EXTERNAL = auto()
    """The values of a series of units, as a HorizontalPodAutoscaler asks for them."""
    FORECAST = auto()
    """The forecast of a manifest that is sent."""
    CLUSTER_QUEUE_SUMMARY = auto()
    LOCAL_QUEUE_SUMMARY = auto()


class _Spec(msgspec.Struct):
    manifest: dict[str, Any]


class _Sent(msgspec.Struct):
    spec: _Spec


class BadRequestError(ValueError):
    """The query cannot be answered: one sentence."""


@dataclass(frozen=True)
class Attributes:
    """The attributes of a SubjectAccessReview: of a resource, or of a ``path`` that is no resource."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} path {self.path}"
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}.{self.group}{where}"


FLEET: Final = Attributes("list", VIEW_GROUP, VIEW_VERSION, "fleetviews")
"""The right to see the fleet. It is a right of its own: GpuNodes themselves show who holds what, in all namespaces."""
QUEUES: Final = Attributes("list", VIEW_GROUP, VIEW_VERSION, "queueviews")


def node_right(name: str) -> Attributes:
    """The right to see one node of the fleet."""
    return Attributes("get", VIEW_GROUP, VIEW_VERSION, "fleetviews", name=name)


@dataclass(frozen=True)
class Page:
    offset: int = 0
    limit: int = PAGE


@dataclass(frozen=True)
class Asked:
    """A question. ``path``: of a document. ``version``: of the API group in the request. ``labels``: those that a
    series must have.
    """

    what: What
    right: Attributes
    path: str = ""
    page: Page = field(default_factory=Page)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.right.namespace

    @property
    def name(self) -> str:
        return self.right.name

    @property
    def version(self) -> str:
        return self.right.version


def workloads_of(namespace: str) -> Attributes:
    """The right to know the workloads of a namespace by name; of all namespaces if it is empty."""
    return Attributes("list", "kueue.x-k8s.io", "v1beta2", "workloads", namespace=namespace)


def forecasts_in(namespace: str) -> Attributes:
    """The right to get forecasts of manifests in a namespace."""
    return Attributes("create", VIEW_GROUP, VIEW_VERSION, "forecasts", namespace=namespace)


_CLUSTER: Final[Mapping[tuple[str, str], What]] = {
    (VIEW_GROUP, "queueviews/pending"): What.PENDING,
    (KUEUE_GROUP, "clusterqueues/pendingworkloads"): What.CLUSTER_QUEUE_SUMMARY,
}
_NAMESPACED: Final[Mapping[tuple[str, str], What]] = {
    (VIEW_GROUP, "workloadviews"): What.WORKLOAD,
    (VIEW_GROUP, "localqueueviews"): What.LOCAL_QUEUE,
    (KUEUE_GROUP, "localqueues/pendingworkloads"): What.LOCAL_QUEUE_SUMMARY,
}


def parsed(raw_path: str, query: Mapping[str, str], documents: frozenset[str]) -> Asked | None:
    """The question of a GET request; None for a path that is not served. Raises BadRequestError."""
    if raw_path in documents:
        return Asked(What.DOCUMENT, Attributes("get", path=raw_path), path=raw_path)
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if len(parts) < 4 or parts[0] != "apis" or (parts[1], parts[2]) not in _served():  # noqa: PLR2004 - apis/g/v/plural
        return None
    _, group, version, *rest = parts
    if group == EXTERNAL_GROUP:
        return _series(rest, query)
    namespace = ""
    if rest[0] == "namespaces":
        if len(rest) < 4 or not _is_name(rest[1]):  # noqa: PLR2004 - namespaces/NS/plural/NAME
            return None
        namespace, rest = rest[1], rest[2:]
    resource, name, *below = [*rest, ""] if len(rest) == 1 else rest
    if len(below) > 1 or (name and not _is_name(name)) or (namespace and not name):
        return None
    subresource = below[0] if below else ""
    what = _what(group, namespace, resource, name, subresource)
    if what is None:
        return None
    verb = "list" if what is What.QUEUES else "get"
    right = Attributes(verb, group, version, resource, subresource, namespace, name)
    return Asked(what, right, page=_page(query))


def _series(rest: list[str], query: Mapping[str, str]) -> Asked | None:
    """The question for ``namespaces/NAMESPACE/SERIES``."""
    match rest:
        case ["namespaces", namespace, series] if _is_name(namespace) and series in SERIES:
            right = Attributes("list", EXTERNAL_GROUP, EXTERNAL_VERSION, series, namespace=namespace)
            return Asked(What.EXTERNAL, right, labels=_labels(query.get("labelSelector", "")))
    return None


def _labels(selector: str) -> dict[str, str]:
    """The labels of a selector of equalities. Raises BadRequestError."""
    labels: dict[str, str] = {}
    for part in filter(None, selector.split(",")):
        name, equal, value = part.partition("=")
        if not equal or name.endswith("!") or not name.strip():
            raise BadRequestError(f"labelSelector: found {part[:63]!r}, expected label=value")
        labels[name.strip()] = value.removeprefix("=").strip()
    return labels


def created(raw_path: str) -> Asked | None:
    """The question of a POST request to this path; None for a path that takes none."""
    found = _FORECASTS.fullmatch(raw_path)
    if found is None:
        return None
    return Asked(What.FORECAST, forecasts_in(found[1]))


def manifest_of(body: bytes) -> dict[str, Any]:
    """``spec.manifest`` of a Forecast. Raises BadRequestError."""
    try:
        sent = msgspec.json.decode(body, type=_Sent)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as wrong:
        raise BadRequestError(str(wrong)[:200]) from None
    return sent.spec.manifest


def _served() -> frozenset[tuple[str, str]]:
    ours = ((VIEW_GROUP, VIEW_VERSION), (EXTERNAL_GROUP, EXTERNAL_VERSION))
    return frozenset({*ours, *((KUEUE_GROUP, version) for version in KUEUE_VERSIONS)})


def _what(group: str, namespace: str, resource: str, name: str, subresource: str) -> What | None:
    kind = "/".join(filter(None, (resource, subresource)))
    if namespace:
        return _NAMESPACED.get((group, kind))
    if (group, kind) == (VIEW_GROUP, "queueviews"):
        return What.QUEUE if name else What.QUEUES
    return _CLUSTER.get((group, kind)) if name else None


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _page(query: Mapping[str, str]) -> Page:
    offset, limit = (_number(query, key, default) for key, default in (("offset", 0), ("limit", PAGE)))
    if limit > MAX_LIMIT:
        raise BadRequestError(f"limit: found {limit}, expected at most {MAX_LIMIT}")
    return Page(offset, min(limit, MAX_ITEMS))


def _number(query: Mapping[str, str], key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise BadRequestError(f"{key}: found {text[:40]!r}, expected a whole number from 0")
    return int(text)
