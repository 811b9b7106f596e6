"""Nodes that can come, live: a job holds its quota, placeholders wait for nodes, and it starts on those that came."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.kinds import (
    CLAIM_TEMPLATES,
    CLUSTER_QUEUES,
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    DEVICE_SLICES,
    FLAVORS,
    NODES,
    PODS,
    TOPOLOGIES,
    WORKLOADS,
)
from controller.objects.core import SPOT_LABELS
from controller.reconcile.lifecycle import lifecycle
from inventory.api.names import (
    NODE_TEMPLATE,
    PLACEHOLDER_CLASS,
    PLACEHOLDER_FOR,
    PLACEHOLDER_OF,
    PROVISION_TIMEOUT,
    SPOT,
)
from kube.errors import InvalidError
from kube.resources import EVENTS
from kube.testing import eventually
from tests.support.controller.stage import CONFIG, Stage, config, stage


@pytest.fixture(autouse=True)
def _looks_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that has just begun says soon that nodes did not come."""
    monkeypatch.setattr(lifecycle, "FOUND_WITHIN_S", 0.0)


TESSERA = CONFIG.replace("policy: kueue", "policy: tessera")
DRIVER = "gpu.example.com"
MAPPED = f"{TESSERA}resources: {{deviceClassMappings: [{{name: cpu, deviceClassNames: [{DRIVER}]}}]}}\n"
FOUND_WITHIN_S = lifecycle.FOUND_WITHIN_S
TEMPLATE = {"allocatable": {"cpu": "4"}, "max": 3, "after": "4m"}


@asynccontextmanager
async def scene(*, limit: str = "15m", claims: bool = False, **template: Any) -> AsyncIterator[Stage]:
    """A queue whose flavor has no node yet; the controller runs. ``claims``: nodes come with devices of a driver, and
    there is a template for a claim of both devices of a node.
    """
    async with stage() as here:
        if claims:
            furnish_claims(here)
            template = {"devices": [{"driver": DRIVER, "count": 2}], **template}
        furnish(here, limit, **template)
        async with here.controller(config(MAPPED if claims else TESSERA), core_only=False):
            yield here


def furnish(here: Stage, limit: str, **template: Any) -> None:
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    here.make(TOPOLOGIES, "hosts", {}, spec={"levels": levels})
    notes = {NODE_TEMPLATE: json.dumps(TEMPLATE | template), PROVISION_TIMEOUT: limit}
    spec = {"nodeLabels": {"pool": "cpu"}, "topologyName": "hosts"}
    here.make(FLAVORS, "default", {"annotations": notes}, spec=spec)
    here.queue(cpus=100)


def furnish_claims(here: Stage) -> None:
    selects = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    here.server.create(DEVICE_CLASSES, DRIVER, {"metadata": {}, "spec": {"selectors": [selects]}})
    here.server.create(CLAIM_TEMPLATES, "both", claim_template(), namespace="team")


def claim_template(**more: Any) -> dict[str, Any]:
    asked = {"name": "both", "exactly": {"deviceClassName": DRIVER, "count": 2, **more}}
    config_ = {"opaque": {"driver": DRIVER, "parameters": {"kind": "Config"}}}
    return {"metadata": {}, "spec": {"spec": {"devices": {"requests": [asked], "config": [config_]}}}}


def copies(here: Stage) -> list[dict[str, Any]]:
    """Copies of claim templates, in whatever namespace."""
    found = here.server.list_all(CLAIM_TEMPLATES)
    return [each for each in found if PLACEHOLDER_OF in each["metadata"].get("labels", {})]


def publish(here: Stage, name: str) -> None:
    """The driver of a node."""
    devices = [{"name": f"gpu-{at}"} for at in (0, 1)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    here.server.create(DEVICE_SLICES, name, {"metadata": {}, "spec": spec})


def node(here: Stage, name: str) -> None:
    labels = {"pool": "cpu", "kubernetes.io/hostname": name}
    status = {"allocatable": {"cpu": "4", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    here.server.create(NODES, name, {"metadata": {"labels": labels}, "spec": {}, "status": status})


def placeholders(here: Stage) -> list[dict[str, Any]]:
    found = [each for each in here.server.list_all(PODS) if PLACEHOLDER_OF in each["metadata"].get("labels", {})]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def bind(here: Stage, name: str, to: str) -> None:
    namespace = placeholders(here)[0]["metadata"]["namespace"]
    here.server.merge(PODS, name, {"spec": {"nodeName": to}}, namespace=namespace)


def gang(
    here: Stage, name: str, pods: int, *, annotations: dict[str, str] | None = None, claims: str | None = None
) -> None:
    """``claims``: the template of the claim that each pod has."""
    container: dict[str, Any] = {"name": "main", "resources": {"requests": {"cpu": "4"}}}
    spec: dict[str, Any] = {"containers": [container]}
    if claims is not None:
        container["resources"]["claims"] = [{"name": "gpus"}]
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": claims}]
    template = {"metadata": {}, "spec": spec}
    here.workload(name, annotations=annotations, podSets=[{"name": "main", "count": pods, "template": template}])


def hosts(here: Stage, name: str) -> set[str]:
    (given,) = here.status(name)["admission"]["podSetAssignments"]
    slices = given.get("topologyAssignment", {}).get("slices", [])
    found: set[str] = set()
    for each in slices:
        values = each["valuesPerLevel"][0]
        if "universal" in values:
            found.add(values["universal"])
        individual = values.get("individual", {})
        prefix, suffix = individual.get("prefix", ""), individual.get("suffix", "")
        found |= {f"{prefix}{root}{suffix}" for root in individual.get("roots", [])}
    return found


async def test_nodes_are_provoked_and_the_gang_lands_on_exactly_them() -> None:
    async with scene() as here:
        gang(here, "w", 2)
        await eventually(lambda: len(placeholders(here)) == 2, what="two placeholders")
        assert here.condition("w", "QuotaReserved") == "True/QuotaReserved"
        assert here.condition("w", "Admitted").startswith("False")
        made = placeholders(here)
        assert made[0]["spec"]["priorityClassName"] == PLACEHOLDER_CLASS
        assert made[0]["spec"]["nodeSelector"] == {"pool": "cpu"}
        assert made[0]["metadata"]["annotations"][PLACEHOLDER_FOR] == "team/w main"
        for number, each in enumerate(made):
            node(here, f"n{number}")
            bind(here, each["metadata"]["name"], f"n{number}")
        await here.until_admitted("w")
        assert hosts(here, "w") == {"n0", "n1"}
        # A pod of it is sent to its node, and the placeholder there makes room.
        meta = {"annotations": {"kueue.x-k8s.io/workload": "w"}, "labels": {"kueue.x-k8s.io/podset": "main"}}
        spec = {"nodeSelector": {"kubernetes.io/hostname": "n0"}, "containers": []}
        here.server.create(PODS, "p", {"metadata": meta, "spec": spec}, namespace="team")
        await eventually(lambda: [each["spec"].get("nodeName") for each in placeholders(here)] == ["n1"])
        here.finish("w")
        await eventually(lambda: not placeholders(here), what="no placeholder is left")


async def test_those_whose_nodes_do_not_come_are_taken_back_and_the_flavor_rests() -> None:
    async with scene(limit="1s") as here:
        gang(here, "w", 2)
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodesDidNotCome", what="it is evicted")
        (said,) = [one["message"] for one in here.conditions("w") if one["type"] == "Evicted"]
        assert said == "Nodes of default did not come within 1s"
        await eventually(lambda: not placeholders(here), what="no placeholder is left")


async def test_nodes_that_came_while_nobody_led_are_found_though_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader finds the time over in the moment in which it begins."""
    monkeypatch.setattr(lifecycle, "FOUND_WITHIN_S", FOUND_WITHIN_S)
    async with stage() as here:
        furnish(here, "15m")
        async with here.controller(config(TESSERA), core_only=False):
            gang(here, "w", 2)
            await eventually(lambda: here.condition("w", "QuotaReserved") == "True/QuotaReserved")
        for name in ("n0", "n1"):
            node(here, name)
        long_ago = [{**each, "lastTransitionTime": "2020-01-01T00:00:00Z"} for each in here.conditions("w")]
        here.server.merge(WORKLOADS, "w", {"status": {"conditions": long_ago}}, namespace="team")
        async with here.controller(config(TESSERA), core_only=False):
            await eventually(lambda: here.condition("w", "Admitted") != "" or here.condition("w", "Evicted") != "")
            await here.until_admitted("w")
            assert here.condition("w", "Evicted") == ""
            assert hosts(here, "w") == {"n0", "n1"}


async def test_the_job_says_for_how_long_it_waits() -> None:
    async with scene() as here:
        gang(here, "w", 2, annotations={PROVISION_TIMEOUT: "1s"})
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodesDidNotCome")


async def test_a_job_that_never_takes_spot_provokes_no_spot_node() -> None:
    async with scene() as here:
        gang(here, "w", 1, annotations={SPOT: "never"})
        await eventually(lambda: len(placeholders(here)) == 1, what="a placeholder")
        (made,) = placeholders(here)
        required = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        assert {each["key"]: each["operator"] for each in term["matchExpressions"]} == dict.fromkeys(
            SPOT_LABELS, "NotIn"
        )


async def test_what_a_former_leader_left_is_removed() -> None:
    async with stage() as here:
        meta = {"labels": {PLACEHOLDER_OF: "gone"}, "annotations": {PLACEHOLDER_FOR: "team/gone main"}}
        here.queue()
        here.server.create(PODS, "left", {"metadata": meta, "spec": {}}, namespace="tessera-system")
        here.server.create(PODS, "other", {"metadata": meta, "spec": {}}, namespace="team")
        bare = {"metadata": {"labels": meta["labels"]}, "spec": {}}
        here.server.create(PODS, "without-a-workload", bare, namespace="tessera-system")
        async with here.controller(config(TESSERA), core_only=False):
            await eventually(lambda: [each["metadata"]["name"] for each in placeholders(here)] == ["other"])


async def test_a_placeholder_that_is_refused_is_told_of() -> None:
    async with scene() as here:
        refused = InvalidError("no such priority class", status=422, reason="Invalid")
        here.server.refuse = lambda method, path: refused if method == "POST" and path.endswith("/pods") else None
        gang(here, "w", 1)

        def said() -> list[str]:
            return [one["note"] for one in here.server.list_all(EVENTS) if one["reason"] == "FailedCreate"]

        await eventually(lambda: bool(said()))
        assert "no such priority class" in said()[0]
        here.server.refuse = lambda _method, _path: None
        await eventually(lambda: len(placeholders(here)) == 1, what="it is tried again")


async def test_a_deleted_workload_leaves_none() -> None:
    async with scene() as here:
        gang(here, "w", 2)
        await eventually(lambda: len(placeholders(here)) == 2)
        here.finish("w")
        await eventually(lambda: not placeholders(here))


async def test_a_template_taken_away_ends_the_wait_with_its_time_alone() -> None:
    """The gang keeps its quota and what waits for it; only its time is over some day."""
    async with scene() as here:
        gang(here, "w", 2)
        await eventually(lambda: len(placeholders(here)) == 2)
        here.server.merge(FLAVORS, "default", {"metadata": {"annotations": {NODE_TEMPLATE: None}}})
        here.server.merge(CLUSTER_QUEUES, "cq", {"metadata": {"annotations": {"touched": "1"}}})
        await eventually(lambda: here.condition("w", "QuotaReserved") == "True/QuotaReserved")
        assert len(placeholders(here)) == 2


async def test_placeholders_claim_by_a_copy_of_the_template_which_goes_as_the_job_starts() -> None:
    async with scene(claims=True) as here:
        gang(here, "w", 2, claims="both")
        await eventually(lambda: len(placeholders(here)) == 2, what="two placeholders")
        (copy,) = copies(here)
        made = placeholders(here)
        for each in made:
            named = {"name": "gpus", "resourceClaimTemplateName": copy["metadata"]["name"]}
            assert each["spec"]["resourceClaims"] == [named]
            assert each["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpus"}]
            assert each["metadata"]["namespace"] == copy["metadata"]["namespace"] != "team"
        assert copy["spec"]["spec"] == claim_template()["spec"]["spec"], "as a whole, with what counts for nothing"
        assert copy["spec"]["metadata"]["labels"] == copy["metadata"]["labels"]
        order = [path.rpartition("/")[2] for method, path, _ in here.server.requests if method == "POST"]
        assert order.count("resourceclaimtemplates") == 1
        assert order.index("resourceclaimtemplates") < order.index("pods"), "what a pod names is there before it"
        for number, each in enumerate(made):
            node(here, f"n{number}")
            publish(here, f"n{number}")
            bind(here, each["metadata"]["name"], f"n{number}")
        await here.until_admitted("w")
        assert hosts(here, "w") == {"n0", "n1"}
        await eventually(lambda: not copies(here), what="no copy is left")
        # The first pod of any workload that waits there has the placeholder leave its devices.
        meta = {"annotations": {"kueue.x-k8s.io/workload": "other"}, "labels": {"kueue.x-k8s.io/podset": "main"}}
        spec = {"nodeSelector": {"kubernetes.io/hostname": "n0"}, "containers": []}
        here.server.create(PODS, "p", {"metadata": meta, "spec": spec}, namespace="team")
        await eventually(lambda: [each["spec"].get("nodeName") for each in placeholders(here)] == ["n1"])


async def test_a_placeholder_with_a_claim_for_an_extended_resource_leaves_its_devices_to_any_pod() -> None:
    async with scene(claims=True) as here:
        gang(here, "w", 2)
        gang(here, "claims", 1, claims="both")
        await eventually(lambda: len(placeholders(here)) == 3, what="three placeholders")
        plain = [each for each in placeholders(here) if "resourceClaims" not in each["spec"]]
        node(here, "n0")
        publish(here, "n0")
        for each in plain:
            bind(here, each["metadata"]["name"], "n0")
        made = plain[0]["metadata"]
        owner = {"kind": "Pod", "name": made["name"], "controller": True, "apiVersion": "v1", "uid": made["uid"]}
        notes = {"resource.kubernetes.io/extended-resource-claim": "true"}
        meta = {"annotations": notes, "ownerReferences": [owner]}
        here.server.create(DEVICE_CLAIMS, "made", {"metadata": meta, "spec": {}}, namespace=made["namespace"])
        meta = {"annotations": {"kueue.x-k8s.io/workload": "other"}, "labels": {"kueue.x-k8s.io/podset": "main"}}
        spec = {"nodeSelector": {"kubernetes.io/hostname": "n0"}, "containers": []}
        here.server.create(PODS, "p", {"metadata": meta, "spec": spec}, namespace="team")
        await eventually(
            lambda: made["uid"] not in {each["metadata"]["uid"] for each in placeholders(here)}, what="it leaves"
        )
        assert plain[1]["metadata"]["uid"] in {each["metadata"]["uid"] for each in placeholders(here)}


async def test_copies_of_claim_templates_go_at_an_eviction() -> None:
    async with scene(limit="1s", claims=True) as here:
        gang(here, "w", 1, claims="both")
        await eventually(lambda: len(copies(here)) == 1, what="a copy")
        await eventually(lambda: here.condition("w", "Evicted") == "True/NodesDidNotCome", what="it is evicted")
        await eventually(lambda: not placeholders(here) and not copies(here), what="nothing is left")


async def test_copies_that_a_former_leader_left_are_removed() -> None:
    """No flavor has devices to come and no Workload has claims: nobody watches claim templates."""
    async with stage() as here:
        here.queue()
        here.server.create(CLAIM_TEMPLATES, "left", COPY_OF_NONE, namespace="tessera-system")
        here.server.create(CLAIM_TEMPLATES, "other", COPY_OF_NONE, namespace="team")
        bare = {**COPY_OF_NONE, "metadata": {"labels": {PLACEHOLDER_OF: "gone"}}}
        here.server.create(CLAIM_TEMPLATES, "without-a-workload", bare, namespace="tessera-system")
        async with here.controller(config(TESSERA), core_only=False):
            await eventually(lambda: [each["metadata"]["name"] for each in copies(here)] == ["other"])


COPY_OF_NONE = {
    "metadata": {"labels": {PLACEHOLDER_OF: "gone"}, "annotations": {PLACEHOLDER_FOR: "team/gone both"}},
    "spec": {},
}


async def test_a_copy_that_comes_late_is_removed() -> None:
    """A leader that has lost its lease had sent it: no Workload with claims is left."""
    async with scene(claims=True) as here:
        gang(here, "w", 1)
        await eventually(lambda: len(placeholders(here)) == 1, what="the leader works")
        here.server.create(CLAIM_TEMPLATES, "late", COPY_OF_NONE, namespace="tessera-system")
        await eventually(lambda: not copies(here), what="it is removed")


async def test_a_copy_that_is_made_after_the_wait_has_ended_is_removed() -> None:
    async with scene(claims=True) as here:
        finished: list[str] = []

        def ends_first(method: str, path: str) -> None:
            if method == "POST" and path.endswith("/resourceclaimtemplates") and not finished:
                finished.append(path)
                here.finish("w")

        here.server.refuse = ends_first
        gang(here, "w", 2, claims="both")
        await eventually(lambda: bool(finished) and bool(here.server.seen("DELETE", "/resourceclaimtemplates/")))
        await eventually(lambda: not copies(here) and not placeholders(here), what="nothing is left")


async def test_a_copy_that_is_deleted_while_its_placeholders_wait_is_made_anew() -> None:
    """A late write of a former leader may do that; a placeholder whose claim is not made yet would wait for ever."""
    async with scene(claims=True) as here:
        gang(here, "w", 2, claims="both")
        await eventually(lambda: len(placeholders(here)) == 2)
        (before,) = copies(here)
        meta = before["metadata"]
        here.server.delete(CLAIM_TEMPLATES, meta["name"], namespace=meta["namespace"])
        await eventually(lambda: len(copies(here)) == 1, what="there is one again")
        assert copies(here)[0]["metadata"]["name"] == meta["name"]


async def test_where_no_claims_are_served_nothing_is_asked_of_their_templates() -> None:
    async with scene() as here:
        gang(here, "w", 1)
        await eventually(lambda: len(placeholders(here)) == 1, what="a placeholder")
        assert not here.server.seen("GET", "/resourceclaimtemplates")


async def test_a_copy_that_is_refused_is_told_of_and_no_placeholder_is_made_without_it() -> None:
    async with scene(claims=True) as here:
        refused = InvalidError("quota of templates", status=422, reason="Invalid")
        here.server.refuse = lambda method, path: (
            refused if method == "POST" and path.endswith("/resourceclaimtemplates") else None
        )
        gang(here, "w", 1, claims="both")

        def said() -> list[str]:
            return [one["note"] for one in here.server.list_all(EVENTS) if one["reason"] == "FailedCreate"]

        await eventually(lambda: bool(said()))
        assert said()[0].startswith("ResourceClaimTemplate both could not be copied for a placeholder")
        assert not placeholders(here)
        here.server.refuse = lambda _method, _path: None
        await eventually(lambda: len(placeholders(here)) == 1, what="it is tried again")


async def test_where_an_autoscaler_takes_no_claims_placeholders_have_none() -> None:
    async with scene(claims=True, placeholderClaims=False) as here:
        gang(here, "w", 1, claims="both")
        await eventually(lambda: len(placeholders(here)) == 1, what="a placeholder")
        assert "resourceClaims" not in placeholders(here)[0]["spec"]
        assert not copies(here)


async def test_a_claim_as_an_administrator_is_left_out_of_placeholders() -> None:
    async with scene(claims=True) as here:
        admin = claim_template(adminAccess=True)
        here.server.create(CLAIM_TEMPLATES, "watching", admin, namespace="team")
        gang(here, "w", 1, claims="watching")
        await eventually(lambda: len(placeholders(here)) == 1, what="a placeholder")
        assert "resourceClaims" not in placeholders(here)[0]["spec"]
        assert not copies(here)


async def test_a_template_that_is_made_anew_changes_no_copy_of_a_job_that_waits() -> None:
    async with scene(claims=True) as here:
        gang(here, "w", 2, claims="both")
        await eventually(lambda: len(placeholders(here)) == 2)
        (before,) = copies(here)
        here.server.delete(CLAIM_TEMPLATES, "both", namespace="team")
        here.server.create(CLAIM_TEMPLATES, "both", claim_template(count=1), namespace="team")
        gone = placeholders(here)[0]["metadata"]
        here.server.delete(PODS, gone["name"], namespace=gone["namespace"])
        await eventually(
            lambda: (
                [each["metadata"]["uid"] for each in placeholders(here)].count(gone["uid"]) == 0
                and len(placeholders(here)) == 2
            ),
            what="another in its place",
        )
        assert copies(here) == [before]
