"""Copies of claim templates: what placeholders claim, and of what."""

import re
from typing import Any

import pytest

from controller.objects.decode import decode
from controller.objects.deviceclaims import ResourceClaimTemplate
from controller.objects.workload import Workload
from controller.reconcile.provisioning.claimcopies import (
    asks_as_admin,
    claims_by_template,
    copy_body,
    copy_name,
    copy_of,
    used_claims,
)
from inventory.api.names import GROUP_CLAIMS, PLACEHOLDER_FOR, PLACEHOLDER_OF

ASKED = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 8}}], "config": [{}]}}
ORIGINAL: dict[str, Any] = {
    "metadata": {"name": "eight", "namespace": "team", "uid": "t1", "labels": {"app": "x"}},
    "spec": {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": ASKED},
}
WAITS = decode({"metadata": {"name": "train", "namespace": "team", "uid": "w1"}}, Workload)


def test_a_copy_asks_for_what_the_original_asks_and_its_claims_have_the_label_of_placeholders() -> None:
    made = copy_body("ours", WAITS, ORIGINAL)
    assert made["spec"] == {
        "metadata": {"labels": {"a": "b", PLACEHOLDER_OF: "w1"}, "annotations": {"c": "d"}},
        "spec": ASKED,
    }
    assert made["metadata"] == {
        "name": copy_name("w1", "eight"),
        "namespace": "ours",
        "labels": {PLACEHOLDER_OF: "w1"},
        "annotations": {PLACEHOLDER_FOR: "team/train eight"},
    }, "labels of the original are its owner's business, and it has no owner"
    assert ORIGINAL["spec"]["metadata"]["labels"] == {"a": "b"}, "the original is not touched"
    bare = copy_body("ours", WAITS, {"metadata": {"name": "eight"}, "spec": {"spec": ASKED}})
    assert bare["spec"]["metadata"] == {"labels": {PLACEHOLDER_OF: "w1"}}


def test_a_copy_is_known_again_and_any_other_template_is_none() -> None:
    found = copy_of(decode(copy_body("ours", WAITS, ORIGINAL), ResourceClaimTemplate))
    assert found is not None
    assert (found.name, found.of, found.workload) == (copy_name("w1", "eight"), "w1", "team/train")
    assert copy_of(decode(ORIGINAL, ResourceClaimTemplate)) is None


@pytest.mark.parametrize("template", ["eight", "x" * 253, "a" * 223 + ".b" * 15])
def test_the_name_of_a_copy_is_a_name_and_the_same_for_every_leader(template: str) -> None:
    name = copy_name("w1", template)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
    assert len(name) <= 253
    assert name == copy_name("w1", template)
    assert name not in (copy_name("w2", template), copy_name("w1", f"{template[:-1]}z"))


def test_a_template_that_asks_as_an_administrator_is_not_copied() -> None:
    """The label of a namespace says who may: that of ours is not lent to anybody."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}
    assert asks_as_admin({"spec": {"spec": {"devices": {"requests": [request]}}}})
    assert not asks_as_admin(ORIGINAL)
    first = {"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}
    assert not asks_as_admin({"spec": {"spec": {"devices": {"requests": [first]}}}})


def test_claims_that_pods_share_are_none_of_a_placeholders() -> None:
    claims = [
        {"name": "own", "resourceClaimTemplateName": "eight"},
        {"name": "by-name", "resourceClaimName": "shared"},
        {"name": "of-all", "resourceClaimTemplateName": "channel"},
    ]
    template = {"metadata": {"annotations": {GROUP_CLAIMS: "of-all"}}, "spec": {"resourceClaims": claims}}
    assert claims_by_template(template) == {"own": "eight"}
    assert claims_by_template({"spec": {}}) == {}


def test_what_several_containers_use_of_a_claim_is_named_once() -> None:
    def container(*claims: dict[str, str]) -> dict[str, Any]:
        return {"resources": {"claims": list(claims)}}

    spec = {
        "initContainers": [container({"name": "a", "request": "r"})],
        "containers": [
            container({"name": "a"}, {"name": "b", "request": "x"}),
            container({"name": "b", "request": "y"}, {"name": "b", "request": "x"}, {"name": "other"}),
            {},
        ],
    }
    assert list(used_claims(spec, {"a", "b", "c"})) == [
        {"name": "a"},
        {"name": "b", "request": "x"},
        {"name": "b", "request": "y"},
    ], "the API server refuses a claim beside its request"
