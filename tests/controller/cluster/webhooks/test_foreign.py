"""The mutating webhooks for what is Volcano's or KAI's: they mark as the policies do, and crash at nothing."""

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings

from controller.cluster.config.load import default
from controller.cluster.webhooks.foreign import (
    defaults_answer,
    defaults_patch,
    gang_answer,
    gang_patch,
    queue_answer,
    queue_patch,
    scheduler_answer,
    scheduler_patch,
)
from controller.cluster.webhooks.jobs import QUEUE_LABEL
from controller.cluster.webhooks.pods import GATE, MANAGED
from controller.foreign.podgroups.group import MIN_MEMBER
from controller.foreign.rules.servinggangs import stamped
from controller.foreign.rules.volcanojob import VOLCANO_JOB
from controller.scheduler.mirror.specs import System
from inventory.api.names import SCHEDULER_NAME
from tests.controller.cluster.webhooks.test_jobs import review
from tests.controller.foreign.rules.test_queues import in_cel, objects, refusal
from tests.support.controller.celpolicies import patched as after
from tests.support.controller.celpolicies import patches

VOLCANO, KAI = (default().switch(system) for system in (System.VOLCANO, System.KAI))
THEIRS: dict[str, Any] = {"annotations": {"scheduling.volcano.sh/queue-name": "q"}}


def pod(scheduler: str = "", **meta: Any) -> dict[str, Any]:
    spec = {"containers": [], **({"schedulerName": scheduler} if scheduler else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **meta}, "spec": spec}


def queued(given: dict[str, Any], switch: Any = VOLCANO, **paths: tuple[str, ...]) -> dict[str, Any]:
    suspended = {("example.com", kind): path for kind, path in paths.items()}
    return after(given, queue_patch(given, switch, suspended))


def test_a_pod_of_theirs_waits_in_the_queue_of_that_name_behind_its_gate() -> None:
    made = queued(pod(**THEIRS))
    assert made["metadata"]["labels"] == {QUEUE_LABEL: "q", MANAGED: "true"}
    assert (made["metadata"]["finalizers"], made["spec"]["schedulingGates"]) == ([MANAGED], [{"name": GATE}])
    assert queued(pod("volcano"))["metadata"]["labels"][QUEUE_LABEL] == "default"
    assert queued(pod("kai-scheduler"), KAI)["metadata"]["labels"][QUEUE_LABEL] == "default-queue"


@pytest.mark.parametrize(
    ("given", "switch"),
    [
        (pod(), VOLCANO),
        (pod("volcano"), KAI),
        (pod("mine"), VOLCANO),
        (pod(labels={QUEUE_LABEL: "own"}, **THEIRS), VOLCANO),
        (pod("volcano", labels={"kai.scheduler/queue": "t"}), KAI),
    ],
)
def test_what_is_for_no_queue_of_the_system_stays_as_it_is(given: dict[str, Any], switch: Any) -> None:
    assert queued(given, switch) == given


def test_a_pod_of_a_pod_group_is_held_and_gets_no_label_of_a_queue() -> None:
    for meta in ({}, {"labels": {"a": "b"}}):
        given = pod("volcano", annotations={"scheduling.k8s.io/group-name": "g"}, **meta)
        made = queued(given)
        assert made["metadata"]["labels"] == {**meta.get("labels", {}), MANAGED: "true"}
        assert made["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_job_is_suspended_where_its_kind_has_the_field() -> None:
    job = {"apiVersion": "example.com/v1", "kind": "Train", "metadata": {"name": "j", **THEIRS}, "spec": {"run": {}}}
    assert queued(job)["spec"] == {"run": {}, "suspend": True}
    assert queued(job, Train=("spec", "run", "suspend"))["spec"] == {"run": {"suspend": True}}


def test_the_default_scheduler_binds_and_the_name_is_kept() -> None:
    for given in (pod("volcano"), pod("volcano", annotations={"a": "b"})):
        made = after(given, scheduler_patch(given, VOLCANO))
        assert made["spec"]["schedulerName"] == "default-scheduler"
        kept = given["metadata"].get("annotations", {})
        assert made["metadata"]["annotations"] == {**kept, SCHEDULER_NAME: "volcano"}
        assert queued(made)["metadata"]["labels"][QUEUE_LABEL] == "default"


def test_other_names_and_those_of_a_scheduler_that_is_kept_stay() -> None:
    keeps = msgspec.structs.replace(VOLCANO, keep_scheduler_name=True)
    own = msgspec.structs.replace(VOLCANO, scheduler_names=("vc",))
    for given, switch in ((pod("volcano"), keeps), (pod(), VOLCANO), (pod("volcano"), own), (pod("volcano"), KAI)):
        assert scheduler_patch(given, switch) == []
    assert scheduler_patch(pod("vc"), own)
    of_site = queue_patch(pod("vc"), own, {}, {"vc": System.VOLCANO})
    assert after(pod("vc"), of_site)["metadata"]["labels"][QUEUE_LABEL] == "default"


def serving(kind: str, **meta: Any) -> dict[str, Any]:
    pods = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [], "schedulerName": "volcano"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", **meta}, "spec": {"template": pods}}


def test_the_pods_of_a_deployment_are_stamped_as_a_gang_and_a_stateful_set_gets_its_queue() -> None:
    asked = {"annotations": {MIN_MEMBER: "2", **THEIRS["annotations"]}}
    web = serving("Deployment", **asked)
    made = after(web, gang_patch(web, VOLCANO))
    assert made == stamped(web, "q") != web
    assert gang_patch(made, VOLCANO) == []
    for labels in ({}, {"labels": {"a": "b"}}):
        db = serving("StatefulSet", **asked, **labels)
        wanted = {**labels.get("labels", {}), QUEUE_LABEL: "q"}
        assert after(db, gang_patch(db, VOLCANO)) == {**db, "metadata": {**db["metadata"], "labels": wanted}}
    by_scheduler = serving("StatefulSet", annotations={MIN_MEMBER: "2"})
    assert gang_patch(by_scheduler, VOLCANO)[0]["value"] == {QUEUE_LABEL: "default"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_what_serves_and_is_no_gang_of_the_system_stays_as_it_is(kind: str) -> None:
    minimum = {MIN_MEMBER: "2"}
    for meta, switch in (
        (THEIRS, VOLCANO),
        ({"annotations": {MIN_MEMBER: ""}}, VOLCANO),
        ({"annotations": minimum}, KAI),
        ({"annotations": minimum, "labels": {QUEUE_LABEL: "own"}}, VOLCANO),
        ({"annotations": {**minimum, "scheduling.k8s.io/group-name": "g"}}, VOLCANO),
    ):
        assert gang_patch(serving(kind, **meta), switch) == [], meta


@settings(max_examples=30, deadline=None)
@drawn(objects())
def test_policy_and_webhook_name_the_same_queue(given: dict[str, Any]) -> None:
    if refused := refusal(given):
        for switch in (VOLCANO, KAI):
            answer = msgspec.json.decode(queue_answer(review(given), switch=switch))["response"]
            assert (answer["allowed"], len(answer["status"]["message"]) >= len(refused)) == (False, True)
        return
    for switch in (VOLCANO, KAI):
        label = queued(given, switch)["metadata"].get("labels", {}).get(QUEUE_LABEL, "")
        assert label == in_cel(switch.system, given)


def test_a_scheduler_of_the_other_system_by_its_own_name_says_that_it_is_its() -> None:
    given = pod("kai2", annotations={**THEIRS["annotations"]}, labels={"kai.scheduler/queue": "t"})
    named = {"volcano": System.VOLCANO, "kai2": System.KAI}
    assert queue_patch(given, VOLCANO, {}, named) == []
    assert queue_patch(given, KAI, {}, named)[0]["value"] == "t"


@pytest.mark.parametrize(
    "given", [{}, {"metadata": 1}, {"metadata": {"labels": []}}, {"spec": 3}, {"metadata": {"annotations": {"a": 1}}}]
)
def test_what_is_no_object_is_answered(given: dict[str, Any]) -> None:
    for answer in (
        partial(queue_answer, switch=VOLCANO),
        partial(scheduler_answer, switch=KAI),
        partial(gang_answer, switch=VOLCANO),
    ):
        assert b"AdmissionReview" in answer(review({"apiVersion": "v1", "kind": "Pod", **given}))


def test_a_job_of_volcanos_gets_what_the_policy_writes_into_it() -> None:
    task = {"replicas": 2, "template": {"spec": {"containers": [], "hostNetwork": True}}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "spec": {"tasks": [task]}}
    made = after(job, defaults_patch(job))
    assert made == after(job, patches(VOLCANO_JOB, job))
    assert made["spec"]["tasks"][0]["minAvailable"] == made["spec"]["minAvailable"] == 2
    assert defaults_patch(made) == []


@pytest.mark.parametrize("spec", [None, 7, [], {"tasks": 7}, {"tasks": [7]}, {"tasks": [{"template": 7}]}])
def test_defaults_crash_at_nothing(spec: Any) -> None:
    found = msgspec.json.decode(defaults_answer(review({"apiVersion": "v1", "kind": "Job", "spec": spec})))["response"]
    assert found["uid"] == "u"
    told = found.get("status", {}).get("message", "")
    assert found["allowed"] is (spec in (None, {"tasks": [7]}, {"tasks": [{"template": 7}]})) or "expected" in told
