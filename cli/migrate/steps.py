"""The steps of a migration: commands that can be run as they are printed, each with the one that takes it back."""

import json
import shlex
from typing import Any, Final

from msgspec import Struct

from cli.migrate.fates import PARTS
from cli.words import migrating as say

NAMESPACE: Final = "tessera-system"
"""Where the ``tessera`` command looks for the release (docs/install.md)."""
CHART: Final = "charts/tessera"
_CRDS: Final = ("gpunodes.tessera.dev", "gpulayouts.tessera.dev", "jobkinds.tessera.dev")


class Step(Struct, frozen=True):
    """``command`` and ``undo`` are for a shell in a checkout of Tessera, with kubectl and Helm."""

    do: str
    command: str
    undo: str


class Target(Struct, frozen=True):
    """An operator that is migrated. ``namespace``: its own. ``nodes``: these alone; empty: all.

    ``parts``: the field ``enabled`` of each part, None where the document does not have it, which is on.
    ``config``: the device plugin's ConfigMap.
    """

    policy: str
    namespace: str
    nodes: tuple[str, ...]
    parts: dict[str, bool | None]
    config: str = ""


def steps(target: Target, values: dict[str, Any]) -> list[Step]:
    """All steps in their order.

    Two device plugins never own a resource of a node together: the operator's goes first. On single nodes the agents
    wait instead, for the label by which the operator's plugin leaves.
    """
    every = [_namespace()]
    if target.config and target.namespace != NAMESPACE:
        every.append(_copied(target))
    every.append(_crds())
    install = _installed(values, there=bool(target.nodes))
    if target.nodes:
        return [*every, install, *(step for node in target.nodes for step in _node(target, node))]
    on = [part for part in PARTS if target.parts[part] is not False]
    first = [_off(target, part) for part in on if part == "devicePlugin"]
    return [*every, *first, install, *(_off(target, part) for part in on if part != "devicePlugin")]


def _namespace() -> Step:
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }
    return Step(
        say.MAKE_NAMESPACE,
        f"printf %s {shlex.quote(json.dumps(manifest))} | kubectl create -f -",
        f"kubectl delete namespace {NAMESPACE}",
    )


def _copied(target: Target) -> Step:
    name = shlex.quote(f"configmap/{target.config}")
    metadata = {"name": target.config, "namespace": NAMESPACE}
    patch = shlex.quote(json.dumps([{"op": "replace", "path": "/metadata", "value": metadata}]))
    return Step(
        say.copy_config(target.config, NAMESPACE),
        f"kubectl get {name} --namespace={shlex.quote(target.namespace)} -o json"
        f" | kubectl patch --local -f - --type=json -p {patch} -o json | kubectl create -f -",
        f"kubectl delete {name} --namespace={NAMESPACE}",
    )


def _crds() -> Step:
    files = " ".join(f"-f {CHART}/crds/{name}.yaml" for name in _CRDS)
    return Step(say.CRDS, f"kubectl apply --server-side {files}", f"kubectl delete {files}")


def _installed(values: dict[str, Any], *, there: bool) -> Step:

    text = shlex.quote(json.dumps(values))
    return Step(
        say.INSTALL_THERE if there else say.INSTALL,
        f"printf %s {text} | helm install tessera {CHART} --namespace {NAMESPACE} --skip-crds -f -",
        f"helm uninstall tessera --namespace {NAMESPACE} --wait",
    )


def _off(target: Target, part: str) -> Step:
    def patched(value: bool | None) -> str:
        patch = shlex.quote(json.dumps({"spec": {part: {"enabled": value}}}))
        name = shlex.quote(f"clusterpolicies.nvidia.com/{target.policy}")
        return f"kubectl patch {name} --type merge -p {patch}"

    return Step(say.switch_off(PARTS[part][0]), patched(False), patched(target.parts[part]))


def _node(target: Target, node: str) -> list[Step]:
    found = []
    for part, (name, label) in PARTS.items():
        if target.parts[part] is not False:
            command = f"kubectl label {shlex.quote(f'node/{node}')} --overwrite nvidia.com/gpu.deploy.{label}"
            found.append(Step(say.leave_node(name, node), f"{command}=false", f"{command}=true"))
    return found
