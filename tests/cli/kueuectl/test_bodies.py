"""The objects that ``tessera create`` sends, and the words of its options."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from cli.kueuectl.bodies import cluster_queue, flavor, groups, local_queue, pairs, quotas, taints, tolerations


def test_flavors_with_the_same_resources_are_one_group_in_the_given_order() -> None:
    nominal = quotas(["b:memory=1Gi;cpu=1,a:cpu=2;memory=2Gi", "g:nvidia.com/gpu=8"])
    found = groups(nominal, quotas(["a:cpu=1"]), quotas(["g:nvidia.com/gpu=0"]))
    assert [each["coveredResources"] for each in found] == [["memory", "cpu"], ["nvidia.com/gpu"]]
    assert [each["name"] for each in found[0]["flavors"]] == ["b", "a"]
    assert found[0]["flavors"][1]["resources"] == [
        {"name": "memory", "nominalQuota": "2Gi"},
        {"name": "cpu", "nominalQuota": "2", "borrowingLimit": "1"},
    ]
    assert found[1]["flavors"][0]["resources"] == [{"name": "nvidia.com/gpu", "nominalQuota": "8", "lendingLimit": "0"}]


@pytest.mark.parametrize(
    ("parse", "given", "said"),
    [
        (quotas, "alpha", 'found "alpha", expected FLAVOR:RESOURCE=AMOUNT'),
        (quotas, ":cpu=1", "expected FLAVOR:"),
        (quotas, "Alpha:cpu=1", "expected FLAVOR:"),
        (quotas, "alpha:", "expected FLAVOR:"),
        (quotas, "a:cpu", 'found "cpu" for flavor a, expected RESOURCE=AMOUNT'),
        (quotas, "a:cpu=", "expected RESOURCE=AMOUNT"),
        (quotas, "a:cpu=1;cpu=2", "found cpu of flavor a twice"),
        (quotas, "a:cpu=1,a:cpu=2", "found cpu of flavor a twice"),
        (quotas, "a:cpu=many", 'found "many" for cpu of flavor a, expected a quantity from 0 on'),
        (quotas, "a:cpu=-1", 'found "-1" for cpu'),
        (pairs, "a", 'found "a", expected KEY=VALUE'),
        (pairs, "=a", 'found "=a", expected KEY=VALUE'),
        (taints, "a=b", 'found "a=b", expected KEY=VALUE:EFFECT with one of NoSchedule'),
        (taints, "a=b:Never", "expected KEY=VALUE:EFFECT"),
        (taints, ":NoSchedule", "expected KEY=VALUE:EFFECT"),
        (tolerations, "a:Never", "expected KEY=VALUE:EFFECT"),
        (tolerations, "", "expected KEY=VALUE:EFFECT"),
    ],
)
def test_a_word_that_says_nothing_is_told(parse: Callable[..., Any], given: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse([given])


def test_a_limit_needs_its_quota_and_resources_stand_in_one_group() -> None:
    with pytest.raises(ValueError, match="--borrowing-limit: found cpu of flavor b, expected --nominal-quota for it"):
        groups(quotas(["a:cpu=1"]), quotas(["b:cpu=1"]), {})
    with pytest.raises(ValueError, match="--lending-limit: found memory of flavor a"):
        groups(quotas(["a:cpu=1"]), {}, quotas(["a:memory=1"]))
    with pytest.raises(ValueError, match="found cpu of flavor b beside other resources than another flavor has"):
        groups(quotas(["a:cpu=1;memory=1", "b:cpu=1"]), {}, {})


def test_taints_and_tolerations_have_values_and_effects_or_not() -> None:
    assert taints(["a=b:NoSchedule,c:NoExecute"]) == [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    ]
    assert tolerations(["a=b:NoSchedule", "c", "d=:PreferNoSchedule"]) == [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "Equal", "value": "", "effect": "PreferNoSchedule"},
    ]


def test_objects_carry_what_was_given_and_nothing_else() -> None:
    assert flavor("f", {}, [], [])["spec"] == {}
    assert flavor("f", pairs(["a=b"]), [], [])["spec"] == {"nodeLabels": {"a": "b"}}
    assert cluster_queue("q", {"cohortName": "c"}, {})["spec"] == {"namespaceSelector": {}, "cohortName": "c"}
    assert cluster_queue("q", {}, {"a": "b"})["spec"]["namespaceSelector"] == {"matchLabels": {"a": "b"}}
    made = local_queue("l", "team", "q")
    assert (made["kind"], made["metadata"]) == ("LocalQueue", {"name": "l", "namespace": "team"})
