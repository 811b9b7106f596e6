"""The address that the API server calls and the authority it trusts: patches for CRDs and webhook configurations; and
whether the older version of Workload is served.

The decisions are pure functions of what was read; ``inject`` reads and writes.
"""

import logging
from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from controller.objects.conversion import GROUP
from failpoints import points
from failpoints.names import Failpoint
from inventory.api.names import CONTROLLER
from kube.client import Client
from kube.errors import NotFoundError
from kube.resources import Resource

log = logging.getLogger(__name__)

Json = dict[str, Any]

CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
MUTATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
VALIDATING: Final = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)

Named = tuple[Resource, str]
"""A kind of configuration, and its name."""

CONVERTED: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Plurals whose versions differ by more than dropped fields."""
PLAIN: Final = (
    "admissionchecks",
    "multikueueconfigs",
    "provisioningrequestconfigs",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
)
"""Plurals that the API server converts itself (strategy None), without a webhook."""

_OLD: Final = "v1beta1"
_WORKLOADS: Final = "workloads"

_INJECTORS: Final = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
"""Annotations by which cert-manager would overwrite our caBundle."""


class ForeignConversionError(Exception):
    """Another system converts this kind, and its conversion may not be replaced: one sentence."""


class StoredError(Exception):
    """Objects are stored in the older version, so that it stays served: one sentence."""


@dataclass(frozen=True)
class Injected:
    """The result of ``inject``. ``refused``: sentences about kinds that are left as they are. ``postponed``: what the
    leading replica writes still differs.
    """

    refused: list[str]
    postponed: bool = False


@dataclass(frozen=True)
class ServiceTarget:
    """The Service in front of the replicas."""

    namespace: str
    name: str
    port: int = 443

    def client_config(self, path: str) -> Json:
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}}


@dataclass(frozen=True)
class UrlTarget:
    """An address outside of the cluster, ``https://host:port``: for a controller that runs beside it."""

    base: str

    def client_config(self, path: str) -> Json:
        return {"url": self.base + path}


Target = ServiceTarget | UrlTarget

PLACEHOLDER: Final = ServiceTarget("tessera-system", "tessera-controller-webhook")
"""The address in the chart's CRDs before a controller has written its own: Helm does not template CRDs. It is the
address of the release on the pages, so that applying the CRDs again leaves that release's conversion unchanged."""
_OLDER_PLACEHOLDER: Final = ServiceTarget("tessera-system", "tessera-webhook")
"""The address in the CRDs of version 0.1."""


def crd_patch(crd: Json, target: Target, trusted: bytes, *, take_over: bool) -> Json | None:
    """The merge patch (RFC 7386) for ``spec.conversion``, bound to the version that was read; None for no change.

    Raises ForeignConversionError if another system converts the kind and ``take_over`` is false.
    """
    name = crd["metadata"]["name"]
    conversion = crd["spec"].get("conversion") or {"strategy": "None"}
    other = _other(conversion, target)
    if other is not None and not take_over:
        raise ForeignConversionError(
            f"CustomResourceDefinition {name}: spec.conversion names {other}: while that system is at work its"
            " conversion stays; uninstall it, and it is taken over"
        )
    annotations = {key: None for key in _INJECTORS if key in crd["metadata"].get("annotations", {})}
    changed = _conversion_patch(conversion, name, target, trusted)
    if changed is None and not annotations:
        return None
    metadata: Json = {"resourceVersion": crd["metadata"]["resourceVersion"]}
    if annotations:
        metadata["annotations"] = annotations
    patch: Json = {"metadata": metadata}
    if changed is not None:
        patch["spec"] = {"conversion": changed}
    return patch


def _conversion_patch(found: Json, name: str, target: Target, trusted: bytes) -> Json | None:
    if name.partition(".")[0] not in CONVERTED:
        return None if found["strategy"] == "None" else {"strategy": "None", "webhook": None}
    wanted = target.client_config("/convert") | {"caBundle": b64encode(trusted).decode()}
    current = (found.get("webhook") or {}).get("clientConfig") or {}
    if found["strategy"] == "Webhook" and current == wanted:
        return None
    # A merge patch keeps fields that it does not name: the other form of address is removed.
    absent = {key: None for key in ("service", "url") if key not in wanted}
    return {"strategy": "Webhook", "webhook": {"clientConfig": wanted | absent, "conversionReviewVersions": ["v1"]}}


def _other(conversion: Json, target: Target) -> str | None:
    """The service that converts now, if it is neither this controller's nor the chart's placeholder."""
    if conversion["strategy"] != "Webhook":
        return None
    config = (conversion.get("webhook") or {}).get("clientConfig") or {}
    for ours in (target, PLACEHOLDER, _OLDER_PLACEHOLDER):
        known = ours.client_config("/convert")
        if all(config.get(key) == value for key, value in known.items()):
            return None
    service = config.get("service")
    return f"the Service {service['namespace']}/{service['name']}" if service else f"the address {config.get('url')}"


def served_patch(crd: Json, *, served: bool) -> list[Json] | None:
    """The JSON patch (RFC 6902) after which v1beta1 is served, or not; None for no change.

    The versions are one list, which a merge patch would replace as a whole: a JSON patch changes a single word, and is
    refused if another version stands in that place by then. Conversion stays: it reads objects that were stored in
    v1beta1. Raises StoredError if objects still are.
    """
    for number, version in enumerate(crd["spec"].get("versions") or ()):
        if version["name"] != _OLD or version["served"] == served:
            continue
        if version["storage"]:
            raise StoredError(
                f"CustomResourceDefinition {crd['metadata']['name']}: {_OLD} is the version that objects are stored in:"
                " it stays served; apply the chart's CRDs"
            )
        place = f"/spec/versions/{number}"
        return [
            {"op": "test", "path": f"{place}/name", "value": _OLD},
            {"op": "replace", "path": f"{place}/served", "value": served},
        ]
    return None


def webhook_patch(configuration: Json, target: Target, trusted: bytes) -> Json | None:
    """The merge patch that gives this controller's webhooks their caBundle (and a URL target its address); None for no
    change.
    """
    bundle = b64encode(trusted).decode()
    hooks = []
    for hook in configuration.get("webhooks") or ():
        current = hook["clientConfig"]
        path = (current.get("service") or {}).get("path") or urlsplit(current.get("url") or "").path
        config = (target.client_config(path) if isinstance(target, UrlTarget) else current) | {"caBundle": bundle}
        hooks.append({**hook, "clientConfig": config if "url" not in config else _without_service(config)})
    if hooks == (configuration.get("webhooks") or []):
        return None
    return {"metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]}, "webhooks": hooks}


def _without_service(config: Json) -> Json:
    return {key: value for key, value in config.items() if key != "service"}


async def inject(
    client: Client,
    target: Target,
    trusted: bytes,
    *,
    leading: bool,
    configurations: tuple[Named, ...] = (),
    serve_old_workloads: bool = True,
) -> Injected:
    """Writes what differs. Kinds that are not installed are skipped.

    ``leading``: whether Kueue's CRDs may be taken over, and ``serve_old_workloads`` is written: of replicas with
    different configurations, as during a rollout, one decides. Raises KubeError; ConflictError if another client wrote
    at the same time: call again.
    """
    refused: list[str] = []
    postponed = False
    for plural in (*CONVERTED, *PLAIN):
        name = f"{plural}.{GROUP}"
        try:
            crd = await client.get(CRDS, name, dict)
        except NotFoundError:
            continue
        try:
            patch = crd_patch(crd, target, trusted, take_over=leading)
        except ForeignConversionError as error:
            refused.append(str(error))
            continue
        serving = None
        try:
            serving = served_patch(crd, served=serve_old_workloads) if plural == _WORKLOADS else None
        except StoredError as error:  # its conversion is written all the same
            refused.append(str(error))
        if patch is not None:
            points.before(Failpoint.CRD_CONVERSION)
            await client.merge_patch(CRDS, name, patch, dict)
            points.after(Failpoint.CRD_CONVERSION)
            log.info("wrote spec.conversion of %s", name)
        if serving is not None and leading:
            points.before(Failpoint.CRD_SERVED)
            await client.json_patch(CRDS, name, serving, dict, field_manager=CONTROLLER)
            points.after(Failpoint.CRD_SERVED)
            log.info("%s of %s is %s", _OLD, name, "served" if serve_old_workloads else "not served any more")
        postponed |= serving is not None and not leading
    for resource, name in configurations:
        try:
            found = await client.get(resource, name, dict)
        except NotFoundError:
            continue
        patch = webhook_patch(found, target, trusted)
        if patch is not None:
            points.before(Failpoint.WEBHOOK_BUNDLE)
            await client.merge_patch(resource, name, patch, dict)
            points.after(Failpoint.WEBHOOK_BUNDLE)
            log.info("wrote the caBundle of %s", name)
    return Injected(refused, postponed)
