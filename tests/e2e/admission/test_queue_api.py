"""Kueue's kinds on a real API server: our CRDs and policies accept what Kueue's CRDs and webhooks together do."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from controller.jobs.framework.names import QUEUE_NAME
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.state import Spec
from tests.conformance import corpus
from tests.conformance.crds import crdfiles, mutations
from tests.conformance.crds.corpusobjects import corpus_objects
from tests.support.e2e import webhookcases, webhookreasons, webhookserver
from tests.support.e2e.kindcrds import OTHER_JOB
from tests.support.e2e.lab import EXAMPLES, until
from tests.support.e2e.queueapi import (
    GROUP,
    PEER,
    Api,
    Verdict,
    await_kinds,
    await_policy,
    await_served,
    converting,
    install,
    install_peers,
    policies,
)
from tests.support.e2e.queuecases import CREATED, EXAMPLE_FILES, UPDATED, Case, Update, changed, objects, statuses
from tests.support.e2e.webhookserver import WebhookServer
from tests.support.e2e.workloadcases import WORKLOADS_CREATED, WORKLOADS_UPDATED
from tests.support.queuerules.policies import policies as read_policies

pytestmark = pytest.mark.e2e

QUEUES = EXAMPLES / "queues"
CONTROLLER = "system:serviceaccount:tessera-system:t-tessera-controller"
EVERY = 4
"""How many slips make one that is asked here: without a server all are asked of the schemas themselves."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spec = Spec(nodes=(), controller_manager_args=(webhookserver.QUIET,))
    with (
        Cluster.up(f"queue-api-{os.getpid()}", spec) as cluster,
        converting(tmp_path_factory.mktemp("tls")) as webhook,
    ):
        install(cluster, webhook)
        install_peers(cluster)
        yield cluster


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    api = Api(cluster)
    await_kinds(api, GROUP)
    await_kinds(api, PEER)
    good = objects()
    await_policy(api, changed(good["Cohort"], {"spec.fairSharing.weight": -1}))
    await_policy(api, changed(good["ClusterQueue"], {"spec.namespaceSelector.matchLabels": {"a b": "c"}}))
    await_policy(api, changed(good["ResourceFlavor"], {"spec.nodeLabels.pool": "a b"}))
    await_policy(api, changed(good["Workload"], {"spec.podSets.1.minCount": 5}))
    made = made_with(api, {}, good["Workload"])
    await_policy(api, {**made, "status": {"clusterName": "nobody"}}, status=True)
    api.delete(made)
    yield api
    api.close()


def made_with(api: Api, first: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """``given`` with ``first`` applied, as it then lies on the server, its status too."""
    made = changed(given, first)
    api.delete(made)
    created = api.create(made, dry=False)
    assert created.accepted, created.message
    if winner := made.get("status", {}).get("clusterName"):
        api.put({**made, "status": {"nominatedClusterNames": [winner]}}, status=True, dry=False)
    if "status" in made:
        written = api.put(made, status=True, dry=False)
        assert written.accepted, written.message
    return made


def assert_said(verdict: Verdict, said: str | None) -> None:
    if said is None:
        assert verdict.accepted, verdict.message
    else:
        assert not verdict.accepted
        assert said in verdict.message


# The rules, by name.


@pytest.mark.parametrize("case", [*CREATED, *WORKLOADS_CREATED], ids=lambda case: case.name)
def test_the_api_server_judges_what_is_created_in_queues(api: Api, case: Case) -> None:
    assert_said(api.create(changed(objects()[case.kind], case.change)), case.said)


@pytest.mark.parametrize("case", [*UPDATED, *WORKLOADS_UPDATED], ids=lambda case: case.name)
def test_the_api_server_judges_what_is_changed_in_queues(api: Api, case: Update) -> None:
    given = objects()[case.kind]
    there = made_with(api, case.first, given)
    try:
        assert_said(api.put(changed(there, case.change), status=case.of_status), case.said)
    finally:
        api.delete(given)


def test_the_controller_s_statuses_are_its_own_affair(api: Api) -> None:
    """They come from where the rules are decided on, several for every workload: no policy looks at them."""
    made = made_with(api, {}, objects()["Workload"])
    wrong = {**made, "status": {"clusterName": "nobody"}}
    controller = api.acting_as(CONTROLLER)
    another = api.acting_as("system:serviceaccount:tessera-system:another")
    verdicts = [one.put(wrong, status=True).accepted for one in (controller, another)]
    specs = controller.create(changed(made, {"metadata.name": "second", "spec.podSets.1.minCount": 5}))
    controller.close()
    another.close()
    api.delete(made)
    assert verdicts == [True, False]
    assert specs.by_policy


OFF = ["annotation kueue.x-k8s.io/priority-boost"]
"""What rules of gates speak about that are off where nobody turns them on."""


def test_every_rule_that_speaks_is_a_case() -> None:
    cases: list[Case | Update] = [*CREATED, *WORKLOADS_CREATED, *UPDATED, *WORKLOADS_UPDATED]
    said = {case.said for case in cases if case.said}
    texts = {one.get("message") or one["messageExpression"] for one in validations(list(policies()))}
    texts |= {
        one["message"] for kind in crdfiles.PLURALS for one in rules(crdfiles.schema(crdfiles.ours(kind), "v1beta2"))
    }
    spoken = [re.sub(r"\s+", " ", text) for text in texts]
    assert len(spoken) > 40
    silent = [text for text in spoken if not any(matches(part, text) for part in said)]
    assert [text.partition(": ")[0].strip("'") for text in silent] == OFF


def test_the_reader_of_templates_finds_what_helm_renders() -> None:
    rendered = [one for one in policies() if one["kind"] == "ValidatingAdmissionPolicy"]
    assert {one["metadata"]["name"]: one["spec"] for one in rendered} == {
        one["metadata"]["name"]: one["spec"] for one in read_policies()
    }


def matches(said: str, text: str) -> bool:
    """Whether a part of a message, with its values in it, can come from this text or expression."""
    pieces = [piece.strip() for piece in re.split(r'"high"|\S*\d+|(?:cohort|parent)Name|: t4', said)]
    return all(piece in text for piece in pieces if len(piece) > 6) and any(len(piece) > 6 for piece in pieces)


def validations(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for policy in found for one in policy["spec"].get("validations", ())]


def rules(schema: Any) -> Iterator[dict[str, Any]]:
    """Every CEL rule of a schema."""
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
        for below in schema.values():
            yield from rules(below)


# Against Kueue.


def difference(what: str, mine: Verdict, theirs: Verdict) -> str | None:
    """What is wrong with our answer: policies may refuse more than Kueue's schema does, nothing may refuse less."""
    if mine.accepted == theirs.accepted or (theirs.accepted and mine.by_policy):
        return None
    return f"{what}: ours {mine.accepted} {mine.message[:200]}, Kueue's {theirs.accepted} {theirs.message[:200]}"


@pytest.mark.parametrize("version", crdfiles.VERSIONS)
@pytest.mark.parametrize("kind", crdfiles.PLURALS)
def test_a_slip_is_refused_by_both_or_neither(api: Api, kind: str, version: str) -> None:
    given = objects(version)[kind]
    assert api.create(given).accepted
    assert api.create(given, PEER).accepted
    slips = list(mutations.slips(crdfiles.schema(crdfiles.peer(kind), version), given))[::EVERY]
    wrong = [difference(what, api.create(slip), api.create(slip, PEER)) for what, slip in slips]
    assert slips
    assert not [one for one in wrong if one]


@pytest.mark.parametrize("kind", statuses())
def test_a_slip_in_a_status_is_refused_by_both_or_neither(api: Api, kind: str) -> None:
    given = {**objects()[kind], "status": statuses()[kind]}
    over: dict[str, str] = {}
    for group in (GROUP, PEER):
        api.delete(given, group)
        assert api.create(given, group, dry=False).accepted
        assert api.put(given, group, status=True, dry=False).accepted
        over[group] = api.version_of(given, group)

    def put(slip: dict[str, Any], group: str) -> Verdict:
        return api.put(slip, group, status=True, over=over[group])

    schema = crdfiles.schema(crdfiles.peer(kind), "v1beta2")["properties"]["status"]
    found = list(mutations.changes(schema, given["status"], "status"))[::EVERY]
    slips = [(what, {**given, "status": value}) for what, value in found]
    wrong = [difference(what, put(slip, GROUP), put(slip, PEER)) for what, slip in slips]
    for group in (GROUP, PEER):
        api.delete(given, group)
    assert slips
    assert not [one for one in wrong if one]


def test_the_corpus_s_objects_get_the_peer_s_answer(api: Api) -> None:
    """But for the few that break one of the webhooks' rules: they were made without a webhook."""
    said = (
        "can be covered once only",
        "can be in one group only",
        "on one pod set at most",
        "found a negative request",
    )
    found = corpus_objects(corpus.folder("kueue"))[::EVERY]
    wrong, accepted = [], 0
    for given in found:
        mine, theirs = api.create(given), api.create(given, PEER)
        accepted += mine.accepted
        if mine.accepted != theirs.accepted and not (mine.by_policy and any(rule in mine.message for rule in said)):
            wrong.append(f"{given['kind']} {given['metadata']['name']}: {mine.message[:300]} / {theirs.message[:300]}")
    assert not wrong
    assert accepted > len(found) * 0.8 > 100


# Versions.


def test_both_versions_are_the_same_object(api: Api) -> None:
    old = objects("v1beta1")["ClusterQueue"]
    api.delete(old)
    assert api.create(old, dry=False).accepted
    new = api.ask("GET", api.named({**old, "apiVersion": f"{GROUP}/v1beta2"})).body["spec"]
    api.delete(old)
    assert new["cohortName"] == old["spec"]["cohort"]
    assert new["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}


def test_workloads_are_found_by_their_cluster_queue(api: Api) -> None:
    made = made_with(api, {"status": statuses()["Workload"]}, objects()["Workload"])
    path = f"/apis/{GROUP}/v1beta2/workloads?fieldSelector=status.admission.clusterQueue%3D"
    found = {name: len(api.ask("GET", path + name).body["items"]) for name in ("team", "other")}
    api.delete(made)
    assert found == {"team": 1, "other": 0}


# What people start from.


def test_every_queue_example_is_used() -> None:
    assert set(EXAMPLE_FILES) == {path.name for path in QUEUES.iterdir()}


def test_the_examples_apply_as_they_are(cluster: Cluster, api: Api) -> None:
    install_kubeflow(cluster, api)
    try:
        for name in EXAMPLE_FILES:
            cluster.kubectl("apply", "-f", str(QUEUES / name))
        shown = cluster.kubectl("get", f"clusterqueues.{GROUP}")
        assert re.search(r"^NAME +COHORT +PENDING WORKLOADS$", shown, re.MULTILINE)
        assert re.search(r"^team-a +gpu-cluster", shown, re.MULTILINE)
        assert "nvidia-l4" in cluster.kubectl("get", f"resourceflavors.{GROUP}", "-o", "name")
        assert "ml-research-queue" in cluster.kubectl("get", f"localqueues.{GROUP}", "-n", "ml-research")
    finally:
        for name in reversed(EXAMPLE_FILES):
            cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(QUEUES / name))


@pytest.mark.usefixtures("api")
def test_the_first_pages_examples_are_applied_in_their_order_where_nothing_is_yet(cluster: Cluster) -> None:
    page = (EXAMPLES.parent / "README.md").read_text()
    files = [EXAMPLES.parent / name for name in re.findall(r"\]\((examples/[\w./-]+\.yaml)\)", page)]
    assert QUEUES / "team-quotas.yaml" in files
    cluster.kubectl("delete", "namespace", "ml-research", "ml-production", "--ignore-not-found", "--timeout=180s")
    words = [word for file in files for word in ("-f", str(file))]
    try:
        cluster.kubectl("apply", *words)
        shown = cluster.kubectl("get", f"localqueues.{GROUP}", "-A", "-o", "name")
        assert {f"localqueue.{GROUP}/team-{team}" for team in "abc"} <= set(shown.split())
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", *words)


def install_kubeflow(cluster: Cluster, api: Api) -> None:
    for plural in ("tfjobs", "pytorchjobs"):
        cluster.kubectl("apply", "--server-side", "-f", str(crdfiles.peers().parent / "kubeflow" / f"{plural}.yaml"))
        await_served(api, f"/apis/kubeflow.org/v1/{plural}")


UNREPAIRED: tuple[tuple[str, Callable[[str], str], str], ...] = (
    ("cluster-queue-in-cohort.yaml", lambda text: text.replace("  cohort: gpu\n", ""),
     "borrowingLimit needs a cohort to borrow from: set spec.cohort"),
    ("job-with-priority.yaml", lambda text: text.replace("      restartPolicy: Never\n", ""),
     'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    ("team-quotas.yaml", lambda text: text.replace("Queue: team-a\n", "Queue: team-a\n  nominalQuota: 16\n"),
     'unknown field "spec.nominalQuota"'),
)  # fmt: skip


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(("name", "original", "said"), UNREPAIRED, ids=[one[0] for one in UNREPAIRED])
def test_what_an_example_repairs_is_refused_clearly(
    cluster: Cluster, tmp_path: Path, name: str, original: Callable[[str], str], said: str
) -> None:
    cluster.kubectl("apply", "-f", str(QUEUES / "namespaces.yaml"))
    text = (QUEUES / name).read_text()
    assert original(text) != text
    (tmp_path / name).write_text(original(text))
    with pytest.raises(ClusterError) as refused:
        cluster.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / name))
    assert said in str(refused.value)


# Kueue's own cases about its webhooks. Last: from here on the policies of the chart hold whatever goes to a queue.


@pytest.fixture(scope="module")
def hooks(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    webhookserver.install(api)
    paths = {("lab.example", "Job"): ("spec", "paused")}
    server = WebhookServer(api, CONTROLLER, {"jobKinds": [OTHER_JOB]}, tmp_path_factory.mktemp("values"), paths)
    yield server
    server.close()


def test_every_webhook_case_of_kueue_gets_kueues_answer(hooks: WebhookServer) -> None:
    """Nothing is left out: what cannot be sent is counted by the rule that says so."""
    found = webhookserver.asked_of(hooks)
    print(found)  # noqa: T201 - the counts are its report
    assert found.wrong == []
    assert found.sent + sum(found.listed.values()) == found.cases
    assert found.sent > found.cases * 0.8
    assert found.answers["refused by a policy"] > found.cases * 0.3 > 100
    assert found.kinds == set(webhookreasons.BY_KIND) - {"AppWrapper"}, "Kueue has no case about its webhook"


def is_created(api: Api, path: str, given: dict[str, Any]) -> bool:
    return api.ask("POST", path, given).accepted


def test_kinds_of_one_name_in_two_groups_are_told_apart(api: Api, hooks: WebhookServer) -> None:
    """Each is held by its own field, and the other's field is nothing to it."""
    pods = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    specs = {"batch/v1": {"template": {"spec": pods}}, "lab.example/v1": {"search": {"template": {"spec": pods}}}}
    fields = {"batch/v1": ("suspend", "paused"), "lab.example/v1": ("paused", "suspend")}
    for version, spec in specs.items():
        own, others = fields[version]
        metadata = {"name": "twin", "namespace": webhookcases.PLAIN, "labels": {QUEUE_NAME: "case"}}
        job = {"apiVersion": version, "kind": "Job", "metadata": metadata, "spec": spec}
        at = f"/apis/{version}/namespaces/{webhookcases.PLAIN}/jobs"
        until(partial(is_created, api, at, job), f"a Job of {version}")
        made = api.ask("GET", f"{at}/twin").body["spec"]
        assert made[own] is True
        assert others not in made
        started = api.patch(f"{at}/twin?dryRun=All", {"spec": {own: False}})
        assert f'spec.{own}: only the controller starts a Job of queue "case"' in started.message
        assert hooks.controller.patch(f"{at}/twin?dryRun=All", {"spec": {own: False}}).accepted
        api.ask("DELETE", f"{at}/twin", {"propagationPolicy": "Background"})


def test_a_command_asks_as_kubectl_does_by_several_kubeconfigs(cluster: Cluster, api: Api, tmp_path: Path) -> None:  # noqa: ARG001 - its kinds are served
    """Who asks is told by the server's refusal: another's part in one file, a token's file beside a third."""
    admin = json.loads(cluster.kubeconfig.read_text())
    name, user = admin["clusters"][0]["name"], admin["users"][0]["user"]
    users = {"jane": {**user, "as": "jane", "as-groups": ["devs"]}, "account": {"tokenFile": "token"}}
    (tmp_path / "token").write_text(cluster.kubectl("create", "token", "default").strip())
    for who, entry in users.items():
        context = {"name": who, "context": {"cluster": name, "user": who}}
        body = {"current-context": who, "contexts": [context], "users": [{"name": who, "user": entry}]}
        (tmp_path / who).write_text(json.dumps(body))
    kubectl, env = cluster.kubectl_command("get", "clusterqueues")
    tessera = [sys.executable, "-c", "from cli.main import main; main()", "list", "clusterqueue"]
    for who, told in (("jane", 'User "jane"'), ("account", 'User "system:serviceaccount:default:default"')):
        files = os.pathsep.join(map(str, (tmp_path / who, tmp_path / "gone", cluster.kubeconfig)))
        for command in (kubectl, tessera):
            environ = {**env, "KUBECONFIG": files}
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            assert told in done.stderr, (command, done)
