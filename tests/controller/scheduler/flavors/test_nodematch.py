from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.core import PodSpec, Taint, Toleration
from controller.objects.decode import decode
from controller.objects.meta import LabelSelector, LabelSelectorRequirement
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import PodSet
from controller.scheduler.flavors.nodematch import affinity_matches, match_problem
from controller.scheduler.model.taints import tolerates, untolerated

SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def flavor(**spec: Any) -> ResourceFlavor:
    return decode({"metadata": {"name": "f"}, "spec": spec}, ResourceFlavor)


def pods(**spec: Any) -> PodSet:
    return decode({"name": "main", "template": {"spec": spec}}, PodSet)


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_an_untolerated_taint_closes_a_flavor_and_the_problem_names_it() -> None:
    problem = match_problem(pods(), flavor(nodeTaints=[SPOT]))
    assert problem == "flavor f has the taint spot=true:NoSchedule, which the pod set does not tolerate"


@pytest.mark.parametrize(
    "toleration",
    [
        SPOT,
        {"key": "spot", "operator": "Exists"},
        {"operator": "Exists"},
        {"key": "spot", "operator": "Equal", "value": "true"},
        {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
    ],
)
def test_a_toleration_of_the_pods_or_of_the_flavor_opens_it(toleration: dict[str, str]) -> None:
    assert match_problem(pods(tolerations=[toleration]), flavor(nodeTaints=[SPOT])) is None
    assert match_problem(pods(), flavor(nodeTaints=[SPOT], tolerations=[toleration])) is None


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "spot", "value": "false"},
        {"key": "other", "operator": "Exists"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        {"key": "spot", "operator": "Near", "value": "true"},
        {"value": "true"},
    ],
)
def test_a_toleration_of_something_else_does_not(toleration: dict[str, str]) -> None:
    assert match_problem(pods(tolerations=[toleration]), flavor(nodeTaints=[SPOT])) is not None


def test_a_taint_that_only_prefers_closes_nothing() -> None:
    assert match_problem(pods(), flavor(nodeTaints=[{**SPOT, "effect": "PreferNoSchedule"}])) is None


def test_a_selector_counts_only_on_keys_that_the_flavor_declares() -> None:
    wants = pods(nodeSelector={"gpu": "a100", "zone": "b"})
    assert match_problem(wants, flavor(nodeLabels={"gpu": "a100"})) is None
    assert match_problem(wants, flavor()) is None
    assert match_problem(wants, flavor(nodeLabels={"gpu": "h100"})) is not None
    assert match_problem(wants, flavor(nodeLabels={"gpu": "a100", "zone": "a"})) is not None


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["5", "7"], True),
        ("In", ["7"], False),
        ("NotIn", ["7"], True),
        ("NotIn", ["5"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["4"], True),
        ("Gt", ["5"], False),
        ("Lt", ["6"], True),
        ("Lt", ["5"], False),
        ("Gt", ["four"], False),
        ("Gt", ["1", "2"], False),
        ("Near", ["5"], False),
    ],
)
def test_required_affinity_is_read_with_every_operator(operator: str, values: list[str], holds: bool) -> None:
    term = [{"key": "size", "operator": operator, "values": values}]
    assert (match_problem(pods(affinity=affinity(term)), flavor(nodeLabels={"size": "5"})) is None) is holds


def test_one_matching_term_is_enough_and_a_term_about_other_keys_alone_matches() -> None:
    wrong = [{"key": "gpu", "operator": "In", "values": ["h100"]}]
    elsewhere = [{"key": "zone", "operator": "In", "values": ["b"]}]
    a100 = flavor(nodeLabels={"gpu": "a100"})
    assert match_problem(pods(affinity=affinity(wrong)), a100) is not None
    assert match_problem(pods(affinity=affinity(wrong + elsewhere)), a100) is not None
    assert match_problem(pods(affinity=affinity(wrong, elsewhere)), a100) is None
    assert match_problem(pods(affinity=affinity()), a100) is None


texts = st.sampled_from(["", "a", "b"])
effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.builds(Taint, key=st.sampled_from(["a", "b"]), value=texts, effect=effects)
tolerations = st.builds(
    Toleration,
    key=texts,
    operator=st.sampled_from(["", "Equal", "Exists"]),
    value=texts,
    effect=st.just("") | effects,
)


@given(st.lists(taints, max_size=4), st.lists(tolerations, max_size=4))
def test_what_is_untolerated_repels_and_no_toleration_covers_it(given: list[Taint], by: list[Toleration]) -> None:
    found = untolerated(given, by)
    if found is None:
        assert all(one.effect == "PreferNoSchedule" or any(tolerates(it, one) for it in by) for one in given)
    else:
        assert found in given
        assert found.effect != "PreferNoSchedule"
        assert not any(tolerates(it, found) for it in by)


requirements = st.builds(
    LabelSelectorRequirement,
    key=st.sampled_from(["x", "y", "z"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    values=st.lists(st.sampled_from(["1", "2"]), max_size=2).map(tuple),
)


@given(
    st.lists(st.lists(requirements, max_size=3), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"])),
)
def test_affinity_is_a_label_selector_on_the_declared_keys(
    terms: list[list[LabelSelectorRequirement]], labels: dict[str, str]
) -> None:
    data = [[{"key": it.key, "operator": it.operator, "values": list(it.values)} for it in term] for term in terms]
    spec = decode({"affinity": affinity(*data)}, PodSpec)
    expected = any(
        LabelSelector(match_expressions=tuple(it for it in term if it.key in labels)).matches(labels) for term in terms
    )
    assert affinity_matches(spec, labels) is expected
