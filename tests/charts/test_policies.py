"""What the chart's templates of policies look at, beyond what rendering them shows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.foreign.rules.fractions import ASKS, PATCH, VARIABLES, WHOLE
from inventory.api.names import GPU_PERCENT, PLACEMENT
from tests.support.controller.celpolicies import evaluated, rewritten

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
