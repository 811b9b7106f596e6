"""Where the CRDs of a Kueue that is gone are left: the controller takes their conversion over, decides, and answers
users by their rights, by Kueue's visibility API too.
"""

import asyncio
import json
import os
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from cli.main import tessera
from controller.cluster.webhooks.certificates import DAY_S, SERVING_S, Pair, new_authority, new_serving
from controller.cluster.webhooks.service import service_names
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, free_port
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.conformance.crds import crdfiles
from tests.support.e2e import crowd, listeners, viewers
from tests.support.e2e.incluster import ACCOUNT, NAMESPACE, SERVICE, WEB_PORT, InCluster
from tests.support.e2e.lab import until
from tests.support.e2e.viewers import directly, through

pytestmark = pytest.mark.e2e

CONFIG = {"tessera": {"policy": "kueue", "pendingCondition": {"after": "1s"}}}
GROUP = "kueue.x-k8s.io"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InCluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    with Cluster.up(f"kueue-{os.getpid()}", Spec(nodes=(), kwok_nodes=1)) as cluster:
        folder = tmp_path_factory.mktemp("controller")
        controller = InCluster(cluster, folder, CONFIG, crds=crdfiles.peers(), visible=True, metrics_port=free_port())
        controller.install()
        foreign = {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert", "port": 443}
        webhook = {"clientConfig": {"service": foreign}, "conversionReviewVersions": ["v1"]}
        patch = json.dumps({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}})
        for plural in ("clusterqueues", "cohorts", "localqueues", "workloads"):
            cluster.kubectl("patch", "crd", f"{plural}.{GROUP}", "--type=merge", "-p", patch)
        with controller.running():
            yield controller


def queue(version: str, **spec: object) -> str:
    quota = {"name": "cpu", "nominalQuota": "2"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}
    objects = [
        {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "ClusterQueue",
            "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
        },
        {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "default"},
            "spec": {"clusterQueue": "all"},
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def job(name: str, cpus: int) -> str:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpus)}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {f"{GROUP}/queue-name": "lq"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return json.dumps(body)


def test_conversion_of_kueue_s_crds_is_the_controller_s(controller: InCluster) -> None:
    crd = json.loads(controller.cluster.kubectl("get", "crd", f"workloads.{GROUP}", "-o", "json"))
    conversion = crd["spec"]["conversion"]
    assert conversion["strategy"] == "Webhook"
    service = conversion["webhook"]["clientConfig"]["service"]
    assert (service["namespace"], service["name"]) == (NAMESPACE, SERVICE)
    assert conversion["webhook"]["clientConfig"]["caBundle"]
    # Theirs throughout: what ours does not carry is still there.
    assert "fieldRef" in json.dumps(crd["spec"]["versions"])


def test_queues_of_the_older_version_admit_jobs_up_to_their_quota_and_say_why_others_wait(
    controller: InCluster,
) -> None:
    kubectl = controller.cluster.kubectl
    kubectl("apply", "-f", "-", input=queue("v1beta1", cohort="both"))
    assert kubectl("get", f"clusterqueues.v1beta2.{GROUP}", "all", "-o", "jsonpath={.spec.cohortName}") == "both"
    kubectl("apply", "-f", "-", input=job("fits", 2))
    until(lambda: kubectl("get", "job", "fits", "-o", "jsonpath={.spec.suspend}") == "false", "the job is started")
    kubectl("apply", "-f", "-", input=job("waits", 1))
    said = 'jsonpath={.items[*].status.conditions[?(@.reason=="WaitingForQuota")].message}'
    until(lambda: "cpu" in kubectl("get", f"workloads.v1beta1.{GROUP}", "-o", said), "the other says why it waits")
    assert kubectl("get", "job", "waits", "-o", "jsonpath={.spec.suspend}") == "true"
    until(
        lambda: kubectl("get", f"clusterqueues.{GROUP}", "all", "-o", "jsonpath={.status.admittedWorkloads}") == "1",
        "the queue's status",
    )
    kubectl("delete", "job", "fits", "--wait", "--timeout=120s")
    until(lambda: kubectl("get", "job", "waits", "-o", "jsonpath={.spec.suspend}") == "false", "its turn comes")


VIEW = "/apis/view.tessera.dev/v1alpha1"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io"
TEAMS = ("crimson", "azure")
PENDING = f"{VIEW}/queueviews/shared/pending"


class Viewers:
    """An account in each team's namespace, which may view it and all queues; ``nobody`` has no right at all.

    In each namespace a Job holds half of the ClusterQueue ``shared``, and another waits.
    """

    def __init__(self, controller: InCluster) -> None:
        self.controller = controller
        self.kubectl = controller.cluster.kubectl
        flavor, shared, _ = json.loads(queue("v1beta2").replace('"all"', '"shared"'))["items"]
        for each in (flavor, shared):
            self.kubectl("apply", "-f", "-", input=json.dumps(each))
        for name in (*TEAMS, "nobody"):
            self.kubectl("create", "namespace", name)
            self.kubectl("create", "serviceaccount", name, "-n", name)
        for name in TEAMS:
            account = f"--serviceaccount={name}:{name}"
            self.kubectl("create", "rolebinding", "viewer", "-n", name, "--clusterrole=view", account)
            viewer = f"--clusterrole={ACCOUNT}-queue-viewer"
            self.kubectl("create", "clusterrolebinding", f"viewer-{name}", viewer, account)
            door = {"name": f"door-of-{name}", "namespace": name}
            body = {"apiVersion": f"{GROUP}/v1beta2", "kind": "LocalQueue", "metadata": door}
            self.kubectl("apply", "-f", "-", input=json.dumps({**body, "spec": {"clusterQueue": "shared"}}))
        for wanted in ("holds", "waits"):
            for name in TEAMS:
                text = job(f"{name}-{wanted}", 1).replace('"default"', f'"{name}"').replace('"lq"', f'"door-of-{name}"')
                self.kubectl("apply", "-f", "-", input=text)
            if wanted == "holds":
                until(lambda: self.running() == 2, "both teams hold half of the queue")
        self.tokens = {name: self.token(name) for name in (*TEAMS, "nobody")}
        until(self.available, f"the APIServices lead to the controller (log: {controller.log})")
        until(lambda: len(self.items(self.kubectl("get", "--raw", PENDING))) == 2, "two wait")

    def token(self, name: str) -> str:
        return self.kubectl("create", "token", name, "-n", name, "--duration=1h").strip()

    def running(self) -> int:
        shown = "jsonpath={.items[?(@.spec.suspend==false)].metadata.name}"
        return sum(len(self.kubectl("get", "jobs", "-n", name, "-o", shown).split()) for name in TEAMS)

    def available(self) -> bool:
        found = json.loads(self.kubectl("get", "apiservices", "-l", "app.kubernetes.io/instance=t", "-o", "json"))
        states = [each.get("status", {}).get("conditions", [{}])[0].get("status") for each in found["items"]]
        return states == ["True"] * 3

    def items(self, raw: str | bytes) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(raw)["status"]["items"]
        return found

    def ask(self, name: str, path: str) -> viewers.Answer:
        return through(self.controller.cluster, path, self.tokens[name])

    def workload(self, name: str) -> str:
        """The name of the Workload of the team's Job that waits."""
        found = json.loads(self.kubectl("get", f"workloads.{GROUP}", "-n", name, "-o", "json"))["items"]
        return next(name for each in found if "waits" in (name := str(each["metadata"]["name"])))


@pytest.fixture(scope="module")
def asking(controller: InCluster) -> Viewers:
    return Viewers(controller)


@pytest.fixture(scope="module")
def replaced(asking: Viewers) -> bytes:
    """A certificate that ends soon is in the Secret now; the one that is shown meanwhile."""
    cluster = asking.controller.cluster
    kept = viewers.secret(cluster)
    names = (*service_names(NAMESPACE, ACCOUNT), "localhost", "127.0.0.1")
    issuer = Pair(kept["issuer.crt"], kept["issuer.key"])
    soon = new_serving(issuer, names, time.time() - SERVING_S + DAY_S)
    data = {"tls.crt": b64encode(soon.certificate).decode(), "tls.key": b64encode(soon.key).decode()}
    shown = viewers.presented(asking.controller)
    cluster.kubectl("patch", "secret", viewers.SECRET, "-n", NAMESPACE, "-p", json.dumps({"data": data}))
    return shown


@pytest.mark.usefixtures("replaced")
@pytest.mark.parametrize(("own", "other"), [TEAMS, TEAMS[::-1]])
def test_a_user_sees_the_own_names_and_of_others_the_places(asking: Viewers, own: str, other: str) -> None:
    """By the bytes of the answers: every object of a team has the team's name in its own."""
    paths = [PENDING, f"{VIEW}/queueviews", f"{VIEW}/namespaces/{own}/workloadviews/{asking.workload(own)}"]
    paths += [f"{VISIBILITY}/{version}/clusterqueues/shared/pendingworkloads" for version in ("v1beta1", "v1beta2")]
    for path in paths:
        found = asking.ask(own, path)
        assert (found.code, other.encode() in found.body) == (200, False), path
        assert own.encode() in found.body or path.endswith("queueviews")
    rows = asking.items(asking.ask(own, PENDING).body)
    assert [row["position"] for row in rows] == [0, 1]
    assert sorted(str(row["workload"]).partition("/")[0] for row in rows) == sorted(["a workload of queue shared", own])
    assert asking.ask(own, f"{VIEW}/namespaces/{other}/workloadviews/{asking.workload(other)}").code == 403


def test_an_explanation_has_the_amounts_of_holders_that_have_no_name(asking: Viewers, tmp_path: Path) -> None:
    own, other = TEAMS
    file = viewers.kubeconfig(asking.controller.cluster, asking.tokens[own], tmp_path, own)
    done = click.testing.CliRunner().invoke(tessera, ["explain", f"{own}-waits"], env={"KUBECONFIG": str(file)})
    assert done.exit_code == 0, done.output
    assert "a workload of queue shared" in done.stdout
    assert f"{own}/job-{own}-holds" in done.stdout
    assert other not in done.output


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_kueues_visibility_api_is_served_in_both_scopes(asking: Viewers, version: str) -> None:
    raw = f"{VISIBILITY}/{version}/clusterqueues/shared/pendingworkloads"
    whole = json.loads(asking.kubectl("get", "--raw", raw))
    assert (whole["kind"], whole["apiVersion"]) == (
        "PendingWorkloadsSummary",
        f"visibility.kueue.x-k8s.io/{version}",
    )
    names = [(each["metadata"]["namespace"], each["localQueueName"]) for each in whole["items"]]
    assert sorted(names) == sorted((team, f"door-of-{team}") for team in TEAMS)
    assert [each["positionInClusterQueue"] for each in whole["items"]] == [0, 1]
    assert [each["metadata"]["ownerReferences"][0]["kind"] for each in whole["items"]] == ["Job", "Job"]
    assert json.loads(asking.kubectl("get", "--raw", f"{raw}?offset=1&limit=5"))["items"] == whole["items"][1:]
    assert json.loads(asking.kubectl("get", "--raw", f"{raw}?limit=1"))["items"] == whole["items"][:1]
    for team in TEAMS:
        local = f"{VISIBILITY}/{version}/namespaces/{team}/localqueues/door-of-{team}/pendingworkloads"
        (item,) = asking.ask(team, local).json["items"]
        assert (item["metadata"]["namespace"], item["positionInLocalQueue"]) == (team, 0)
    assert asking.ask(TEAMS[1], local.replace(TEAMS[1], TEAMS[0])).code == 403
    assert asking.ask(TEAMS[0], f"{VISIBILITY}/{version}/clusterqueues/none/pendingworkloads").code == 404


def test_nobody_is_answered_at_the_port_without_a_token_that_counts(asking: Viewers) -> None:
    controller, cluster = asking.controller, asking.controller.cluster
    own = TEAMS[0]
    uid = asking.kubectl("get", "serviceaccount", own, "-n", own, "-o", "jsonpath={.metadata.uid}")
    key = (cluster.paths.pki / "sa.key").read_bytes()

    def code(token: str) -> int:
        return directly(controller, PENDING, {"Authorization": f"Bearer {token}"} if token else {}).code

    assert code(asking.tokens[own]) == 200
    assert code(viewers.signed(f"{own}/{own}", uid, key=key, lives_s=600)) == 200, "the way of signing is right"
    assert code(viewers.signed(f"{own}/{own}", uid, key=key, lives_s=-60)) == 401, "expired"
    strangers = new_authority(time.time()).key
    assert code(viewers.signed(f"{own}/{own}", uid, key=strangers, lives_s=600)) == 401, "forged"
    assert code("") == 401
    assert code(asking.tokens["nobody"]) == 403
    assert asking.ask("nobody", PENDING).code == 403
    for path in ("/apis", "/openapi/v2", "/metrics", "/api/v1/queues"):
        assert directly(controller, path, {}).code == 401
    log = controller.log.read_text()
    assert not [token for token in asking.tokens.values() if token in log]


def test_the_page_is_for_those_who_are_signed_in_and_shows_each_what_he_may_see(asking: Viewers) -> None:
    """By the bytes of its events: through the port with a token, and through the API server as the command does it."""
    controller, events = asking.controller, "/page/events?topics=queues,pending,workloads"
    stranger = directly(controller, "/", {})
    assert stranger.code == 401
    assert "default-src 'none'" in stranger.headers["Content-Security-Policy"]
    assert directly(controller, events, {}).code == 401
    assert directly(controller, events, {"Authorization": "Bearer forged"}).code == 401
    found = {
        team: viewers.begun(
            controller, events, {"Authorization": f"Bearer {asking.tokens[team]}"}, until=b"event: mark"
        )
        for team in TEAMS
    }
    for own, other in (TEAMS, TEAMS[::-1]):
        assert (own.encode() in found[own], other.encode() in found[own]) == (True, False)
        assert b"a workload of queue shared" in found[own]
    session = asking.ask(TEAMS[0], f"{VIEW}/page/session")
    assert (session.code, session.json["how"]) == (200, "kubeconfig"), session.body
    assert asking.ask("nobody", f"{VIEW}/page/session").code == 403


def test_headers_of_a_front_proxy_count_by_its_certificate_alone(asking: Viewers) -> None:
    controller = asking.controller
    master = {"X-Remote-User": "anybody", "X-Remote-Group": "system:masters"}
    assert directly(controller, PENDING, master).code == 401
    nobody = {"Authorization": f"Bearer {asking.tokens['nobody']}"}
    assert directly(controller, PENDING, master | nobody).code == 403
    with pytest.raises((ssl.SSLError, ConnectionError)):
        directly(controller, PENDING, master, certificate="kubelet-client")
    assert directly(controller, PENDING, master, certificate="front-proxy").code == 200


async def _crowded(asking: Viewers) -> None:
    """600 connections stand: of an account that is only refused, of nobody, and silent ones."""
    controller, tls = asking.controller, ssl.create_default_context(cadata=viewers.trusted(asking.controller.cluster))
    at, name = (controller.host, WEB_PORT), f"{ACCOUNT}.{NAMESPACE}.svc"
    token = f"Authorization: Bearer {asking.tokens['nobody']}\r\n"
    refused, stranger = (f"GET {PENDING} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode() for more in (token, ""))
    crowds = [
        await crowd.stand(at, count, tls=context, sources=sources, request=request, name=name if context else "")
        for count, context, sources, request in (
            (200, tls, 1, refused),
            (200, tls, 20, stranger),
            (100, tls, 100, b""),
            (100, None, 100, b""),
        )
    ]
    try:
        for path in (f"{VISIBILITY}/v1beta2", VIEW, PENDING):
            begun_s = time.monotonic()
            found = await asyncio.to_thread(asking.ask, TEAMS[0], path)
            assert (found.code, time.monotonic() - begun_s < 1.0) == (200, True), (path, found.body[:300])
        kubectl = asking.kubectl
        begun_s = time.monotonic()
        listed = await asyncio.to_thread(kubectl, "get", "--raw", PENDING)
        assert len(asking.items(listed)) == 2
        assert time.monotonic() - begun_s < 1.0 + 1.0, "kubectl starts, too"
        await asyncio.to_thread(kubectl, "create", "namespace", "bystander")
        await asyncio.to_thread(kubectl, "delete", "namespace", "bystander", "--timeout=60s")
        directly_s = time.monotonic()
        headers = {"Authorization": f"Bearer {asking.tokens[TEAMS[0]]}"}
        assert (await asyncio.to_thread(directly, controller, PENDING, headers)).code == 200
        assert time.monotonic() - directly_s < 1.0
        assert asking.available()
    finally:
        for each in crowds:
            await each.leave()


def test_an_account_without_any_right_takes_the_view_from_nobody(asking: Viewers) -> None:
    asyncio.run(_crowded(asking))


async def _walked(controller: InCluster, folder: Path) -> None:
    """Every listener of the controller's processes and of an agent, by the kernel, held against the page's table."""
    table = listeners.table()
    kubelet = StandInKubelet(folder / "kubelet")
    await kubelet.start()
    fleet = folder / "fleet.yaml"
    fleet.write_text("nodes: [{name: node-1, gpus: 1, product: NVIDIA A100-SXM4-40GB}]\n")
    agent = AgentProcess(folder, fleet, folder / "kubelet")
    agent.start()
    try:
        await kubelet.wait_for(lambda: "nvidia.com/gpu" in kubelet.endpoints)
        assert agent.process is not None
        assert controller.process is not None
        rows = {agent.port: "9400", controller.metrics_port: "8080", 8081: "8080", WEB_PORT: "8082", 443: "9443"}
        insecure = ssl.create_default_context()
        insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
        targets = []
        for program in (controller.process.pid, agent.process.pid):
            for pid, address, port in listeners.open_ports(program):
                assert port in rows, f"port {port} of {program} is not in the table"
                row, host = table.ports[rows[port]], "127.0.0.1" if address == "0.0.0.0" else address
                targets.append(
                    listeners.Target(
                        row, pid, (host, port), insecure if row.tls_s else None, f"{ACCOUNT}.{NAMESPACE}.svc"
                    )
                )
            for path in listeners.open_sockets(program):
                assert table.has_socket(path), f"socket {path} of {program} is not in the table"
        assert {each.row.name for each in targets} == table.ports.keys()
        await asyncio.gather(*(each.patient() for each in targets))
        for each in targets:
            await each.greedy()
    finally:
        agent.kill()
        await kubelet.stop()


def test_every_listener_holds_to_its_row_of_the_table(controller: InCluster) -> None:
    with tempfile.TemporaryDirectory(prefix="t") as folder:  # short: a socket's path has 107 bytes at most
        asyncio.run(_walked(controller, Path(folder)))


def test_a_certificate_that_ends_soon_is_replaced_without_a_restart(asking: Viewers, replaced: bytes) -> None:
    """The controller looks once a minute."""
    until(lambda: viewers.presented(asking.controller) != replaced, "another certificate is shown", timeout_s=150)
    assert asking.ask(TEAMS[0], PENDING).code == 200
    assert asking.controller.process is not None
    assert asking.controller.process.poll() is None


def test_kubectl_finds_and_reads_what_is_served(asking: Viewers) -> None:
    """The API server takes up once a minute what there is to discover."""

    def listed() -> set[str]:
        return set(asking.kubectl("api-resources", "--api-group=view.tessera.dev", "-o", "name").split())

    wanted = {f"{each}.view.tessera.dev" for each in ("queueviews", "workloadviews", "localqueueviews", "forecasts")}
    until(lambda: listed() == wanted, "kubectl knows what is served", timeout_s=180)
    (shown,) = [
        each["status"] for each in json.loads(asking.kubectl("get", "queueviews", "-o", "json"))["items"]
        if each["metadata"]["name"] == "shared"
    ]  # fmt: skip
    assert shown["pending"] == {"active": 0, "parked": 2}
    assert shown["admitted"] == 2
