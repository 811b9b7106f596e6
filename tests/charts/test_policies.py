"""What the chart's templates of policies look at, beyond what rendering them shows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.foreign.rules.fractions import ASKS, PATCH, VARIABLES, WHOLE
from controller.objects.core import SPOT_LABELS
from inventory.api.names import GPU_PERCENT, MARKED, PLACEMENT, POD_GROUP
from tests.support.controller.celpolicies import evaluated, patched, rewritten

TEMPLATES = Path(__file__).parents[2] / "charts" / "tessera" / "templates"
OF_ONE_GROUP = {"queue-policy-quotas.yaml", "serving-minimum-policy.yaml"}
"""Policies whose resources tell kinds of one name apart already."""


def test_kinds_are_told_by_their_group_and_name() -> None:
    """Two groups may have a kind Job: each is held by a field of its own."""
    alone = re.compile(r"(?<!'/' \+ )object\.kind (?:in|==|!=)")
    texts = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir()) if path.suffix in (".yaml", ".tpl")}
    found = {name for name, text in texts.items() if alone.search(text)}
    assert found - {"job-version-policy.yaml"} == OF_ONE_GROUP
    assert "object.apiVersion + ' ' + object.kind !=" in texts["job-version-policy.yaml"]
    assert "variables.kind in" in texts["_jobs.tpl"]


_LISTS = r"\.(?:flatten|sort|sortBy|distinct|slice|reverse|first|last)\(|lists\.range\("
_OTHERS = (
    r"transform(?:List|Map|MapEntry)\(|\bcel\.bind\(|\bformat\.\w+\(\)|\b(?:is)?(?:ip|IP|cidr|CIDR|semver|Semver)\("
)
_OF_TWO_VARIABLES = r"\.(?:all|exists|exists_one|existsOne)\(\w+, *\w+,"
NEWER = re.compile(f"{_LISTS}|{_OTHERS}|{_OF_TWO_VARIABLES}")
"""Functions of CEL that the API server of Kubernetes 1.30 does not take: it compiles with those of the version before.
Source: k8s.io/apiserver, pkg/cel/environment/base.go.
"""


def test_what_is_compiled_before_1_36_has_no_function_that_1_30_does_not_know() -> None:
    """A policy with one fails the whole installation. Those that change objects are there from 1.36 on only."""
    texts = {path.name: path.read_text() for path in sorted(TEMPLATES.iterdir()) if path.suffix in (".yaml", ".tpl")}
    texts |= {path.name: path.read_text() for path in (TEMPLATES.parent / "crds").glob("*.yaml")}
    rules = yaml.safe_load(re.sub(r"\{\{-?.*?-?\}\}", "", texts.pop("_foreignrules.tpl")))
    patch = rules["fractions"].pop("patch")
    assert NEWER.search(patch), "of a MutatingAdmissionPolicy"
    assert NEWER.search(texts.pop("pod-capacity-policy.yaml")), "of another"
    texts["_foreignrules.tpl"] = str(rules)
    found = {name: NEWER.findall(text) for name, text in texts.items()}
    assert not {name: calls for name, calls in found.items() if calls}


def placement_policy() -> dict[str, Any]:
    text = (TEMPLATES / "foreign-rules-policy.yaml").read_text()
    (block,) = (each for each in text.split("\n---\n") if "volcano-placement" in text and "name: before" in each)
    named = block.replace('{{ include "tessera.controllerUser" . | squote }}', "'controller'")
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", named))["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize(
    ("before", "now", "user", "passes"),
    [
        (None, {}, "user", True),
        (None, {PLACEMENT: "{}"}, "user", False),
        (None, {PLACEMENT: "{}"}, "controller", True),
        ({}, {"a": "b"}, "user", True),
        ({}, {PLACEMENT: "{}"}, "user", False),
        ({PLACEMENT: "{}"}, {PLACEMENT: "{}", "a": "b"}, "user", True),
        ({PLACEMENT: "{}"}, {}, "user", False),
        ({PLACEMENT: "{}"}, {}, "controller", True),
    ],
)
def test_only_the_controller_writes_the_placement_of_a_volcano_job(
    before: dict[str, str] | None, now: dict[str, str], user: str, passes: bool
) -> None:
    spec = placement_policy()
    given: dict[str, Any] = {
        "object": {"metadata": {"annotations": now}},
        "oldObject": None if before is None else {"metadata": {"annotations": before}},
        "request": {"userInfo": {"username": user}},
    }
    (condition,), (rule,) = spec["matchConditions"], spec["validations"]
    given["variables"] = {each["name"]: evaluated(each["expression"], given) for each in spec["variables"]}
    assert (not evaluated(condition["expression"], given) or evaluated(rule["expression"], given)) is passes
    assert f"metadata.annotations[{PLACEMENT}]: expected" in evaluated(rule["messageExpression"], given)


@pytest.mark.parametrize(
    ("notes", "group", "joins"),
    [
        ({POD_GROUP: "train-1"}, None, True),
        ({POD_GROUP: ""}, None, False),
        ({}, None, False),
        (None, None, False),
        ({POD_GROUP: "train-1"}, {"podGroupName": "mine"}, False),
    ],
    ids=["named", "named by nothing", "without the name", "without annotations", "in a group of its own"],
)
def test_a_pod_joins_the_group_that_its_start_names_and_leaves_no_other(
    notes: dict[str, str] | None, group: dict[str, str] | None, joins: bool
) -> None:
    text = (TEMPLATES / "pod-native-group-policy.yaml").read_text().split("\n---\n")[0]
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", text))["spec"]
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}
    pod["metadata"] |= {} if notes is None else {"annotations": notes}
    pod["spec"] |= {} if group is None else {"schedulingGroup": group}
    assert all(evaluated(each["expression"], {"object": pod}) for each in spec["matchConditions"]) is joins
    if joins:
        (mutation,) = spec["mutations"]
        operations = evaluated(rewritten(mutation["jsonPatch"]["expression"]), {"object": pod})
        assert patched(pod, operations)["spec"]["schedulingGroup"] == {"podGroupName": "train-1"}


GPU = "nvidia.com/gpu"
EMPTY: list[dict[str, Any]] = [
    {"spec": {"containers": None}, "metadata": {}},
    {"spec": {}},
    {},
    {"spec": {"containers": []}},
    {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: None, "nvidia.com/gpucores": 30}}}]}},
    {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU_PERCENT: None}}}]}},
]
"""As the API server shows to policies that change objects what it has not validated yet: ``{}`` is its first."""
NOTES: list[dict[str, str]] = [{}, {"gpu-fraction": "0.3"}, {"gpu-memory": "8000", "gpu-fraction-num-devices": "2"}]
PODS = [{**pod, "metadata": {"annotations": notes}} for pod in EMPTY for notes in NOTES]


@pytest.mark.parametrize("pod", [*EMPTY, *PODS])
@pytest.mark.parametrize("path", ["object", "object.spec.template"])
def test_no_expression_of_fractions_fails_on_a_pod_that_is_not_whole(pod: dict[str, Any], path: str) -> None:
    given: dict[str, Any] = {"object": pod if path == "object" else {"spec": {"template": pod}}}
    given |= {"params": {"data": {"a": "80000"}}, "variables": {}}
    evaluated(ASKS.replace("POD", path), given)
    for name, expression in VARIABLES.items():
        given["variables"][name] = evaluated(expression.replace("POD", path).replace("STEP", "10"), given)
    evaluated(rewritten(PATCH.replace("BASE", "")), given)


@pytest.mark.parametrize("pod", [*EMPTY, *PODS])
@pytest.mark.parametrize("path", ["object", "object.spec.template"])
@pytest.mark.parametrize("name", ["fractions", "mps-user"])
def test_no_rule_about_parts_of_gpus_fails_on_a_pod_that_is_not_whole(
    pod: dict[str, Any], path: str, name: str
) -> None:
    given: dict[str, Any] = {"object": pod if path == "object" else {"spec": {"template": pod}}, "variables": {}}
    spec = of_parts(name, path)
    for each in spec["variables"]:
        given["variables"][each["name"]] = evaluated(each["expression"], given)
    for each in spec["validations"]:
        if not evaluated(each["expression"], given):
            assert each.get("message") or evaluated(each["messageExpression"], given)


def of_parts(name: str, path: str) -> dict[str, Any]:
    """The validating policy's specification, with all its rules and the first of two endings of a sentence."""
    text = (TEMPLATES / f"{name}-policy.yaml").read_text()
    (block,) = (each for each in text.split("\n---\n") if "\nkind: ValidatingAdmissionPolicy\n" in each)
    known = {".pod": path, "$whole": f"'{WHOLE}'", "$hami": "['nvidia.com/gpucores']", "$step": "10", "$name": "m"}
    block = re.sub(r"\{\{- else \}\}.*?\{\{- end \}\}", "", block, flags=re.DOTALL)
    for word, value in known.items():
        block = block.replace(f"{{{{ {word} }}}}", value)
    block = re.sub(r"\{\{ printf[^}]*\}\}", f"\"['{GPU_PERCENT}']\"", block)
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", block))["spec"]
    assert isinstance(spec, dict)
    return spec


def agent_policy(name: str) -> dict[str, Any]:
    """The specification of one of the agent's policies, with the chart's helpers in place."""
    text = (TEMPLATES / "admissionpolicy.yaml").read_text()
    (block,) = (
        each
        for each in text.split("\n---\n")
        if f'"tessera.agent" . }}}}-{name}\n' in each and "kind: ValidatingAdmissionPolicy\n" in each
    )
    helpers = (TEMPLATES / "_helpers.tpl").read_text()
    changed = helpers.split('define "tessera.changedMetadata" -}}')[1].split("{{- end -}}")[0]
    owned = helpers.split('define "tessera.ownedByOwnNode" -}}')[1].split("{{- end -}}")[0]

    def filled(found: re.Match[str]) -> str:
        free = ["managedFields", "resourceVersion", "generation", *re.findall('"([^"]+)"', found[1])]
        return " ".join(re.sub(r"\{\{- \$free.*?-?\}\}", "", changed).replace("{{ $free }}", str(free)).split())

    block = re.sub(r'\{\{ include "tessera.changedMetadata" (\([^)]*\)|list)[^}]*\}\}', filled, block)
    block = re.sub(r'\{\{ include "tessera.ownedByOwnNode"[^}]*\}\}', lambda _: " ".join(owned.split()), block)
    block = block.replace("{{ $own | quote }}", "\"'node-1'\"").replace("{{ $user | squote }}", "\"'agent'\"")
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "x", block.replace("{{- include", "{{ include")))["spec"]
    assert isinstance(spec, dict)
    return spec


def refused(name: str, now: dict[str, Any], before: dict[str, Any] | None) -> str:
    """What the policy says to the agent of node-1; empty if it lets the object through."""
    spec = agent_policy(name)
    given: dict[str, Any] = {"object": now, "oldObject": before, "variables": {}}
    for each in spec["variables"]:
        given["variables"][each["name"]] = evaluated(each["expression"], given)
    for rule in spec["validations"]:
        if not evaluated(rule["expression"], given):
            return str(rule.get("message") or evaluated(rule["messageExpression"], given))
    return ""


DISK = {"type": "DiskPressure", "status": "False"}
READY = {"type": "nvidia.com/GPUReady", "status": "True"}
HEALTHY = {"type": "tessera.dev/GPUsHealthy", "status": "True"}


def node_of(*conditions: dict[str, str], name: str = "node-1", meta: Any = None, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **(meta or {})}, "status": {"conditions": list(conditions), **status}}


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (node_of(DISK), node_of(DISK, READY, HEALTHY), ""),
        (node_of(DISK, READY), node_of(DISK, {**READY, "status": "False"}), ""),
        (node_of(DISK, READY), node_of(DISK), ""),
        ({"metadata": {"name": "node-1"}, "status": {}}, node_of(READY), ""),
        (node_of(DISK), node_of({**DISK, "status": "True"}), "the conditions nvidia.com/GPUReady and"),
        (node_of(DISK), node_of(READY), "the conditions nvidia.com/GPUReady and"),
        (node_of(DISK), node_of(DISK, {"type": "Ready", "status": "True"}), "the conditions nvidia.com/GPUReady and"),
        (node_of(name="node-2"), node_of(READY, name="node-2"), "may not change the status of node node-2"),
        (node_of(), node_of(READY, capacity={"nvidia.com/gpu": "8"}), "not status.capacity"),
        (node_of(capacity={"cpu": "8"}), node_of(READY), "not status.capacity"),
        (node_of(), node_of(READY, meta={"labels": {"a": "b"}}), "not metadata.labels"),
        (node_of(meta={"annotations": {"a": "b"}}), node_of(READY), "not metadata.annotations"),
    ],
)
def test_an_agent_changes_two_conditions_of_its_own_node_and_nothing_else_of_its_status(
    before: dict[str, Any], now: dict[str, Any], says: str
) -> None:
    found = refused("node-status", now, before)
    assert says in found if says else found == ""


GRANT = {"gpu": "GPU-a", "generation": 1, "action": "reset", "granted": "2026-01-01T00:00:00Z"}
ORDER = {"tessera.dev/remediation-GPU-a": "start"}


def gpunode(annotations: dict[str, str] | None = None, grants: list[Any] | None = None) -> dict[str, Any]:
    meta = {"name": "node-1", **({} if annotations is None else {"annotations": annotations})}
    return {"metadata": meta, "status": {} if grants is None else {"remediationGrants": grants}}


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (None, gpunode(), ""),
        (None, gpunode(grants=[GRANT]), "grants itself nothing"),
        (None, gpunode(ORDER), "metadata.annotations"),
        (gpunode(), gpunode(grants=[GRANT]), "grants itself nothing"),
        (gpunode(grants=[GRANT]), gpunode(grants=[]), "grants itself nothing"),
        (gpunode(grants=[GRANT]), gpunode(), "grants itself nothing"),
        (gpunode(grants=[GRANT]), gpunode(grants=[{**GRANT, "generation": 2}]), "grants itself nothing"),
        (gpunode(ORDER, [GRANT]), gpunode(None, [GRANT]), ""),
        (gpunode({**ORDER, "a": "b"}), gpunode({"a": "b"}), ""),
        (gpunode({**ORDER, "a": "b"}), gpunode(), "metadata.annotations"),
        (gpunode(), gpunode(ORDER), "metadata.annotations"),
        (gpunode(ORDER), gpunode(dict.fromkeys(ORDER, "stop")), "metadata.annotations"),
    ],
)
def test_an_agent_grants_itself_no_repair_and_takes_orders_off_alone(
    before: dict[str, Any] | None, now: dict[str, Any], says: str
) -> None:
    found = refused("gpunode", now, before)
    assert says in found if says else found == ""


def grants_policy() -> dict[str, Any]:
    text = (TEMPLATES / "grants-policy.yaml").read_text().split("\n---\n")[0]
    named = text.replace('{{ include "tessera.controllerUser" . | squote }}', "'controller'")
    named = named.replace("{{ $agent | squote }}", "'agent'").replace("{{ $name }}", "x")
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", named))["spec"]
    assert isinstance(spec, dict)
    return spec


@pytest.mark.parametrize(
    ("user", "before", "now", "passes"),
    [
        ("admin", None, gpunode(), True),
        ("admin", None, gpunode(grants=[GRANT]), False),
        ("admin", gpunode(), gpunode(grants=[GRANT]), False),
        ("admin", gpunode(grants=[GRANT]), gpunode(), False),
        ("admin", gpunode(grants=[GRANT]), gpunode(grants=[]), False),
        ("admin", gpunode(grants=[GRANT]), gpunode(grants=[{**GRANT, "action": "reboot"}]), False),
        ("admin", gpunode(grants=[GRANT]), gpunode(ORDER, [GRANT]), True),
        ("admin", {"metadata": {"name": "node-1"}}, {"metadata": {"name": "node-1"}}, True),
        ("controller", gpunode(), gpunode(grants=[GRANT]), True),
        ("controller", gpunode(grants=[GRANT]), gpunode(), True),
        ("controllers", gpunode(), gpunode(grants=[GRANT]), False),
        ("agent", gpunode(), gpunode(grants=[GRANT]), True),
    ],
)
def test_nobody_but_the_controller_grants_a_repair_and_the_agents_own_policy_speaks_to_the_agent(
    user: str, before: dict[str, Any] | None, now: dict[str, Any], passes: bool
) -> None:
    spec = grants_policy()
    given = {"object": now, "oldObject": before, "request": {"userInfo": {"username": user}}, "variables": {}}
    (condition,), (rule,) = spec["matchConditions"], spec["validations"]
    assert (not evaluated(condition["expression"], given) or evaluated(rule["expression"], given)) is passes
    says = evaluated(rule["messageExpression"], given)
    assert says == f"status.remediationGrants: found a change by {user}, expected none but by controller"


def marked(pod: dict[str, Any]) -> dict[str, Any]:
    """What the API server makes of a pod as it is created."""
    text = (TEMPLATES / "pod-marks-policy.yaml").read_text().split("\n---\n")[0]
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", text.replace('{{ include "tessera.maxGrace" . }}', "600")))[
        "spec"
    ]
    given: dict[str, Any] = {"object": pod, "request": {"userInfo": {}}, "variables": {}}
    if not all(evaluated(each["expression"], given) for each in spec["matchConditions"]):
        return pod
    for each in spec["variables"]:
        given["variables"][each["name"]] = evaluated(each["expression"], given)
    for mutation in spec["mutations"]:
        pod = patched(pod, evaluated(rewritten(mutation["jsonPatch"]["expression"]), {**given, "object": pod}))
    return pod


OF_A_QUEUE = {"kueue.x-k8s.io/podset": "main"}
OURS = {MARKED: "autoscalers", "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}  # fmt: skip


def queued(notes: dict[str, str] | None, **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"labels": dict(OF_A_QUEUE), **({} if notes is None else {"annotations": notes})}
    return {"metadata": meta, "spec": {"containers": [], **spec}}


@pytest.mark.parametrize("notes", [None, {}, {"a": "b"}])
def test_autoscalers_leave_their_nodes_to_pods_of_a_queue(notes: dict[str, str] | None) -> None:
    assert marked(queued(notes))["metadata"]["annotations"] == {**(notes or {}), **OURS}
    other: dict[str, Any] = {"metadata": {"labels": {"app": "web"}}, "spec": {}}
    assert marked(other) == other


@pytest.mark.parametrize(
    "notes",
    [
        {"karpenter.sh/do-not-disrupt": "8h"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        {"tessera.dev/yield": "when-checkpointed"},
    ],
)
def test_what_a_job_says_itself_stays(notes: dict[str, str]) -> None:
    assert marked(queued(notes))["metadata"]["annotations"] == notes


@pytest.mark.parametrize(
    ("asked", "has", "gets"),
    [
        ("90s", None, 90),
        ("1.5m", None, 90),
        ("60.5s", None, 61),
        (".5h", None, 600),
        ("4500000ms", None, 600),
        ("9999999s", None, 600),
        ("99999h99999h99999h99999h", None, 600),
        ("2m", 30, 120),
        ("1m30s", 300, 300),
        ("1h", None, 600),
        ("10s", None, None),
        ("soon", None, None),
        ("", None, None),
        ("99999999s", None, None),
    ],
)
def test_a_pod_has_the_time_that_its_checkpoint_needs(asked: str, has: int | None, gets: int | None) -> None:
    spec = {} if has is None else {"terminationGracePeriodSeconds": has}
    found = marked(queued({"tessera.dev/checkpoint-grace": asked}, **spec))
    assert found["spec"].get("terminationGracePeriodSeconds") == gets


def test_the_chart_knows_the_controllers_labels_of_spot_nodes() -> None:
    """Which pods get them a real API server shows."""
    text = (TEMPLATES / "_pods.tpl").read_text()
    (listed,) = re.findall(r"\$labels := dict ([^}]*?) -}}", text)
    words = re.findall(r'"([^"]*)"', listed)
    assert dict(zip(words[::2], words[1::2], strict=True)) == SPOT_LABELS


@pytest.mark.parametrize(
    ("queue", "of_job", "of_pods", "has", "gets"),
    [
        ("research", {"tessera.dev/checkpoint-grace": "90s"}, {}, "TerminatingOrFailed", "Failed"),
        ("research", {}, {"tessera.dev/checkpoint-grace": "90s"}, "TerminatingOrFailed", "Failed"),
        ("research", {"tessera.dev/checkpoint-grace": "90s"}, {}, None, "Failed"),
        ("research", {}, {"other": "90s"}, "TerminatingOrFailed", "TerminatingOrFailed"),
        ("", {"tessera.dev/checkpoint-grace": "90s"}, {}, "TerminatingOrFailed", "TerminatingOrFailed"),
    ],
)
def test_a_job_that_writes_a_checkpoint_as_it_is_stopped_has_no_new_pod_beside_an_old_one(
    queue: str, of_job: dict[str, str], of_pods: dict[str, str], has: str | None, gets: str
) -> None:
    text = (TEMPLATES / "job-replacement-policy.yaml").read_text().split("\n---\n")[0]
    name = "object.metadata.?labels[?'kueue.x-k8s.io/queue-name'].orValue('')"
    text = text.replace('{{ include "tessera.queueName" . }}', name)
    spec = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", text))["spec"]
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    pods = {"metadata": {"annotations": of_pods}}
    job: dict[str, Any] = {"metadata": {"labels": labels, "annotations": of_job}, "spec": {"template": pods}}
    if has is not None:
        job["spec"]["podReplacementPolicy"] = has
    given = {"object": job, "request": {"userInfo": {}}, "variables": {}}
    if all(evaluated(condition["expression"], given) for condition in spec["matchConditions"]):
        (mutation,) = spec["mutations"]
        job = patched(job, evaluated(rewritten(mutation["jsonPatch"]["expression"]), given))
    assert job["spec"]["podReplacementPolicy"] == gets
