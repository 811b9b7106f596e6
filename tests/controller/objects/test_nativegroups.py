"""Kubernetes' own groups, in each version that is served: what is read, and what the API server would refuse."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.decode import DecodeError, decode
from controller.objects.nativegroups import (
    NativeGroup,
    NativeWorkload,
    group_problems,
    problems,
    workload_problems,
)

GANG = {"schedulingPolicy": {"gang": {"minCount": 4}}}
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
FIELDS = (
    "schedulingPolicy",
    "schedulingConstraints",
    "resourceClaims",
    "disruptionMode",
    "workloadRef",
    "podGroupTemplateRef",
    "podGroupTemplates",
    "compositePodGroupTemplates",
    "priority",
)


def group(**spec: Any) -> NativeGroup:
    return decode({"metadata": {"name": "g"}, "spec": {**GANG, **spec}}, NativeGroup)


def template(name: str, *below: Any, **spec: Any) -> dict[str, Any]:
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}} if below else GANG
    composite = [each for each in below if each.get("podGroupTemplates") or each.get("compositePodGroupTemplates")]
    key = "compositePodGroupTemplates" if composite else "podGroupTemplates"
    return {"name": name, **policy, **({key: list(below)} if below else {}), **spec}


def refused(**spec: Any) -> list[str]:
    return list(workload_problems(decode({"metadata": {"name": "w"}, "spec": spec}, NativeWorkload)))


def test_a_pod_group_says_its_minimum_level_mode_and_template_in_both_spellings() -> None:
    new = group(
        workloadRef={"workloadName": "w", "templateName": "t"},
        disruptionMode={"all": {}},
        schedulingConstraints={"topology": [{"key": "dc/rack"}]},
    )
    old = group(
        podGroupTemplateRef={"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}, disruptionMode="PodGroup"
    )
    for each in (new, old):
        assert (each.spec.template, each.spec.mode, each.spec.is_gang) == (("w", "t"), "all", True)
        assert list(group_problems(each)) == []
    assert (new.spec.level, old.spec.level) == ("dc/rack", "")
    assert (group().spec.mode, group().spec.template) == ("", ("", ""))
    assert (group(disruptionMode="Pod").spec.mode, group(disruptionMode={"single": {}}).spec.mode) == ("single",) * 2


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"schedulingPolicy": {}}, "spec.schedulingPolicy: expected one of basic and gang, found neither"),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}},
            "spec.schedulingPolicy: expected one of basic and gang, found both",
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount: expected at least 1, found 0",
        ),
        ({"schedulingPolicy": {"gang": {}}}, "spec.schedulingPolicy.gang.minCount: expected at least 1, found none"),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology: expected 1 key at most, found 2",
        ),
        (
            {"schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key: expected a label of nodes, found an empty one",
        ),
        ({"disruptionMode": {}}, "spec.disruptionMode: expected one of single and all, found neither"),
        ({"disruptionMode": "Rack"}, "spec.disruptionMode: expected Pod or PodGroup, found 'Rack'"),
        ({"priority": 1_000_000_001}, "spec.priority: expected 1000000000 at most, found 1000000001"),
        (
            {"preemptionPolicy": "Sometimes"},
            "spec.preemptionPolicy: expected Never or PreemptLowerPriority, found 'Sometimes'",
        ),
        (
            {"resourceClaims": [{"name": "c"}]},
            "spec.resourceClaims[0]: expected one of resourceClaimName and resourceClaimTemplateName, found neither",
        ),
        (
            {"resourceClaims": [{"name": "c", "resourceClaimName": "a"}] * 2},
            "spec.resourceClaims[1].name: expected a name of its own, found 'c'",
        ),
        (
            {"parentCompositePodGroupName": "p"},
            "spec.workloadRef: expected the names of a Workload and a template of it, found none",
        ),
    ],
)
def test_what_the_api_server_refuses_of_a_pod_group_is_told_in_one_line(spec: dict[str, Any], sentence: str) -> None:
    assert list(group_problems(group(**spec))) == [sentence]


def test_a_composite_pod_group_counts_groups_and_names_its_template() -> None:
    ref = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
    assert list(group_problems(group(schedulingPolicy={"gang": {"minGroupCount": 2}}, **ref), composite=True)) == []
    assert list(group_problems(group(**ref), composite=True)) == [
        "spec.schedulingPolicy.gang.minGroupCount: expected at least 1, found none"
    ]


def test_a_workload_has_one_tree_of_templates_with_names_of_their_own() -> None:
    assert refused(podGroupTemplates=[template("a"), template("b")]) == []
    assert refused(compositePodGroupTemplates=[template("a", template("b"), template("c"))]) == []
    assert refused() == ["spec: expected one of podGroupTemplates and compositePodGroupTemplates, found neither"]
    twice = refused(compositePodGroupTemplates=[template("a", template("x")), template("b", template("x"))])
    where = "spec.compositePodGroupTemplates[1].podGroupTemplates[0].name"
    assert twice == [f"{where}: expected a name of its own, found 'x' again"]
    many = refused(podGroupTemplates=[template(str(at)) for at in range(9)])
    assert many == ["spec.podGroupTemplates: expected 8 templates at most, found 9"]


def test_all_pods_of_a_basic_group_may_be_disrupted_together_but_not_of_a_job() -> None:
    spec = group(disruptionMode={"all": {}}, schedulingPolicy={"basic": {}}).spec
    assert list(problems(spec)) == []
    assert list(problems(spec, of_job=True)) == [
        "disruptionMode: expected single beside schedulingPolicy.basic, found all"
    ]


def test_a_tree_of_templates_is_three_composites_and_a_group_deep_at_most() -> None:
    for depth, sentences in ((3, 0), (4, 1), (5, 1)):
        tree = template("leaf")
        for level in range(depth):
            tree = template(f"level-{level}", tree)
        found = refused(compositePodGroupTemplates=[tree])
        assert len(found) == sentences
        assert all(each.endswith("expected 4 levels at most, found more") for each in found)


def told_of(read: Callable[[], Iterator[str]]) -> list[str]:
    try:
        return list(read())
    except DecodeError as error:
        return [str(error)]


@given(st.dictionaries(st.sampled_from(FIELDS), NESTED, max_size=5))
def test_any_json_is_read_or_refused_in_one_line(spec: dict[str, Any]) -> None:
    raw = {"metadata": {"name": "g"}, "spec": spec}
    told = told_of(lambda: group_problems(decode(raw, NativeGroup)))
    told += told_of(lambda: workload_problems(decode(raw, NativeWorkload)))
    assert all("\n" not in each and ": " in each for each in told)
