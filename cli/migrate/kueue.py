"""Kueue: its configuration, its chart's values, its objects. What it decides, Tessera's controller decides by the same
objects.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

from cli.migrate.chartvalues import KUEUE, apply, given
from cli.migrate.inputs import Inputs, Text, system_of
from cli.migrate.parts import Json, Part, Told
from cli.migrate.steps import NAMESPACE, conversion_kept, scaled, services_of, without_objects, without_webhooks
from cli.words import migrating as say
from controller.cluster.config.settings import NAMESPACE_NAME_LABEL
from controller.insight.simulation.documents import Document
from controller.objects.meta import LabelSelector

_USUAL: Final = ("kueue-system", "kueue-controller-manager")
"""Namespace and name of its Deployment by its own instructions, where no file tells them."""
_RELEASE: Final = "kueue"
_OURS: Final = frozenset(
    {"kind", "namespace", "health", "webhook", "internalCertManagement", "pprofBindAddress", "controller",
     "visibilityServer", "multiKueue", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "tls"}
)  # fmt: skip
"""Keys that are about Kueue's own process, or have values of our chart."""
_OLD: Final = "config.kueue.x-k8s.io/v1beta1"
_APISERVICES: Final = tuple(f"apiservice/{each}.visibility.kueue.x-k8s.io" for each in ("v1beta1", "v1beta2"))
_MULTI: Final = ("MultiKueueConfig", "MultiKueueCluster")
_MULTI_CHECK: Final = "kueue.x-k8s.io/multikueue"
_SHOWN: Final = 5


def gates_of(inputs: Inputs) -> dict[str, bool]:
    """The feature gates that Kueue's chart and its Deployment set."""
    by_name: dict[str, bool] = {}
    for document in inputs.chart("kueue"):
        gates = given(document.data, "controllerManager.featureGates")
        for each in gates if isinstance(gates, list) else ():
            if isinstance(each, dict) and each.get("name"):
                by_name[str(each["name"])] = bool(each.get("enabled"))
    for document in _deployments(inputs):
        containers = given(document.data, "spec.template.spec.containers")
        for each in containers if isinstance(containers, list) else ():
            by_name |= _gates_in(each.get("args") if isinstance(each, dict) else None)
    return by_name


def _gates_in(arguments: Any) -> dict[str, bool]:
    gates = {}
    for word in arguments if isinstance(arguments, list) else ():
        flag, _, text = str(word).partition("=")
        for each in text.split(",") if flag == "--feature-gates" else ():
            name, _, value = each.partition("=")
            gates[name.strip()] = value.strip().lower() == "true"
    return gates


def _deployments(inputs: Inputs) -> list[Document]:
    return [each for each in inputs.workloads if each.kind == "Deployment" and system_of(each) == "kueue"]


def kueue(inputs: Inputs) -> Part:
    sets = _deployments(inputs)
    charts = inputs.chart("kueue")
    if not (sets or charts or inputs.kueue_files or inputs.kueue):
        return Part()
    part = Part({"controller": {"enabled": True, "policy": "kueue"}}, queues=True, kueue=True)
    for one, inert in zip(inputs.kueue_files[:1], inputs.kueue_inert, strict=False):
        _configuration(one, inert, part)
    part.loses(Told(each.whose, say.OTHER_CONFIG) for each in inputs.kueue_files[1:])
    for document in charts:
        _chart(document.data, part)
    for name, is_on in gates_of(inputs).items():
        if why := inputs.inert_gates.get(name):
            part.lose(f"feature gate {name}", why)
        else:
            part.take(f"controller.config.featureGates.{name}", is_on)
    _objects(inputs, part)
    _steps(sets, charts, part, is_live=inputs.is_live)
    return part


def _configuration(one: Text, inert: list[tuple[str, str]], part: Part) -> None:
    data: Json = yaml.safe_load(one.text)
    part.loses(Told(f"{one.whose}: {key}", why) for key, why in inert)
    part.loses(Told(f"{one.whose}: {path}", why) for path, why in _set_by_chart(data))
    config = {key: value for key, value in data.items() if key not in _OURS and value is not None}
    if config.get("apiVersion") != _OLD:
        config.pop("apiVersion", None)
    for section, keys in (("metrics", ("bindAddress",)), ("leaderElection", ("leaderElect", "resourceName", "resourceNamespace", "resourceLock"))):  # noqa: E501  # fmt: skip
        if isinstance(config.get(section), dict):
            config[section] = {key: value for key, value in config[section].items() if key not in keys}
            if not config[section]:
                del config[section]
    if config:
        part.take("controller.config", config)
    if data.get("manageJobsWithoutQueueName"):
        part.take("controller.jobs.manageWithoutQueueName", True)
    selector = data.get("managedJobsNamespaceSelector")
    if selector is not None:
        part.take("controller.jobs.namespaceSelector", _without_us(selector))
    if given(data, "internalCertManagement.enable") is False:
        part.lose(f"{one.whose}: internalCertManagement.enable", say.CERTIFICATES)
    if data.get("tls"):
        part.lose(f"{one.whose}: tls", say.TLS)


def _set_by_chart(data: Json) -> Iterator[tuple[str, str]]:
    """Keys that the chart sets for the controller itself, with the reason."""
    for section, why in _PORTS.items():
        keys = data.get(section)
        for key in keys if isinstance(keys, dict) else ():
            if section != "metrics" or key == "bindAddress":
                yield f"{section}.{key}", why


_PORTS: Final = {"webhook": say.WEBHOOK_SERVER, "health": say.PROBES, "metrics": say.METRICS_TLS}


def _without_us(selector: Json) -> Json:
    """The selector, which leaves out kube-system and Tessera's namespace too."""
    read = msgspec.convert(_camel(selector), type=LabelSelector, strict=False)
    missing = [each for each in ("kube-system", NAMESPACE) if read.matches({NAMESPACE_NAME_LABEL: each})]
    if not missing:
        return selector
    more = {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": missing}
    return selector | {"matchExpressions": [*(selector.get("matchExpressions") or []), more]}


def _camel(selector: Json) -> Json:
    return {key: value for key, value in selector.items() if value is not None}


def _chart(values: Json, part: Part) -> None:
    apply(values, KUEUE, "Kueue's chart", part)
    replicas = given(values, "controllerManager.replicas")
    if isinstance(replicas, int) and replicas > 1:
        part.take("controller.replicas", replicas)
    if values.get("enableCertManager"):
        part.lose("Kueue's chart: enableCertManager", say.CERTIFICATES)


def _objects(inputs: Inputs, part: Part) -> None:
    names = defaultdict[str, list[str]](list)
    for document in inputs.kueue:
        name = str(document.data["metadata"].get("name"))
        if document.kind in _MULTI:
            part.lose(f"{document.kind} {name}", say.NO_MULTIKUEUE)
        elif document.kind == "AdmissionCheck" and given(document.data, "spec.controllerName") == _MULTI_CHECK:
            part.lose(f"AdmissionCheck {name}", say.NO_MULTIKUEUE)
        else:
            names[document.kind].append(name)
    part.keeps(Told(several(kind, found), say.SAME_OBJECT) for kind, found in names.items())


def several(kind: str, names: Iterable[str]) -> str:
    """``KIND a, b and 3 more``."""
    every = sorted(set(names))
    shown, rest = every[:_SHOWN], len(every) - _SHOWN
    return f"{kind} {', '.join(shown)}{f' and {rest} more' if rest > 0 else ''}"


def _usual(charts: list[Document]) -> tuple[str, str]:
    """Namespace and name of the Deployment, as Kueue's chart makes the name of its values for a release ``kueue``."""
    for document in charts:
        if whole := given(document.data, "fullnameOverride"):
            return _USUAL[0], f"{whole}-controller-manager"
        if (name := given(document.data, "nameOverride")) and name not in _RELEASE:
            return _USUAL[0], f"{_RELEASE}-{name}-controller-manager"
    return _USUAL


def _steps(sets: list[Document], charts: list[Document], part: Part, *, is_live: bool) -> None:
    """Kueue's webhooks are asked about Deployments, Pods and Jobs of nearly all namespaces, and refuse them while Kueue
    is stopped: they go before it stops, and come back when it is ready. Conversions come back before it is started,
    as it reads its own objects by them.
    """
    places: list[tuple[str, str, int | None]] = [
        (
            str(document.data["metadata"].get("namespace") or "default"),
            str(document.data["metadata"]["name"]),
            replicas_of(document),
        )
        for document in sets
    ]
    places = places or [(*_usual(charts), None)]
    services = "|".join(services_of(space, [name]) for space, name, _ in places)
    part.before(without_webhooks(say.drop_webhooks("Kueue"), services, "before-kueue-webhooks"))
    if sets or not is_live:
        part.lose(say.CREATED_MEANWHILE, say.UNQUEUED)
    for space, name, replicas in places if sets or not is_live else ():
        part.before(scaled(say.stop_controller("Kueue", name), space, name, replicas))
    part.before(conversion_kept(say.CONVERSION, "kueue.x-k8s.io"))
    part.before(without_objects(say.APISERVICES, _APISERVICES, "before-kueue-apiservices"))


def replicas_of(deployment: Document) -> int:
    """The replicas of a Deployment; one where it does not say."""
    replicas = given(deployment.data, "spec.replicas")
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 1
