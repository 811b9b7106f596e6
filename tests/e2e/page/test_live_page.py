"""The page of a real controller, in Chromium: a token signs in, and what the cluster does is seen as it happens.

One node has a kubelet and an agent on simulated GPUs; a Job runs on four of its eight, another waits for more. A real
Prometheus scrapes controller and agent, each second.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from controller.cluster.config.pagesettings import CALLBACK
from controller.people.history.record import Of
from controller.people.history.recorder_shell import Record, Recorder
from controller.people.page.session import HERE
from hack import prometheus
from hack.agents import free_port
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.layout import MARK_ENV
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.prometheus import Prometheus
from kube.testing.clocks import VirtualClock
from tests.support.e2e.incluster import WEB_PORT, InCluster
from tests.support.e2e.lab import FAST, GPU, ROOT, Agent, Lab, fleet, until
from tests.support.e2e.terminal import terminal
from tests.support.hang import HANG_S
from tests.support.oidc import OidcServer, provided_apart
from tests.support.page.browser import TREE, Browser, chromium

pytestmark = pytest.mark.e2e

CONFIG = {"tessera": {"policy": "tessera", "pendingCondition": {"after": "1s"}}}
GROUP = "kueue.x-k8s.io"
LEVELS = ("example.com/block", "example.com/rack", "kubernetes.io/hostname")
OFFERED = 'return [...document.querySelectorAll("table.small td.number")].map((at) => at.textContent)'
POINTS = (
    "const path = document.querySelector(`section[aria-label='${arguments[0]}'] path.line`).getAttribute('d');"
    "return [...path.matchAll(/[ML]\\s*[\\d.-]+[ ,]+([\\d.-]+)/g)].map((at) => at[1])"
)
"""The heights of the first line of a panel's chart, point by point."""
BUSY, USED_MIB = 0.75, 20 * 1024
"""Of each GPU that the Job has."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    for program in ("kubernetes", "containerd", "helm"):
        binaries.build(program)
    with Cluster.up(f"page-{os.getpid()}", Spec()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    with provided_apart() as server:
        yield server


class Ports(NamedTuple):
    """Where metrics are."""

    agent: int
    controller: int


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports(free_port(), free_port())


@pytest.fixture(scope="module")
def past(cluster: Cluster, ports: Ports, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prometheus.ensure()
    environment = {**os.environ, MARK_ENV: str(cluster.paths.home)}
    targets = [f"127.0.0.1:{port}" for port in ports]
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets).running(environment) as one:
        yield one


@pytest.fixture(scope="module")
def controller(
    cluster: Cluster, provider: OidcServer, ports: Ports, past: Prometheus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InCluster]:
    folder = tmp_path_factory.mktemp("controller")
    controller = InCluster(cluster, folder, {}, visible=True, metrics_port=ports.controller)
    oidc = provider.settings(f"https://{controller.host}:{WEB_PORT}{CALLBACK}")
    page = {"oidc": oidc, "prometheus": {"url": f"http://127.0.0.1:{past.port}"}}
    controller.config = {"tessera": {**CONFIG["tessera"], "page": page}}
    controller.install()
    with controller.running():
        yield controller


@pytest.fixture(scope="module")
def agent(controller: InCluster, ports: Ports, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    node = fleet(path, gpus=8, product="NVIDIA H100 80GB HBM3", nvlink="full")
    bench = Lab(controller.cluster, controller.cluster.node("node-1"))
    controller.cluster.kubectl("label", "node", "node-1", f"{LEVELS[0]}=b1", f"{LEVELS[1]}=r7")
    with bench.agent(node, f"version: v1\nhealth: {FAST}\nmetrics: {{interval: 1}}\n", port=ports.agent) as agent:
        bench.await_amounts({GPU: 8})
        yield agent


def objects() -> Iterator[dict[str, Any]]:
    def made(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
        return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}

    yield made("Topology", "dc", {"levels": [{"nodeLabel": level} for level in LEVELS]})
    yield made("ResourceFlavor", "h100", {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "dc"})
    quota = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": "8"}]}
    groups = [{"coveredResources": [GPU], "flavors": [quota]}]
    yield made("ClusterQueue", "research", {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": groups})
    yield made("LocalQueue", "jobs", {"clusterQueue": "research"}, namespace="default")
    yield made("Cohort", "all", {"parentName": "org"})
    yield made("ResourceFlavor", "a100", {"nodeLabels": {"none": "here"}})
    kept = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": "4", "lendingLimit": "1"}]}
    other = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": "2"}]}
    groups = [{"coveredResources": [GPU], "flavors": [kept, other]}]
    yield made("ClusterQueue", "vision", {"namespaceSelector": {}, "cohortName": "online", "resourceGroups": groups})
    yield made("Cohort", "online", {"parentName": "org"})
    groups = [{"coveredResources": [GPU], "flavors": [{**quota, "name": "a100"}]}]
    yield made("ClusterQueue", "alone", {"namespaceSelector": {}, "resourceGroups": groups})


def job(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": TEST_IMAGE, "resources": {"limits": {GPU: str(gpus)}}}
    container |= {"imagePullPolicy": "Never", "command": ["sh", "-c", "trap 'exit 143' TERM; sleep 86400 & wait"]}
    spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}
    labels = {f"{GROUP}/queue-name": "jobs"}
    template = {"spec": {**spec, "automountServiceAccountToken": False}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"suspend": True, "template": template},
    }


@pytest.fixture(scope="module")
def busy(controller: InCluster, agent: Agent, past: Prometheus) -> list[int]:
    """The GPUs that the Job has, at work; Prometheus knows of it."""
    for each in (*objects(), job("runs", 4)):
        controller.cluster.kubectl("apply", "-f", "-", input=json.dumps(each))
    report = agent.until(lambda report: len(report.holders) == 4, f"four are held (controller's log: {controller.log})")
    places = [device.id for resource in report.resources for device in resource.devices]
    held = sorted(places.index(each.device) for each in report.holders)
    for gpu in held:
        agent.sim(gpu=gpu, load={"smUtil": BUSY, "memUsedMiB": USED_MIB})
    queue = 'kueue_cluster_queue_resource_reservation{cluster_queue="research"}'
    until(lambda: [value for _, value in past.query(queue)] == [4.0], "the queue's use is recorded")
    at_work = f"tessera_gpu_busy_ratio == {BUSY}"
    until(lambda: set(past.values(at_work, "gpu")) == {(str(gpu),) for gpu in held}, f"{held} are seen at work")
    return held


@pytest.fixture(scope="module")
def browser(
    controller: InCluster,
    busy: list[int],  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Browser]:
    """Signed in by the token of an account that may see all."""
    kubectl = controller.cluster.kubectl
    kubectl("apply", "-f", "-", input=json.dumps(job("waits", 6)))
    kubectl("create", "serviceaccount", "reader", "-n", "default")
    kubectl("create", "clusterrolebinding", "reader", "--clusterrole=cluster-admin", "--serviceaccount=default:reader")
    token = kubectl("create", "token", "reader", "-n", "default", "--duration=1h").strip()
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        browser.size(1440, 900)
        sign_in(browser, controller, token)
        yield browser


def sign_in(browser: Browser, controller: InCluster, token: str) -> None:
    address = f"https://{controller.host}:{WEB_PORT}/"

    def asked_for_a_token() -> bool:
        """The port may be served a moment later than the webhooks that ``controller`` waits for."""
        browser.open(address)
        return "Kubernetes token" in browser.text("form")

    browser.until(asked_for_a_token, "a form to sign in")
    browser.js("document.getElementById('token').value = arguments[0]", token)
    browser.js("document.querySelector('form button').click()")
    browser.until_text("on 1 node")
    browser.errors()  # The answer to who is not signed in is one, and the browser may tell of it late.


def test_every_view_tells_what_the_cluster_does(browser: Browser) -> None:
    browser.go("#/fleet?view=table")
    browser.until_text("4 of 8 in use")
    assert "b1 · r7" in browser.text()
    browser.go("#/queues")
    browser.until_text("research")
    browser.go("#/queues/research")
    browser.until_text("History by hour")
    browser.go("#/pending")
    browser.until_text("default/waits")
    assert "6 gpu" in browser.text("virtual-table")
    browser.go("#/workloads")
    browser.until_text("default/runs")
    for name, wanted in (("waits", "Why it waits"), ("runs", "Its GPUs")):
        browser.go("#/pending" if name == "waits" else "#/workloads")
        browser.until_text(f"default/{name}")
        browser.js("document.querySelector('virtual-table td a').click()")
        browser.until_text(wanted)
    browser.until_text("node-1 #0")
    browser.go("#/nodes/node-1")
    browser.until_text("each to each")
    browser.go("#/waste")
    browser.until_text("no pod holds it")
    browser.go("#/whatif")
    browser.js("document.querySelector('form button[type=submit]').click()")
    browser.until_text("What was submitted", "section[aria-label=Outcome]")
    assert browser.violations() == []
    assert browser.errors() == []


def test_queues_of_nested_cohorts_stand_below_them_and_add_up(browser: Browser) -> None:
    browser.go("#/queues")
    browser.until_text("3 never lent")
    rows = [tuple(row) for row in browser.js(TREE)]
    assert rows == [
        (0, "cohort", "org", 4, 14),
        (1, "cohort", "all", 4, 8),
        (2, "queue", "research", 4, 8),
        (1, "cohort", "online", 0, 6),
        (2, "queue", "vision", 0, 6),
        (0, "queue", "alone", 0, 8),
    ]
    browser.go("#/queues/vision")
    browser.until(lambda: re.search("Queues\\W+org\\W+online\\W+Open", browser.text()), "the cohorts above it")


def test_what_prometheus_recorded_is_drawn_by_hour_and_on_each_gpu(browser: Browser, busy: list[int]) -> None:
    browser.go("#/nodes/node-1")
    for gpu in range(8):
        card = f"article[aria-label='GPU {gpu}']"
        browser.until_text(f"{BUSY:.0%}".replace("%", " %") if gpu in busy else "0 %", card)
        assert ("20 GiB" in browser.text(card)) == (gpu in busy)
    assert drawn(browser, "Use by hour") == ["busy (gpu)", "held (gpu)", "there (gpu)"]
    assert at_the_end(browser, "Use by hour", "there") == 8
    browser.go("#/queues/research")
    assert drawn(browser, "History by hour") == ["used (gpu)", "nominal (gpu)", "borrowed (gpu)"]
    assert at_the_end(browser, "History by hour", "nominal") == 8
    # The hour's samples may begin with one from before the Job had its GPUs.
    assert 0 < at_the_end(browser, "History by hour", "used") <= 4
    browser.go("#/fleet")
    assert drawn(browser, "Use by hour") == ["busy (gpu)", "held (gpu)", "there (gpu)"]
    assert at_the_end(browser, "Use by hour", "there") == 8
    browser.go("#/workloads")
    browser.until_text("default/runs")
    browser.js("document.querySelector('virtual-table td a').click()")
    assert drawn(browser, "Use by hour") == ["busy (gpu)", "held (gpu)"]
    assert 0 < at_the_end(browser, "Use by hour", "busy") < at_the_end(browser, "Use by hour", "held") <= 4
    browser.go("#/waste")
    browser.until_text("Nothing is idle")
    assert browser.errors() == []


def drawn(browser: Browser, panel: str) -> list[str]:
    """The lines of a panel's chart."""
    selector = f"section[aria-label='{panel}'] .legend"
    browser.until(lambda: browser.text(selector), f"a chart in {panel}: {browser.text()[:2000]!r}")
    return browser.text(selector).split("\n")


def at_the_end(browser: Browser, panel: str, line: str) -> float:
    """The last value of a chart's line, as it is read aloud."""
    words = browser.js(f"return document.querySelector(\"section[aria-label='{panel}'] svg\").ariaLabel")
    found = re.search(rf"\b{line} ([0-9.]+)", words)
    assert found is not None, words
    return float(found[1])


def one_is_out_of_service_everywhere(browser: Browser, controller: InCluster) -> None:
    """What the fleet, the node, the API server, the command and the metrics count."""
    legend = (
        'return Object.fromEntries([...document.querySelectorAll(".map-panel .legend li")]'
        '.map((at) => [at.querySelector(".swatch").className.split("is-")[1], at.querySelector("b")?.textContent]))'
    )
    on_the_map = {state: int(count) for state, count in browser.js(legend).items() if count and int(count)}
    used = sum(on_the_map.get(state, 0) for state in ("held", "idle"))
    assert on_the_map["fault"] == 1
    assert used + on_the_map["free"] + 1 == 8
    browser.go("#/nodes/node-1")
    browser.until_text("1 GPU out of service")
    assert f"{used} of 8" in browser.text("dl.figures")
    browser.until_text("In service")
    browser.until(lambda: browser.js(OFFERED) == ["8", "7"], "one of eight is not in service")
    until(lambda: amounts(controller) == [8, 7], "so says the kubelet")
    told = top(controller)
    assert (told["inUse"], told["free"], told["fault"]) == (used, on_the_map["free"], 1)
    until(lambda: counted(controller) == {"held": used, "free": on_the_map["free"], "fault": 1}, "so say the metrics")


def top(controller: InCluster) -> dict[str, int]:
    """The sums of ``tessera top``."""
    command = [sys.executable, "-c", "from cli.main import main; main()", "top", "--once", "-o", "json"]
    kubeconfig = ("--kubeconfig", str(controller.cluster.kubeconfig))
    done = subprocess.run([*command, *kubeconfig], cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANG_S)
    sums: dict[str, int] = json.loads(done.stdout)["totals"]
    return sums


def amounts(controller: InCluster) -> list[int]:
    """What the node has, and what of it pods can get."""
    node = json.loads(controller.cluster.kubectl("get", "node", "node-1", "-o", "json"))
    return [int(node["status"][which][GPU]) for which in ("capacity", "allocatable")]


def metrics(controller: InCluster) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{controller.metrics_port}/metrics", timeout=HANG_S) as answer:
        return str(answer.read().decode())


def counted(controller: InCluster) -> dict[str, int]:
    """GPUs by state, where there are some, as the leader's metrics say."""
    lines = re.findall(r'^tessera_gpus\{.*?state="(\w+)".*?\} ([0-9.]+)$', metrics(controller), re.MULTILINE)
    return {state: int(float(count)) for state, count in lines if float(count)}


def test_a_fault_is_seen_without_a_reload_and_so_is_its_end(
    browser: Browser, agent: Agent, controller: InCluster
) -> None:
    browser.go("#/fleet?node=node-1")
    browser.until_text("GPU 7", "aside")
    agent.sim(gpu=7, xid=79)
    browser.until_text("Out of service", "aside")
    one_is_out_of_service_everywhere(browser, controller)
    browser.go("#/nodes/node-1/gpus/7")
    browser.until_text("What to do: ")
    agent.sim(gpu=7, reset=True)
    browser.until(lambda: "What to do: " not in browser.text(), "the GPU is back")


def test_a_workload_that_ends_makes_room_before_the_readers_eyes(browser: Browser, controller: InCluster) -> None:
    browser.go("#/pending")
    browser.until_text("default/waits")
    controller.cluster.kubectl("delete", "job", "runs", "-n", "default", "--wait", "--timeout=120s")
    browser.until_text("Nothing waits")
    browser.go("#/workloads")
    browser.until_text("default/waits")


def test_signing_out_ends_what_is_shown(browser: Browser) -> None:
    sign_out(browser)
    assert browser.text(".who") == ""


def test_the_companys_login_signs_in_with_the_rights_of_that_user(browser: Browser, controller: InCluster) -> None:
    kubectl = controller.cluster.kubectl
    sign_out(browser)
    browser.go("#/queues")
    browser.until_text("Sign in by Company login", "#oidc")
    browser.js("document.querySelector('#oidc a').click()")
    browser.until_text("Partly visible", ".foot")
    browser.until_text("oidc:alice", ".who")
    assert browser.js("return location.hash") == "#/queues", "where the reader was"
    role = "t-tessera-controller-queue-viewer"
    kubectl("create", "clusterrolebinding", "people", f"--clusterrole={role}", "--group=oidc:people")
    # Not as often as a browser can: files are let to one address a hundred a second, and a page has forty.
    browser.until(lambda: "research" in shown(browser), "the queues, once the group may see them", 90.0, every_s=2.0)
    assert browser.js("return document.cookie").partition("=")[0] == HERE, "no script reads the session"
    sign_out(browser)
    browser.until_text("Sign in by Company login", "#oidc")


def test_the_command_opens_the_page_with_the_rights_of_the_kubeconfig(
    browser: Browser, controller: InCluster, tmp_path: Path
) -> None:
    """What it starts as the browser notes its argument; Chromium then opens just that."""
    opener, noted = tmp_path / "opener", tmp_path / "noted"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {noted}.new && mv {noted}.new {noted}\n')
    opener.chmod(0o755)
    # A shell that runs the tests in the background has SIGINT ignored, by all that they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    words = [sys.executable, "-c", f"{heard}; from cli.main import main; main()", "page"]
    env = {**os.environ, "KUBECONFIG": str(controller.cluster.kubeconfig), "BROWSER": str(opener)}
    with subprocess.Popen(words, env={**env, "HOME": str(tmp_path)}, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            until(noted.exists, "a browser is started")
            argument = noted.read_text()
            assert argument.startswith(f"file://{tmp_path}/tessera-page-"), argument
            browser.open(argument)
            browser.until_text("on 1 node")
            browser.go("#/queues")
            browser.until_text("research")
            assert browser.js("return [location.hostname, location.pathname]") == ["127.0.0.1", "/"]
            assert browser.js("return document.cookie") == ""
            assert "Partly visible" not in browser.text(".foot"), "an administrator's kubeconfig"
            browser.open(argument)
            browser.until(lambda: "Start it again for a new one" in browser.text("body"), "the address worked once")
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(10) == 0
            finally:
                process.kill()
    assert list(tmp_path.glob("tessera-page-*")) == []


@pytest.mark.usefixtures("browser")  # It has put the jobs there.
def test_a_terminal_follows_the_fleet_and_has_its_screen_back_afterwards(controller: InCluster, agent: Agent) -> None:
    report = agent.until(lambda report: bool(report.holders), "a job holds GPUs")
    held = {each.device for each in report.holders}
    free = next(index for index in range(8) if agent.health(index).uuid not in held)
    with terminal("top", {"KUBECONFIG": str(controller.cluster.kubeconfig)}) as shell:
        shell.tessera("top", "--every", "1")
        shell.until(f"8 GPUs: {len(held)} in use")
        assert shell.is_alternate
        agent.sim(gpu=free, xid=79)
        shell.until("1 out of service")
        shell.until("XID 79")
        shell.resize(80, 14)
        shell.until("Nodes")
        shell.until_gone("XID 79")  # a line for each node, where there is no room for each GPU
        agent.sim(gpu=free, reset=True)
        shell.keys("C-c")
        assert shell.ended() == 0
        assert not shell.is_alternate
    agent.until(lambda report: all(one.state == "Healthy" for one in report.health), "the GPU serves again")


@pytest.mark.usefixtures("browser", "agent")
def test_a_terminal_has_colours_and_what_is_waited_for_and_a_pipe_has_neither(
    controller: InCluster, tmp_path: Path
) -> None:
    manifest = tmp_path / "third.json"
    manifest.write_text(json.dumps(job("third", 8)))
    kubectl = controller.cluster.kubectl
    with terminal("shell", {"KUBECONFIG": str(controller.cluster.kubeconfig)}) as shell:
        shell.tessera("top", "--once")
        assert shell.ended() == 0
        assert "\x1b[1m" in shell.coloured()
        shell.tessera("top", "--once", pipe="| cat")
        assert shell.ended() == 0
        assert "\x1b[" not in shell.coloured()
        shell.tessera("submit", "--wait", str(manifest))
        shell.until("1 of 1 not admitted yet, 4 s")
        assert "needs 8" in shell.until("Likely start").lower()
        kubectl("delete", "job", "runs", "waits", "-n", "default", "--ignore-not-found", "--wait", "--timeout=120s")
        shell.until(": Admitted")
        assert shell.ended() == 0
        assert not any("not admitted yet" in line for line in shell.screen())


def sign_out(browser: Browser) -> None:
    """Where nobody is signed in, nothing but the form is seen already."""
    browser.js("document.querySelector('button[aria-label=\"Sign out\"]')?.click()")
    browser.until_text("Kubernetes token", "form")


def shown(browser: Browser) -> str:
    """After a reload: rights that were withheld are asked about again within seconds."""
    browser.js("location.reload()")
    browser.until(lambda: browser.text("h1") != "" and browser.text(".who") != "", "the page")
    return browser.text()


HOURS, USED_THEN = 30, 3.0
"""What the record has of the time before: so many hours, in each of which so many GPUs were used."""


@pytest.mark.usefixtures("agent")  # Whose GpuNode is recorded.
def test_without_prometheus_the_page_has_the_controllers_own_record(
    browser: Browser, controller: InCluster, tmp_path: Path
) -> None:
    """The last scene: the controller goes on with the default configuration, and the record of the hours before."""
    asyncio.run(recorded_before(tmp_path))
    controller.stop()
    file = controller.folder / "controller.yaml"
    config = yaml.safe_load(file.read_text())
    config["tessera"]["page"] = {"history": {"folder": str(tmp_path)}}
    file.write_text(yaml.safe_dump(config))
    with controller.running():
        token = controller.cluster.kubectl("create", "token", "reader", "-n", "default", "--duration=1h").strip()
        sign_in(browser, controller, token)
        browser.go("#/queues/research")
        browser.until(lambda: "waiting" in drawn(browser, "History by hour"), "a sample of the controller")
        assert drawn(browser, "History by hour") == ["used (gpu)", "nominal (gpu)", "borrowed (gpu)", "waiting"]
        assert at_the_end(browser, "History by hour", "nominal") == 8
        heights = browser.js(POINTS, "History by hour")
        assert len(heights) == 24, "a day, of which the controller saw the last hour alone"
        assert len(set(heights[:-1])) == 1, heights
        browser.go("#/nodes/node-1")
        assert drawn(browser, "Use by hour") == ["held (gpu)", "there (gpu)"]
        assert at_the_end(browser, "Use by hour", "there") == 8
        browser.go("#/fleet")
        assert drawn(browser, "Use by hour") == ["held (gpu)", "there (gpu)"]
        assert browser.errors() == []


async def recorded_before(folder: Path) -> None:
    """Hours of a queue, written by the product's recorder on a clock of its own, up to the hour before this one."""
    this_hour_s = time.time() // 3600 * 3600
    clock = VirtualClock(wall_s=this_hour_s - HOURS * 3600)
    sample = {Of("queue", "research", "used", GPU): USED_THEN, Of("queue", "research", "nominal", GPU): 8.0}

    async def nobody(_: int) -> bytes | None:
        return None

    recorder = Recorder(Record(folder), lambda: sample, clock, nobody)
    while clock.wall() < this_hour_s:
        assert await recorder.look()
        clock.advance(600)
    await recorder.close()
