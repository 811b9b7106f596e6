"""What the controller's and the agent's accounts did at the API server, by its audit log, beside what they may do."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.e2e.charttext import rendered
from tests.support.e2e.queuelab import NAMESPACE

Json = dict[str, Any]

ACCOUNTS: Final = ("t-tessera-controller", "t-tessera-agent")
TEMPLATES: Final = (
    "rbac",
    "controller-rbac",
    "controller-rbac-kinds",
    "controller-rbac-foreign",
    "webhook",
    "visibility",
)
_KUBERNETES: Final[list[Json]] = [
    {
        "kind": "ClusterRole",
        "metadata": {"name": "system:auth-delegator"},
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        ],
    },
    {
        "kind": "Role",
        "metadata": {"name": "extension-apiserver-authentication-reader", "namespace": "kube-system"},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": ["extension-apiserver-authentication"],
                "verbs": ["get", "list", "watch"],
            }
        ],
    },
]
"""Roles that the chart binds and every API server makes."""
_USER: Final = f"system:serviceaccount:{NAMESPACE}:"
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [_USER + account for account in ACCOUNTS]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True, order=True)
class Right:
    """``group`` is empty for the core group; ``resource`` has the subresource behind a slash."""

    account: str
    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource}.{self.group}".rstrip(".")


@dataclass(frozen=True)
class Use:
    right: Right
    namespace: str
    name: str


@dataclass(frozen=True)
class Grant:
    """``names``: those alone; none for all. ``namespace``: there alone; empty for everywhere."""

    right: Right
    namespace: str
    names: frozenset[str]

    def covers(self, use: Use) -> bool:
        here = self.namespace in ("", use.namespace)
        return self.right == use.right and here and (not self.names or use.name in self.names)


@dataclass(frozen=True)
class Logs:
    """``folder``: what API servers that start with ``TESSERA_CLUSTER_AUDIT`` naming it write there."""

    folder: Path
    of_all_tests: bool

    def prepare(self) -> None:
        """Their audit policy. Another process may do the same, and an API server of its read it."""
        policy = self.folder / "policy.yaml"
        mine = policy.with_name(f"policy-{os.getpid()}")
        mine.write_text(yaml.safe_dump(_POLICY))
        mine.replace(policy)

    def used(self) -> set[Use]:
        """By all logs there. The last line of an API server that was killed may be cut off."""
        return {use for path in sorted(self.folder.glob("*.log")) for use in read(path.read_text().splitlines())}


def read(lines: Iterable[str]) -> Iterator[Use]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        user, what = event["user"]["username"], event.get("objectRef")
        # Discovery is every account's.
        if user.startswith(_USER) and what is not None:
            resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
            right = Right(user.removeprefix(_USER), event["verb"], what.get("apiGroup", ""), resource)
            yield Use(right, what.get("namespace", ""), what.get("name", ""))


def granted() -> list[Grant]:
    """By the chart as it is without a value of a site's, and by its roles for Volcano's Jobs and claims where on."""
    printed = (
        rendered(*TEMPLATES, values=("dra.enabled=true",)),
        rendered("controller-rbac-volcano", values=("controller.volcano.enabled=true",)),
    )
    objects = [one for text in printed for one in yaml.safe_load_all(text) if one]
    return list(grants(objects))


def grants(objects: list[Json]) -> Iterator[Grant]:
    """Of roles by their bindings; an aggregated one has the rules of those that its labels select."""
    named = [*_KUBERNETES, *objects]
    roles = {(one["kind"], one["metadata"]["name"]): one for one in named if one["kind"].endswith("Role")}
    for binding in objects:
        if not binding["kind"].endswith("Binding") or "subjects" not in binding:
            continue
        role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for subject in binding["subjects"]:
            for rule in _rules(role, list(roles.values())):
                yield from _of_rule(subject["name"], rule, binding["metadata"].get("namespace", ""))


def _rules(role: Json, roles: list[Json]) -> Iterator[Json]:
    yield from role.get("rules") or ()
    for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", ()):
        wanted = selector["matchLabels"].items()
        for each in roles:
            if wanted <= each["metadata"].get("labels", {}).items():
                yield from each["rules"]


def _of_rule(account: str, rule: Json, namespace: str) -> Iterator[Grant]:
    names = frozenset(rule.get("resourceNames", ()))
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Grant(Right(account, verb, group, resource), namespace, names)
