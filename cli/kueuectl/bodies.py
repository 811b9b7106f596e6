"""The objects that ``tessera create`` sends, from the words of its options. Pure; each ValueError is one sentence."""

import re
from collections.abc import Iterable
from typing import Any, Final

from cli.printing.console import Json
from cli.words import given as inputs
from cli.words import queues as say
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from controller.objects.quantity import parse_quantity
from kube.resources import Resource

QUOTA_FIELDS: Final = {"nominal": "nominalQuota", "borrowing": "borrowingLimit", "lending": "lendingLimit"}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NAMED: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_FOR_QUOTA: Final = "FLAVOR:RESOURCE=AMOUNT;RESOURCE=AMOUNT"

Quotas = dict[str, dict[str, str]]
"""The amounts by flavor and by resource."""


def quotas(given: Iterable[str]) -> Quotas:
    """The quotas in words such as ``alpha:cpu=9;memory=36Gi``, several of them in one word behind commas."""
    by_flavor: Quotas = {}
    for word in (word for words in given for word in words.split(",")):
        flavor, colon, rest = word.partition(":")
        if not colon or _NAMED.fullmatch(flavor) is None or not rest:
            raise ValueError(inputs.bad_value(word, _FOR_QUOTA))
        for part in rest.split(";"):
            resource, equals, amount = part.partition("=")
            if not (resource and equals and amount):
                raise ValueError(say.bad_amount(part, flavor))
            if resource in by_flavor.setdefault(flavor, {}):
                raise ValueError(say.twice(resource, flavor))
            try:
                nanos = parse_quantity(amount).nanos
            except ValueError:
                nanos = -1
            if nanos < 0:
                raise ValueError(say.no_quantity(amount, resource, flavor))
            by_flavor[flavor][resource] = amount
    return by_flavor


def groups(nominal: Quotas, borrowing: Quotas, lending: Quotas) -> list[Json]:
    """The resource groups: flavors that cover the same resources stand in one, in the order in which they came."""
    for limits, option in ((borrowing, "--borrowing-limit"), (lending, "--lending-limit")):
        for flavor, amounts in limits.items():
            for resource in amounts:
                if resource not in nominal.get(flavor, {}):
                    raise ValueError(say.limit_alone(option, resource, flavor))
    made: dict[frozenset[str], Json] = {}
    for flavor, amounts in nominal.items():
        covered = frozenset(amounts)
        wrong = next((other for other in made if other != covered and other & covered), None)
        if wrong is not None:
            raise ValueError(say.other_resources(", ".join(sorted(wrong & covered)), flavor))
        group = made.setdefault(covered, {"coveredResources": list(amounts), "flavors": []})
        resources = []
        for resource in group["coveredResources"]:
            entry = {"name": resource}
            for key, limits in (("nominal", nominal), ("borrowing", borrowing), ("lending", lending)):
                if resource in limits.get(flavor, {}):
                    entry[QUOTA_FIELDS[key]] = limits[flavor][resource]
            resources.append(entry)
        group["flavors"].append({"name": flavor, "resources": resources})
    return list(made.values())


def cluster_queue(name: str, spec: Json, selector: dict[str, str] | None) -> Json:
    """The ClusterQueue. ``selector`` None: workloads of all namespaces may be in it."""
    chosen: Json = {"matchLabels": selector} if selector else {}
    return _object(CLUSTER_QUEUES, name, {"namespaceSelector": chosen, **spec})


def local_queue(name: str, namespace: str, queue: str) -> Json:
    made = _object(LOCAL_QUEUES, name, {"clusterQueue": queue})
    made["metadata"]["namespace"] = namespace
    return made


def flavor(name: str, labels: dict[str, str], taints: list[Json], tolerations: list[Json]) -> Json:
    spec: Json = {"nodeLabels": labels, "nodeTaints": taints, "tolerations": tolerations}
    return _object(FLAVORS, name, {key: value for key, value in spec.items() if value})


def _object(resource: Resource, name: str, spec: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def pairs(given: Iterable[str]) -> dict[str, str]:
    """The pairs in words such as ``KEY=VALUE``, several behind commas."""
    by_key: dict[str, str] = {}
    for word in (word for words in given for word in words.split(",")):
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise ValueError(say.bad_pair(word))
        by_key[key] = value
    return by_key


def taints(given: Iterable[str]) -> list[Json]:
    """The taints in words such as ``KEY=VALUE:EFFECT`` or ``KEY:EFFECT``, several behind commas."""
    parsed = []
    for word in (word for words in given for word in words.split(",")):
        pair, colon, effect = word.rpartition(":")
        key, equals, value = pair.partition("=")
        if not (colon and key) or effect not in _EFFECTS:
            raise ValueError(say.bad_taint(word, ", ".join(_EFFECTS)))
        parsed.append({"key": key, **({"value": value} if equals else {}), "effect": effect})
    return parsed


def tolerations(given: Iterable[str]) -> list[Json]:
    """The tolerations, written like ``taints``; the effect may be missing, which tolerates all of them."""
    parsed = []
    for word in (word for words in given for word in words.split(",")):
        pair, colon, effect = word.rpartition(":")
        pair = pair if colon else word
        key, equals, value = pair.partition("=")
        if not key or (colon and effect not in _EFFECTS):
            raise ValueError(say.bad_taint(word, ", ".join(_EFFECTS)))
        made: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
        parsed.append(made | ({"value": value} if equals else {}) | ({"effect": effect} if colon else {}))
    return parsed
