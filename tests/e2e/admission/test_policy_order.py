"""An API server asks policies that change objects in an order of its own, another after each change of any policy: what
is made of an object does not depend on it. No cluster: the chart's policies as Helm renders them, in every order.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
import yaml

from hack.cluster.programs import binaries
from tests.support.controller.celpolicies import evaluated
from tests.support.e2e.charttext import rendered
from tests.support.e2e.policyorder import Admission, policies

pytestmark = pytest.mark.e2e

QUEUE = "kueue.x-k8s.io/queue-name"
ON = ("controller.volcano.enabled=true", "controller.kai.enabled=true")
TEMPLATES = (
    "foreign-queue-policy",
    "foreign-serving-policy",
    "job-defaults-policy",
    "job-suspend-policy",
    "serving-policy",
)
VOLCANOS = {"annotations": {"scheduling.volcano.sh/queue-name": "theirs"}}
KAIS = {"labels": {"kai.scheduler/queue": "theirs"}}
GANG = {"annotations": {**VOLCANOS["annotations"], "scheduling.volcano.sh/group-min-member": "2"}}
NONE: dict[str, Any] = {}


@pytest.fixture(scope="module")
def chart() -> list[dict[str, Any]]:
    binaries.build("helm")
    return [each for each in yaml.safe_load_all(rendered(*TEMPLATES, values=ON)) if each]


def given(kind: str, meta: dict[str, Any]) -> dict[str, Any]:
    pods = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    versions = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "TrainJob": "trainer.kubeflow.org/v1alpha1"}
    spec = {"runtimeRef": {"name": "torch"}} if kind == "TrainJob" else {"template": pods}
    return {"apiVersion": versions[kind], "kind": kind, "metadata": {"name": "a", **meta}, "spec": spec}


def outcomes(chart: list[dict[str, Any]], one: dict[str, Any], *, default_queue: bool) -> Iterator[dict[str, Any]]:
    group, plural = one["apiVersion"].partition("/")[0], f"{one['kind'].lower()}s"
    asked = policies(chart, group, plural, default_queue=default_queue)
    assert len(asked) > 1
    for order in permutations(asked):
        yield Admission(order).created(one)


@pytest.mark.parametrize(
    ("kind", "meta", "default_queue", "queue"),
    [
        ("TrainJob", NONE, True, "default"),
        ("TrainJob", NONE, False, ""),
        ("TrainJob", KAIS, True, "theirs"),
        ("TrainJob", VOLCANOS, False, "theirs"),
        ("TrainJob", {"labels": {QUEUE: "own"}}, True, "own"),
        ("StatefulSet", GANG, True, "theirs"),
        ("StatefulSet", GANG, False, "theirs"),
        ("StatefulSet", NONE, True, "default"),
        ("StatefulSet", VOLCANOS, True, ""),
        ("Deployment", GANG, True, ""),
        ("Deployment", KAIS, True, ""),
        ("Deployment", NONE, True, "default"),
        ("TrainJob", {**VOLCANOS, **KAIS}, True, ""),
        ("StatefulSet", {**GANG, **KAIS}, True, ""),
    ],
    ids=str,
)
def test_what_is_made_of_an_object_is_the_same_in_every_order(
    chart: list[dict[str, Any]], kind: str, meta: dict[str, Any], default_queue: bool, queue: str
) -> None:
    one = given(kind, meta)
    found = list(outcomes(chart, one, default_queue=default_queue))
    first = found[0]
    assert first["metadata"].get("labels", {}).get(QUEUE, "") == queue
    spec = str(first["spec"])
    assert ("kueue.x-k8s.io/manager" in spec or "kueue.x-k8s.io/pod-suspending-parent" in spec) is (queue != "")
    assert ("deployment-a" in spec) is (kind == "Deployment" and meta == GANG)
    assert [each for each in found if each != first] == []


OWNERS = (
    "controller.config.integrations.externalFrameworks={Proxy.v1.lab.example}",
    "controller.jobs.ownerGroups={leaderworkerset.x-k8s.io,others.example}",
    "controller.jobKinds[0].group=odd.example",
    "controller.jobKinds[0].version=v1",
    "controller.jobKinds[0].kind=Mouse",
    "controller.jobKinds[0].plural=mice",
    "controller.jobKinds[0].suspend=.spec.suspend",
    "controller.jobKinds[0].podSets[0].template=.spec.template",
    "controller.jobKinds[0].ready.count=.status.ready",
    "controller.jobKinds[0].active.count=.status.active",
)


@pytest.mark.parametrize(
    ("api", "kind", "right"),
    [
        ("batch/v1", "Job", "batch/jobs/status"),
        ("kubeflow.org/v2beta1", "MPIJob", "kubeflow.org/mpijobs/finalizers"),
        ("odd.example/v1", "Mouse", "odd.example/mice/status"),
        ("lab.example/v1", "Proxy", "lab.example/proxies/status"),
        ("others.example/v1", "Bus", "others.example/buses/status"),
        ("lab.example/v1", "Other", ""),
        ("v1", "Pod", ""),
    ],
)
def test_a_child_is_its_owners_by_the_right_to_the_owners_status(api: str, kind: str, right: str) -> None:
    binaries.build("helm")
    found = [each for each in yaml.safe_load_all(rendered("job-suspend-policy", values=OWNERS)) if each]
    conditions = next(each["spec"]["matchConditions"] for each in found if each["kind"] == "MutatingAdmissionPolicy")
    (no_child,) = (each["expression"] for each in conditions if each["name"] == "no-child")

    def is_child(*rights: str, controller: bool = True) -> bool:
        owner = {"apiVersion": api, "kind": kind, "name": "o", "uid": "1", "controller": controller}
        known = {
            "object": {"metadata": {"ownerReferences": [owner]}},
            "request": {"namespace": "team", "userInfo": {"username": "system:serviceaccount:team:builder"}},
            "authorizer": {"rights": list(rights)},
        }
        return not evaluated(no_child, known)

    assert not is_child()
    assert not is_child("update batch/cronjobs/status team", f"update {right} elsewhere", f"get {right} team")
    assert is_child(f"update {right} team") is (right != "")
    assert not is_child(f"update {right} team", controller=False)
