"""A real cluster from up to down: what it offers, what it survives, and that it leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hack.cluster import TEST_IMAGE, Cluster, ClusterError, NodeHost, Spec, UsageError, processes, waiting
from hack.cluster.programs import binaries, images
from tests.support import machine

pytestmark = pytest.mark.e2e

ROOT = Path("/var/tmp/tsr-test")
CHECKOUT = Path(__file__).resolve().parents[3]
NODES = ("left", "right")
STARTS_S = 120.0
"""Forty on an idle machine. Here others work beside."""


def until(ready: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    waiting.until(ready, what, timeout_s=timeout_s)


def pod(name: str, *, node: str, script: str = "exec sleep 100000", image: str = TEST_IMAGE) -> str:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}
    where = {"kubernetes.io/hostname": node}
    spec = {"terminationGracePeriodSeconds": 1, "nodeSelector": where, "containers": [container]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def run_pod(cluster: Cluster, name: str, *, node: str | None = None, **options: str) -> None:
    cluster.kubectl("create", "-f", "-", input=pod(name, node=node or cluster.node().name, **options))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")


def up_in_background(name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hack.cluster", "up", "--name", name, "--state-dir", str(ROOT)]
    return subprocess.Popen(command, cwd=CHECKOUT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The first build takes minutes: not inside a test's own deadline."""
    for name in ("kubernetes", "containerd", "kwok"):
        binaries.build(name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    spec = Spec(nodes=NODES, kwok_nodes=2, kwok_capacity={"nvidia.com/gpu": "8"})
    with Cluster.up(f"s-{os.getpid()}", spec, root=ROOT) as running:
        yield running


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of the test's own, not started; taken down at the end whatever happens."""
    handle = Cluster.of(f"t-{os.getpid()}-{abs(hash(request.node.name)) % 10**6}", root=ROOT)
    yield handle
    handle.down()


@pytest.fixture
def host(cluster: Cluster) -> NodeHost:
    return cluster.node("right")


def test_a_pod_runs_and_its_logs_and_commands_come_through(cluster: Cluster) -> None:
    run_pod(cluster, "talks", script="echo hello; exec sleep 100000")
    # A container runs before the kubelet has written down what it said.
    waiting.until(lambda: cluster.kubectl("logs", "talks") == "hello\n", "its log", timeout_s=120)
    assert cluster.kubectl("exec", "talks", "--", "cat", "/etc/passwd").startswith("root:")
    assert cluster.kubectl("exec", "-i", "talks", "--", "sh", input="echo from stdin\n") == "from stdin\n"


def test_pods_of_different_nodes_reach_each_other(cluster: Cluster) -> None:
    for node in NODES:
        run_pod(cluster, f"on-{node}", node=node)
    address = cluster.kubectl("get", "pod", "on-right", "-o", "jsonpath={.status.podIP}")
    assert "1 packets received" in cluster.kubectl("exec", "on-left", "--", "ping", "-c1", "-W5", address)


def test_a_pod_reaches_the_api_with_its_service_account(cluster: Cluster) -> None:
    run_pod(cluster, "client")
    script = 'nc -w5 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null && echo reached'
    assert "reached" in cluster.kubectl("exec", "client", "--", "sh", "-c", script)
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    token = cluster.kubectl("exec", "client", "--", "cat", f"{folder}/token")
    who = cluster.kubectl("--token", token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who == "system:serviceaccount:default:default"
    service = f"https://{cluster.state.addresses.api_service}/readyz"
    assert waiting.answers(service, ca=str(cluster.paths.pki / "ca.crt"), token=token)


def test_tokens_can_be_made_and_roles_hold(cluster: Cluster) -> None:
    token = cluster.kubectl("create", "token", "default").strip()
    assert cluster.kubectl("auth", "can-i", "delete", "nodes").strip() == "yes"
    with pytest.raises(ClusterError, match="forbidden"):
        cluster.kubectl("--token", token, "get", "nodes")


def test_every_node_has_a_kubelet_folder_of_its_own(cluster: Cluster) -> None:
    for name in NODES:
        folder = cluster.node(name).kubelet_dir
        assert (folder / "device-plugins/kubelet.sock").is_socket()
        assert (folder / "pod-resources/kubelet.sock").is_socket()
    (cluster.node("left").kubelet_dir / "device-plugins/mine").touch()
    assert not (cluster.node("right").kubelet_dir / "device-plugins/mine").exists()


def test_played_nodes_run_pods_and_end_jobs(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f", "-", input=pod("played", node="kwok-0"))
    finite = json.loads(pod("finite", node="kwok-1"))
    finite["metadata"]["annotations"] = {"tessera.test/complete-after": "1s"}
    cluster.kubectl("create", "-f", "-", input=json.dumps(finite))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/played", "--timeout=120s")
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/finite", "--timeout=120s")
    cluster.kubectl("delete", "pod", "played", "finite", "--timeout=120s")
    gpus = cluster.kubectl("get", "node", "kwok-0", "-o", r"jsonpath={.status.allocatable.nvidia\.com/gpu}")
    assert gpus == "8"


def test_an_image_of_one_s_own_can_be_loaded(cluster: Cluster, host: NodeHost, tmp_path: Path) -> None:
    layer = images.busybox_layer(Path("/bin/busybox").read_bytes(), ["sh", "sleep", "cat"])
    image = images.Image(tag="tessera.test/own:7", layer=layer, command=["/bin/sh"], environment={"GREETING": "hey"})
    archive = tmp_path / "own.tar"
    archive.write_bytes(images.archive([image], machine=os.uname().machine))
    host.load_image(archive)
    run_pod(cluster, "own", node=host.name, image="tessera.test/own:7", script="echo $GREETING; exec sleep 100000")
    assert cluster.kubectl("logs", "own") == "hey\n"
    archive.write_text("no image")
    with pytest.raises(ClusterError, match="importing"):
        host.load_image(archive)


def test_a_kubelet_goes_and_comes_and_its_pods_run_on(cluster: Cluster, host: NodeHost) -> None:
    run_pod(cluster, "survivor", node=host.name)

    def start_of_pod() -> str | None:
        with suppress(ClusterError):
            return cluster.kubectl("exec", "survivor", "--", "stat", "-c", "%Y", "/proc/1")
        return None

    started = start_of_pod()
    assert started is not None
    [before] = host.running("kubelet")
    host.kill_kubelet()
    assert host.running("kubelet") == []
    assert f"kubelet of {host.name} is not running" in cluster.problems()
    host.start_kubelet()
    host.restart_kubelet()
    [after] = host.running("kubelet")
    assert after != before
    assert cluster.problems() == []
    # A kubelet says that it is healthy before it has its pods from the API.
    until(lambda: start_of_pod() is not None, "the pod as the new kubelet sees it")
    assert start_of_pod() == started


def test_a_second_up_finds_it_running_and_other_settings_or_programs_are_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cluster.state
    said: list[str] = []
    cluster.start(before.spec, say=said.append)
    assert said == [f"cluster {cluster.name} is already running"]
    assert cluster.state == before
    with pytest.raises(UsageError, match="other settings"):
        cluster.start(Spec())
    monkeypatch.setattr(binaries, "build", lambda name: Path("/elsewhere") / name)
    with pytest.raises(UsageError, match="other programs"):
        cluster.start(before.spec)


def test_status_tells_programs_what_they_need(cluster: Cluster) -> None:
    command = [
        sys.executable,
        "-m",
        "hack.cluster",
        "status",
        "--name",
        cluster.name,
        "--state-dir",
        str(ROOT),
        "-o",
        "json",
    ]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["running"]
    assert found["kubeconfig"] == str(cluster.kubeconfig)
    assert [node["kubeletDir"] for node in found["nodes"]] == [str(host.kubelet_dir) for host in cluster.nodes]


def test_secrets_are_for_their_owner_only(cluster: Cluster) -> None:
    assert cluster.paths.home.stat().st_mode & 0o077 == 0
    assert cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_down_leaves_nothing_behind(named: Cluster) -> None:
    before = machine.surroundings()
    start = time.monotonic()
    named.start(Spec())
    assert time.monotonic() - start < STARTS_S
    run_pod(named, "one")
    there = machine.traces(named.paths)
    assert all(there[kind] for kind in ("processes", "links", "sockets", "cgroups", "files")), there
    named.down()
    assert not any(machine.traces(named.paths).values()), machine.traces(named.paths)
    after = machine.surroundings()
    assert {kind: after[kind] ^ before[kind] for kind in before} == {kind: set() for kind in before}


@pytest.mark.parametrize("reached", ["bridge", "init-node-1", "apiserver", "kubelet"])
def test_an_up_killed_in_the_middle_is_cleaned_by_down(named: Cluster, reached: str) -> None:
    before = machine.surroundings()
    with up_in_background(named.name) as starting:
        until(lambda: _has_reached(named, reached), reached)
        starting.send_signal(signal.SIGKILL)
    assert any(machine.traces(named.paths).values())
    named.down()
    assert not any(machine.traces(named.paths).values()), machine.traces(named.paths)
    after = machine.surroundings()
    assert {kind: after[kind] ^ before[kind] for kind in before} == {kind: set() for kind in before}


def _has_reached(cluster: Cluster, part: str) -> bool:
    if part == "bridge":
        return bool(machine.traces(cluster.paths)["links"])
    if part == "kubelet":
        return any(" kubelet " in line for line in machine.traces(cluster.paths)["processes"])
    return cluster.paths.state.exists() and part in cluster.state.processes


def test_an_up_after_a_killed_one_starts_afresh(named: Cluster) -> None:
    with up_in_background(named.name) as starting:
        until(lambda: _has_reached(named, "apiserver"), "an API server")
        starting.send_signal(signal.SIGKILL)
    [orphan] = [each for each in named.state.processes.items() if each[0] == "apiserver"]
    named.start(Spec())
    assert not processes.alive(orphan[1])
    run_pod(named, "afresh")


def test_killed_parts_are_reported_and_up_replaces_them(named: Cluster) -> None:
    named.start(Spec())
    old = named.state.processes
    os.kill(old["etcd"].pid, signal.SIGKILL)
    os.kill(old["init-node-1"].pid, signal.SIGKILL)
    until(lambda: not processes.alive(old["etcd"]) and not processes.alive(old["init-node-1"]), "their end")
    assert {"etcd is not running", "init-node-1 is not running"} <= set(named.problems())
    named.start(Spec())
    assert named.problems() == []
    assert not any(processes.alive(each) for each in old.values())


def test_down_finds_a_cluster_whose_folder_is_gone(named: Cluster) -> None:
    named.start(Spec())
    run_pod(named, "lost")
    shutil.rmtree(named.paths.home, ignore_errors=True)
    assert machine.traces(named.paths)["processes"]
    named.down()
    assert not any(machine.traces(named.paths).values()), machine.traces(named.paths)


def test_down_ends_daemons_that_were_lent_to_the_cluster(named: Cluster) -> None:
    named.start(Spec(nodes=()))
    daemon = named.spawn("lent", ["/bin/sh", "-c", "echo $WORD; exec sleep 100000"], extra_env={"WORD": "lent"})
    until(lambda: named.log("lent").read_text() == "lent\n", "its word")
    named.down()
    assert not processes.alive(daemon)


def test_two_clusters_start_at_once_and_keep_apart(named: Cluster) -> None:
    other = Cluster.of(f"{named.name}-b", root=ROOT)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda each: each.start(Spec()), (named, other)))
        one, two = named.state, other.state
        assert not set(one.ports.values()) & set(two.ports.values())
        assert not one.addresses.cluster.overlaps(two.addresses.cluster)
        run_pod(named, "here")
        assert "here" not in other.kubectl("get", "pods", "-o", "name")
        named.down()
        assert other.problems() == []
        run_pod(other, "there")
    finally:
        other.down()


def test_a_failed_start_shows_why_and_leaves_nothing(named: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"apiserver ended(.|\n)*no-such-flag"):
        named.start(Spec(apiserver_args=("--no-such-flag",)))
    assert not any(machine.traces(named.paths).values()), machine.traces(named.paths)
