"""What a request for nodes says: names, pod sets, templates, parameters."""

from typing import Any

import pytest

from controller.jobs.framework.podsets import FlavorMissingError
from controller.objects.decode import decode
from controller.objects.provisioning import ProvisioningRequest, ProvisioningRequestConfig
from controller.objects.queues import ResourceFlavor
from controller.objects.workload import Workload
from controller.reconcile.provisioning.requests import (
    CONSUME,
    InconsistentPodSetsError,
    attempt_of,
    bodies,
    digest,
    is_in_sync,
    needed,
    request_name,
    template_name,
    updates,
)
from controller.scheduler.topology.requests import SpotRule

FLAVORS = {
    "spot": decode(
        {
            "metadata": {"name": "spot"},
            "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
        },
        ResourceFlavor,
    )
}


def pod_set(name: str, count: int = 2, **container: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}, **container}
    return {
        "name": name,
        "count": count,
        "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}},
    }


def raw(*pod_sets: dict[str, Any], notes: dict[str, str] | None = None, **counts: int) -> dict[str, Any]:
    assigned = [
        {"name": each["name"], "flavors": {"cpu": "spot"}, "count": counts.get(each["name"], each["count"])}
        for each in pod_sets
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "metadata": {"name": "train", "namespace": "team", "uid": "u1", "annotations": notes or {}},
        "spec": {"podSets": list(pod_sets)},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": assigned}},
    }


def config(**spec: Any) -> ProvisioningRequestConfig:
    return decode(
        {"metadata": {"name": "c"}, "spec": {"provisioningClassName": "k", **spec}}, ProvisioningRequestConfig
    )


def made(given: dict[str, Any], **spec: Any) -> Any:
    return bodies(decode(given, Workload), given["spec"]["podSets"], config(**spec), "train-make-1", FLAVORS.get)


def test_a_name_that_is_too_long_is_cut_and_ends_with_a_digest_of_the_whole() -> None:
    name = request_name("w" * 200, "c" * 60, 1)
    assert len(name) == 253
    assert name[:248] == ("w" * 200 + "-" + "c" * 60)[:247] + "-"
    assert name != request_name("w" * 200, "c" * 60, 2)
    assert template_name("train-make-1", "main") == "ppt-train-make-1-main"


def test_the_attempt_follows_from_the_name_even_if_it_was_cut() -> None:
    assert attempt_of("train-make-12", "train", "make", 1) == 12
    assert attempt_of("train-make-012", "train", "make", 1) is None
    assert attempt_of("train-other-1", "train", "make", 1) is None
    long = "w" * 250
    assert attempt_of(request_name(long, "make", 3), long, "make", 4) == 3
    assert attempt_of(request_name(long, "make", 3), long, "make", 2) is None


def test_pod_sets_without_pods_and_without_managed_resources_need_no_nodes() -> None:
    given = decode(raw(pod_set("a", 1, limits={"gpu": "1"}), pod_set("b"), pod_set("c", 3), c=0), Workload)
    assert [(each.name, each.pods) for each in needed(given, config())] == [("a", 1), ("b", 2)]
    assert [each.name for each in needed(given, config(managedResources=["gpu"]))] == ["a"]
    assert needed(given, config(managedResources=["tpu"])) == ()


def test_a_resource_that_a_flavor_was_assigned_for_counts_though_no_container_names_it() -> None:
    given = raw(pod_set("a"))
    given["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"claimed-gpu": "spot"}
    assert [each.name for each in needed(decode(given, Workload), config(managedResources=["claimed-gpu"]))] == ["a"]


def test_the_template_has_what_the_flavor_adds_and_limits_as_missing_requests() -> None:
    (template,) = made(raw(pod_set("a", limits={"gpu": "8", "cpu": "4"}))).templates
    spec = template["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "spot"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert spec["containers"][0]["resources"]["requests"] == {"gpu": "8", "cpu": "1"}
    assert template["metadata"]["ownerReferences"][0]["uid"] == "u1"


def test_the_workloads_own_template_is_left_as_it_was() -> None:
    given = raw(pod_set("a", limits={"gpu": "8"}))
    made(given)
    assert given["spec"]["podSets"][0]["template"]["spec"] == pod_set("a", limits={"gpu": "8"})["template"]["spec"]


def test_parameters_are_the_configurations_and_the_workloads_go_before_them() -> None:
    notes = {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60", "other/ValidUntilSeconds": "9"}
    request = made(raw(pod_set("a"), notes=notes), parameters={"ValidUntilSeconds": "600", "noRetry": "true"}).request
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "60", "noRetry": "true"}


@pytest.mark.parametrize(
    ("policy", "entries"),
    [
        (None, [("a", 2), ("b", 2), ("c", 2)]),
        ("IdenticalPodTemplates", [("a", 4), ("c", 2)]),
        ("IdenticalWorkloadSchedulingRequirements", [("a", 6)]),
    ],
)
def test_pod_sets_are_merged_as_the_policy_says(policy: str | None, entries: list[tuple[str, int]]) -> None:
    other = pod_set("c")
    other["template"]["spec"]["priorityClassName"] = "low"
    spec = {} if policy is None else {"podSetMergePolicy": policy}
    request = made(raw(pod_set("a"), pod_set("b"), other), **spec).request
    found = [(one["podTemplateRef"]["name"], one["count"]) for one in request["spec"]["podSets"]]
    assert found == [(f"ppt-train-make-1-{name}", count) for name, count in entries]


def test_a_flavor_that_is_gone_and_a_pod_set_without_flavors_are_errors() -> None:
    given = raw(pod_set("a"))
    with pytest.raises(FlavorMissingError):
        bodies(decode(given, Workload), given["spec"]["podSets"], config(), "r", lambda _: None)
    del given["status"]["admission"]["podSetAssignments"][0]
    with pytest.raises(InconsistentPodSetsError):
        made(given)


def request(given: dict[str, Any], **spec: Any) -> ProvisioningRequest:
    return decode(made(given, **spec).request, ProvisioningRequest)


def test_a_request_for_other_pods_flavors_class_or_parameters_is_out_of_sync() -> None:
    given = raw(pod_set("a"))
    workload, known = decode(given, Workload), request(given)
    assert is_in_sync(known, workload, config())
    assert not is_in_sync(known, workload, config(provisioningClassName="other"))
    assert not is_in_sync(known, workload, config(parameters={"p": "1"}))
    assert not is_in_sync(known, decode(raw(pod_set("a"), a=1), Workload), config())
    given["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"cpu": "other"}
    assert not is_in_sync(known, decode(given, Workload), config())


def test_a_request_that_kueue_made_has_no_digest_and_is_in_sync_by_its_pods_alone() -> None:
    given = raw(pod_set("a"))
    plain = made(given).request
    del plain["metadata"]["annotations"]
    assert is_in_sync(decode(plain, ProvisioningRequest), decode(given, Workload), config())


def test_pods_consume_the_request_and_get_the_selector_that_the_provider_told() -> None:
    given = raw(pod_set("a"))
    known = request(given)
    details = decode(
        {"status": {"provisioningClassDetails": {"group": "g7", "odd": "no value of a label"}}}, ProvisioningRequest
    ).status
    asked = [
        {"key": "node-group", "valueFromProvisioningClassDetail": "group"},
        {"key": "zone", "valueFromProvisioningClassDetail": "untold"},
        {"key": "odd", "valueFromProvisioningClassDetail": "odd"},
    ]
    known = ProvisioningRequest(metadata=known.metadata, spec=known.spec, status=details)
    wanted = config(podSetUpdates={"nodeSelector": asked})
    (update,) = updates(known, needed(decode(given, Workload), wanted), wanted)
    assert update.name == "a"
    assert update.node_selector == {"node-group": "g7"}
    assert update.annotations[CONSUME] == "train-make-1"


def test_the_digest_is_that_of_pods_and_flavors() -> None:
    first, second = (needed(decode(raw(pod_set("a"), a=count), Workload), config()) for count in (1, 2))
    assert digest(first) != digest(second)


def test_the_pods_of_a_request_keep_off_spot_as_their_workload_does() -> None:
    given = raw(pod_set("main", 2))
    off = SpotRule(wanted=False, required=True, labels=frozenset({("kind", "spot")}))
    sets, found = given["spec"]["podSets"], decode(given, Workload)
    (template,) = bodies(found, sets, config(), "r", FLAVORS.get, off).templates
    required = template["template"]["spec"]["affinity"]["nodeAffinity"]
    assert required == {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kind", "operator": "NotIn", "values": ["spot"]}]}]
        }
    }
