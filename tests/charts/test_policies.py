"""What the chart's templates of policies look at, beyond what rendering them shows."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from inventory.api.names import PLACEMENT
from tests.support.controller.celpolicies import evaluated

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
