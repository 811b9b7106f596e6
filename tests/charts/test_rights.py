"""What the controller may do in the cluster, as the chart asks for it."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def rules() -> list[dict[str, Any]]:
    """Those of its ClusterRole, whatever the values switch off."""
    text = (ROOT / "charts/tessera/templates/controller-rbac.yaml").read_text()
    found = yaml.safe_load_all(re.sub(r"\{\{-?[^}]*\}\}", "", text))
    (role,) = (one for one in found if one and one["kind"] == "ClusterRole")
    return list(role["rules"])


def may(verb: str) -> set[str]:
    return {
        f"{resource}.{group}".rstrip(".")
        for rule in rules()
        if verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_puts_the_status_of_workloads_and_no_other_object() -> None:
    """``update`` of finalizers is no write: it allows to own what is not deleted before its dependents."""
    finalizers = {"jobs.batch", "pods", "workloads.kueue.x-k8s.io", "provisioningrequests.autoscaling.x-k8s.io"}
    of_owners = {"{}/finalizers{}{}".format(*each.partition(".")) for each in finalizers}
    assert may("update") == {"workloads/status.kueue.x-k8s.io", *of_owners}


def test_a_status_that_it_puts_it_may_patch_too() -> None:
    assert {one for one in may("update") if one.partition(".")[0].endswith("/status")} <= may("patch")


def test_the_security_page_says_the_same_of_workloads() -> None:
    verbs = {verb for rule in rules() if "workloads/status" in rule["resources"] for verb in rule["verbs"]}
    said = re.search(r"`workloads/status`: ([a-z, ]+)", (ROOT / "docs/security.md").read_text())
    assert said is not None
    assert set(said[1].strip().split(", ")) == verbs


def test_the_security_page_says_the_same_of_volcano_jobs() -> None:
    """Of what Tessera makes beside pods."""
    text = (ROOT / "charts/tessera/templates/controller-rbac-volcano.yaml").read_text()
    role = yaml.safe_load(re.sub(r"\{\{-?[^}]*\}\}", "", text))
    row = next(line for line in (ROOT / "docs/security.md").read_text().splitlines() if "commands.bus" in line)
    for rule in role["rules"]:
        for resource in rule["resources"]:
            said = re.search(rf"`{resource}(?:\.[a-z0-9.]+)?`(?:, `[a-z0-9.]+`)*: ([a-z, ]+)", row)
            assert said is not None, resource
            assert said[1].strip().split(", ") == rule["verbs"], resource
