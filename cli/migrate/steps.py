"""The steps of a migration: commands that can be run as they are printed, each with the one that takes it back.

What is taken away is kept in the cluster until then: replicas and conversions in annotations of their objects, deleted
objects in a ConfigMap of Tessera's namespace.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable
from typing import Any, Final

from cli.migrate.parts import Step
from cli.words import migrating as say
from inventory.api.names import CONVERSION_BEFORE, MADE_BY, REPLACED, REPLICAS_BEFORE

NAMESPACE: Final = "tessera-system"
"""Where the ``tessera`` command looks for the release (docs/install.md)."""
RELEASE: Final = "tessera"
CHART: Final = "charts/tessera"
_CRDS: Final = ("gpunodes.tessera.dev", "gpulayouts.tessera.dev", "jobkinds.tessera.dev")
_IN: Final = f"--namespace={NAMESPACE}"
_AGENTS: Final = "app.kubernetes.io/component=agent"
"""The label of the agents' pods."""
_LEAVING: Final = "moving"
"""The value of an operator's label while a node's old server of GPUs ends and the new one is not to come yet."""
_ENDS: Final = "10m"
"""The longest wait for pods that end or become ready: the command fails then, and can be run again."""
_DELETE: Final = f"kubectl delete --timeout={_ENDS}"
"""Ends with an error where an object is never finalized, which kubectl would wait for without an end."""
_APPLY: Final = "kubectl apply --server-side -f -"
"""Can be run again. An object that somebody else made with other values is a conflict and stays as it is."""
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_PRIVILEGED: Final = "privileged"
_MIGRATION: Final = "migration"
_WEBHOOKS: Final = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
_LEADS_TO: Final = (
    '{{range .items}}{{$name := printf "%s/%s" .kind .metadata.name}}{{range .webhooks}}{{with .clientConfig.service}}'
    '{{$name}} {{.namespace}}/{{.name}}{{"\\n"}}{{end}}{{end}}{{end}}'
)
"""A line ``KIND/NAME NAMESPACE/SERVICE`` for each webhook that leads to a Service."""


def namespace(labels: dict[str, str] | None) -> list[Step]:
    """The steps that make the namespace. ``labels``: of the one that is there; None: it is not, or nothing tells.

    The way back deletes what the step made, by its mark, and no namespace that was there before.
    """
    if labels is not None:
        before = labels.get(_ENFORCE)
        if before == _PRIVILEGED:
            return []
        command = f"kubectl label namespace/{NAMESPACE} --overwrite"
        label = f"{command} {_ENFORCE}={_PRIVILEGED}"
        return [Step(say.LABEL_NAMESPACE, label, f"{command} {_label(_ENFORCE, before)}")]
    marks = {_ENFORCE: _PRIVILEGED, MADE_BY: _MIGRATION}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": marks}}
    return [
        Step(
            say.MAKE_NAMESPACE,
            f"kubectl get namespace/{NAMESPACE} --ignore-not-found -o name | grep . ||"
            f" printf %s {_json(manifest)} | kubectl create -f -",
            f"{_DELETE} namespaces --selector={MADE_BY}={_MIGRATION} --field-selector=metadata.name={NAMESPACE}",
        )
    ]


def copied(owner: str, config: str, what: str) -> Step:
    """The step that copies a ConfigMap into Tessera's namespace, under its name."""
    name = shlex.quote(f"configmap/{config}")
    patch = _json([{"op": "replace", "path": "/metadata", "value": {"name": config, "namespace": NAMESPACE}}])
    return Step(
        say.copy_config(what, config, NAMESPACE),
        f"kubectl get {name} --namespace={shlex.quote(owner)} -o json"
        f" | kubectl patch --local -f - --type=json -p {patch} -o json | {_APPLY}",
        f"{_DELETE} {name} {_IN} --ignore-not-found",
    )


def made_config(name: str, files: dict[str, str], what: str) -> Step:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}}
    return Step(
        say.make_config(what, name, NAMESPACE),
        f"printf %s {_json(manifest | {'data': files})} | {_APPLY}",
        f"{_DELETE} {shlex.quote(f'configmap/{name}')} {_IN} --ignore-not-found",
    )


def applied(do: str, manifest: dict[str, Any], name: str) -> Step:
    """The step that creates an object. ``name``: ``KIND/NAME`` of an object without a namespace."""
    return Step(do, f"printf %s {_json(manifest)} | {_APPLY}", f"{_DELETE} {shlex.quote(name)} --ignore-not-found")


def crds(*, own_alone: bool) -> Step:
    """``own_alone``: Kueue's kinds are left out, as they are there, or not needed."""
    files = " ".join(f"-f {CHART}/crds/{name}.yaml" for name in _CRDS) if own_alone else f"-f {CHART}/crds"
    return Step(
        say.CRDS if own_alone else say.ALL_CRDS,
        f"kubectl apply --server-side {files}",
        f"{_DELETE} --ignore-not-found {files}",
    )


def missing_crds(values: dict[str, Any]) -> Step:
    """The step that creates kinds that are not there, beside a release; the way back takes no others away."""
    mark = f"{MADE_BY}={_MIGRATION}-{_digest(values)}"
    return Step(
        say.MISSING_CRDS,
        f"for file in {CHART}/crds/*.yaml; do kubectl get -f $file --ignore-not-found -o name | grep ."
        f" || kubectl label --local -f $file {mark} -o json | kubectl create -f - || exit; done",
        f"{_DELETE} customresourcedefinitions --selector={mark}",
    )


def upgraded(values: dict[str, Any]) -> Step:
    """A release that is there gets the values beside its own, and goes back to the revision that it had: a ConfigMap
    keeps that, so that both can be run again.
    """
    name = f"before-upgrade-{_digest(values)}"
    config = f"configmap/{name} {_IN} --ignore-not-found"
    return Step(
        say.UPGRADE,
        f'kubectl get {config} -o name | grep . || {{ revision="$(kubectl get secrets {_IN}'
        f" --selector=owner=helm,name={RELEASE},status=deployed"
        " -o jsonpath='{.items[*].metadata.labels.version}')\""
        f' && test -n "$revision" && kubectl create configmap {name} {_IN} --from-literal=revision="$revision"; }}'
        f" && printf %s {_json(values)} | helm upgrade {RELEASE} {CHART} --namespace {NAMESPACE}"
        " --reset-then-reuse-values --skip-crds -f -",
        f'revision="$(kubectl get {config} -o jsonpath={{.data.revision}})" && {{ test -z "$revision" ||'
        f' {{ helm rollback {RELEASE} "$revision" --namespace {NAMESPACE} --wait && {_DELETE} {config}; }}; }}',
    )


def _digest(values: dict[str, Any]) -> str:
    """A name for what one plan made, so that the way back of another leaves it."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def installed(values: dict[str, Any], do: str) -> Step:
    """``--replace`` lets the command be run again after an installation that failed; Helm refuses it over a release
    that is deployed.
    """
    return Step(
        do,
        f"printf %s {_json(values)} | helm install tessera {CHART} --namespace {NAMESPACE} --skip-crds --replace -f -",
        f"helm uninstall tessera --namespace {NAMESPACE} --wait --ignore-not-found && {_gone(_AGENTS, NAMESPACE)}",
    )


def _gone(selector: str, space: str, node: str = "") -> str:
    """The command that waits until no such pod is left: pods that end still serve. ``node``: on this node alone."""
    there = f" {shlex.quote(f'--field-selector=spec.nodeName={node}')}" if node else ""
    return (
        f"kubectl wait pod --for=delete {shlex.quote(f'--selector={selector}')}{there}"
        f" --namespace={shlex.quote(space)} --timeout={_ENDS}"
    )


def patched(do: str, resource: str, name: str, there: Any, before: Any, *, ends: tuple[str, str] | None = None) -> Step:
    """A merge patch of an object without a namespace, and the one that takes it back. ``ends``: selector and namespace
    of the pods that have to have ended before the next step.
    """
    at = shlex.quote(f"{resource}/{name}")
    first, back = (f"kubectl patch {at} --type merge -p {_json(patch)}" for patch in (there, before))
    return Step(do, f"{first} && {_gone(*ends)}" if ends else first, back)


def labelled(do: str, node: str, label: str, value: str, before: str | None) -> Step:
    """``before``: what the node has; None: no such label."""
    command = f"kubectl label {shlex.quote(f'node/{node}')} --overwrite"
    return Step(do, f"{command} {label}={value}", f"{command} {_label(label, before)}")


def _label(label: str, value: str | None) -> str:
    return f"{label}-" if value is None else shlex.quote(f"{label}={value}")


def handed_over(do: str, node: str, label: str, selector: str, space: str, before: str | None) -> Step:
    """A node's GPUs go from the operator's pods with this selector to the agent by a label, and back. The new server
    comes when the old one has ended: the kubelet drops a resource when the plugin ends that it heard of first, and
    NVIDIA's plugin registers once.
    """
    there = f"kubectl label {shlex.quote(f'node/{node}')} --overwrite"
    command = f"{there} {label}"
    first, back = _gone(selector, space, node), _gone(_AGENTS, NAMESPACE, node)
    return Step(
        do,
        f"{command}={_LEAVING} && {first} && {command}=false",
        f"{command}={_LEAVING} && {back} && {there} {_label(label, before)}",
    )


def labelled_all(do: str, label: str, value: str, before: str) -> Step:
    """All nodes with one value of a label get another. ``value`` is one that no node has, so that the way back finds
    the same nodes.
    """
    line = "kubectl label nodes --selector={label}={old} --overwrite {label}={new}"
    return Step(do, line.format(label=label, old=before, new=value), line.format(label=label, old=value, new=before))


def held(do: str, space: str, name: str) -> Step:
    """A DaemonSet without pods: it selects nodes by a label that none has. Its status tells when the last has ended."""
    at = f"{shlex.quote(f'daemonset/{name}')} --namespace={shlex.quote(space)}"

    def line(value: str | None) -> str:
        patch = {"spec": {"template": {"spec": {"nodeSelector": {REPLACED: value}}}}}
        return f"kubectl patch {at} --type merge -p {_json(patch)}"

    ended = " && ".join(
        f"kubectl wait {at} --for=jsonpath={{.status.{count}}}=0 --timeout={_ENDS}"
        for count in ("currentNumberScheduled", "numberMisscheduled")
    )
    return Step(do, f"{line('true')} && {ended}", line(None))


def scaled(do: str, space: str, name: str, replicas: int | None) -> Step:
    """A Deployment without pods, and back until it is ready: what asks it comes back after it. ``replicas``: how many
    it has; None: the cluster is asked, and an annotation keeps the answer.
    """
    at = f"{shlex.quote(f'deployment/{name}')} --namespace={shlex.quote(space)}"
    if replicas is not None:
        return Step(
            do,
            f"kubectl scale {at} --replicas=0",
            f"kubectl scale {at} --replicas={replicas} && kubectl rollout status {at} --timeout={_ENDS}",
        )
    names = f"$(kubectl get {at} --ignore-not-found -o name)"
    return _scaled(do, names, names, f"--namespace={shlex.quote(space)}")


def scaled_all(do: str, space: str) -> Step:
    """All Deployments of a namespace without pods, those of operators first: they would start the others again."""
    at = f"--namespace={shlex.quote(space)}"
    every = f"kubectl get deployments {at} -o name"
    return _scaled(do, f"$({every} | grep operator; {every} | grep -v operator)", f"$({every})", at)


def _scaled(do: str, names: str, back: str, at: str) -> Step:
    """``names``, ``back``: shell words that are the Deployments, there and back. None is no failure. A second run
    keeps the replicas that the first one found.
    """
    key = REPLICAS_BEFORE.replace(".", r"\.")
    noted = f"$(kubectl get $name {at} -o jsonpath='{{.metadata.annotations.{key}}}')"
    return Step(
        do,
        f'for name in {names}; do test -n "{noted}" || kubectl annotate $name {at}'
        f' {REPLICAS_BEFORE}="$(kubectl get $name {at} -o jsonpath={{.spec.replicas}})"'
        f" && kubectl scale $name {at} --replicas=0 || exit; done",
        f'for name in {back}; do replicas="{noted}";'
        f' test -z "$replicas" || kubectl scale $name {at} --replicas="$replicas" || exit; done;'
        f" for name in {back}; do kubectl rollout status $name {at} --timeout={_ENDS}"
        f" && kubectl annotate $name {at} {REPLICAS_BEFORE}- || exit; done",
    )


def services_of(space: str, deployments: Iterable[str] = ()) -> str:
    """An extended regular expression for ``NAMESPACE/NAME`` of the Services that webhooks of these Deployments have;
    without names, all of the namespace. The charts of the three systems call a Service after its Deployment, whatever
    the release is called: ``X-controller-manager`` has ``X-webhook-service``, ``X`` has ``X`` or ``X-service``.
    """
    stems = [each.removesuffix("-controller-manager").replace(".", "[.]") for each in deployments]
    return f"^{space}/({'|'.join(stems)})(-webhook)?(-service)?$" if stems else f"^{space}/"


def without_webhooks(do: str, services: str, kept: str) -> Step:
    """Webhook configurations go that lead to Services of this expression (``services_of``): their names follow from
    the name of a Helm release. ``kept``: the ConfigMap that has them meanwhile.
    """
    # awk compares the Service alone, and prints each configuration once.
    match = shlex.quote(f'$2 ~ "{services.replace("/", "[/]")}" && !seen[$1]++ {{print $1}}')
    names = f"kubectl get {_WEBHOOKS} -o go-template={shlex.quote(_LEADS_TO)} | awk {match}"
    return _removed(do, f"{names} | xargs -r kubectl get -o json", kept)


def without_objects(do: str, objects: Iterable[str], kept: str) -> Step:
    """Objects without a namespace go, where they are there: ``KIND/NAME`` each."""
    names = " ".join(map(shlex.quote, objects))
    return _removed(do, f"kubectl get {names} --ignore-not-found -o json", kept)


def _removed(do: str, read: str, kept: str) -> Step:
    """The objects that are kept go, and no others: a second run reads the first one's ConfigMap."""
    config = f"configmap/{kept} {_IN} --ignore-not-found"
    objects = f'objects="$(kubectl get {config} -o jsonpath={{.data.objects}})"'
    return Step(
        do,
        f'kubectl get {config} -o name | grep . || {{ objects="$({read})" && printf %s "$objects"'
        f" | kubectl create configmap {kept} {_IN} --from-file=objects=/dev/stdin; }}"
        f" && {objects} && {_each_of(f'{_DELETE} --ignore-not-found -f -')}",
        f"{objects} && {_each_of(f'kubectl replace --force --timeout={_ENDS} -f -')} && {_DELETE} {config}",
    )


def _each_of(command: str) -> str:
    """The command for the objects in ``$objects``, of which there may be none."""
    return f"""if printf %s "$objects" | grep -q '"name"'; then printf %s "$objects" | {command}; fi"""


def conversion_kept(do: str, group: str) -> Step:
    """Whom the API server asks to convert the kinds of a group is noted at each CRD, and put back. A second run keeps
    what the first one noted.
    """
    names = f"$(kubectl get crd -o name | grep {shlex.quote(rf'[.]{group}$')})"
    key = CONVERSION_BEFORE.replace(".", r"\.")
    noted = f"$(kubectl get $crd -o jsonpath='{{.metadata.annotations.{key}}}')"
    return Step(
        do,
        f'for crd in {names}; do test -n "{noted}" || kubectl annotate $crd'
        f' {CONVERSION_BEFORE}="$(kubectl get $crd -o jsonpath={{.spec.conversion}})" || exit; done',
        f'for crd in {names}; do conversion="{noted}"; test -z "$conversion" || {{ kubectl patch $crd --type merge -p'
        f' "{{\\"spec\\":{{\\"conversion\\":$conversion}}}}"'
        f" && kubectl annotate $crd {CONVERSION_BEFORE}-; }} || exit; done",
    )


def _json(value: Any) -> str:
    return shlex.quote(json.dumps(value))
