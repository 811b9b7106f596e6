"""Agent and controller as users run them: the image that the Dockerfile makes, in the chart's DaemonSet and Deployment,
by their own service accounts and no further rights.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.cluster.programs import binaries
from hack.image import builtimage
from tests.support.e2e.kubernetes import SUSPEND_BY
from tests.support.e2e.lab import EXAMPLES, GPU, ROOT, Lab, until

pytestmark = pytest.mark.e2e

NAMESPACE = "tessera-system"
FLEET = EXAMPLES / "fleets" / "dgx1.yaml"


def chart(tmp: Path, namespace: str) -> str:
    """The chart's objects for the image made here, on simulated GPUs."""
    repository, _, tag = builtimage.TAG.rpartition(":")
    values = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "simulate": {"enabled": True, "fleet": FLEET.read_text()},
        "deviceListStrategy": ["cdi-cri"],
        # Helm that sees no cluster cannot tell whether the API server has admission policies that change objects.
        "controller": {"jobs": {"suspendBy": SUSPEND_BY}},
    }
    file = tmp / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = [
        str(binaries.binary("helm")),
        "template",
        "t",
        str(ROOT / "charts/tessera"),
        "-n",
        namespace,
        "--no-hooks",
        "-f",
        str(file),
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def installed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The chart on the cluster, rolled out; taken away again afterwards."""
    tmp = tmp_path_factory.mktemp("image")
    builtimage.write(tmp / "agent.tar")
    lab.host.load_image(tmp / "agent.tar")
    manifest = chart(tmp, NAMESPACE)
    lab.cluster.kubectl("create", "namespace", NAMESPACE)
    lab.cluster.kubectl("apply", "--server-side", "-f", "-", input=manifest)
    try:
        lab.cluster.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset", "--timeout=300s")
        lab.await_amounts({GPU: 8})
        yield lab
    finally:
        lab.delete_pods()
        lab.cluster.kubectl("delete", "-f", "-", "--wait", "--timeout=180s", input=manifest)
        lab.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=180s")
        lab.await_amounts({GPU: 0})


QUEUES = (
    "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}}",
    """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
""",
    """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: all}
""",
    """
apiVersion: batch/v1
kind: Job
metadata: {name: queued, namespace: default, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: none, imagePullPolicy: Never, resources: {limits: {nvidia.com/gpu: 1}}}
""",
)


def admitted(lab: Lab) -> str:
    where = 'jsonpath={.items[*].status.conditions[?(@.type=="Admitted")].status}'
    return lab.cluster.kubectl("get", "workloads.kueue.x-k8s.io", "-n", "default", "-o", where)


def ready_pods(lab: Lab, owner: str) -> list[str]:
    pods = lab.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    ready = {"type": "Ready", "status": "True"}
    return [
        one["metadata"]["name"]
        for one in pods
        if one["metadata"]["ownerReferences"][0]["kind"] == owner
        and any(ready.items() <= condition.items() for condition in one["status"].get("conditions", []))
    ]


def agent_pods(lab: Lab) -> list[str]:
    return ready_pods(lab, "DaemonSet")


def told(lab: Lab, pod: str) -> list[str]:
    """What a replica's webhook warns of in a dry run of the Job with six GPUs. The API server reaches none here."""
    job = yaml.safe_load(QUEUES[-1])
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: 6}}
    request = {"uid": "u", "operation": "CREATE", "namespace": "default", "dryRun": True, "object": job}
    script = (
        "import json, ssl, urllib.request as r\n"
        "tls = ssl.create_default_context(); tls.check_hostname = False; tls.verify_mode = ssl.CERT_NONE\n"
        f"ask = r.Request('https://127.0.0.1:9443/forecast', {json.dumps({'request': request}).encode()!r})\n"
        "print(json.dumps(json.load(r.urlopen(ask, context=tls, timeout=10))['response'].get('warnings')))"
    )
    command = ("-n", NAMESPACE, "exec", pod, "--", builtimage.PYTHON, "-c", script)
    found: list[str] = json.loads(lab.cluster.kubectl(*command)) or []
    return found


def agent_pod(lab: Lab) -> str:
    (pod,) = agent_pods(lab)
    return pod


def inside(lab: Lab, script: str) -> str:
    """What the agent's own Python prints in the agent's container."""
    return lab.cluster.kubectl("-n", NAMESPACE, "exec", agent_pod(lab), "--", builtimage.PYTHON, "-c", script)


def test_a_pod_gets_linked_gpus_from_the_agent_in_its_pod(installed: Lab) -> None:
    pod = installed.run("four", {GPU: 4})
    files = installed.cluster.kubectl("exec", pod.name, "--", "sh", "-c", "ls /dev/nvidia[0-9]*").split()
    assert [int(name.removeprefix("/dev/nvidia")) for name in sorted(files)] in ([0, 1, 2, 3], [4, 5, 6, 7])


def test_with_its_service_account_it_labels_its_node_and_writes_its_gpunode(installed: Lab) -> None:
    until(lambda: installed.labels().get("nvidia.com/gpu.count") == "8", "the agent's labels")
    until(lambda: installed.gpunode().get("summary", {}).get("gpus") == 8, "the GpuNode")


def test_its_root_file_system_is_read_only_and_it_holds_no_capability(installed: Lab) -> None:
    status = inside(installed, "print(open('/proc/self/status').read())")
    assert "CapEff:\t0000000000000000" in status
    refused = inside(
        installed,
        "import errno\ntry: open('/opt/x', 'w')\nexcept OSError as e: print(errno.errorcode[e.errno])",
    )
    assert refused.strip() == "EROFS"


def test_it_tells_its_node_over_the_socket_in_its_state_folder(installed: Lab) -> None:
    script = (
        "import http.client, socket\n"
        "c = http.client.HTTPConnection('agent')\n"
        "c.sock = socket.socket(socket.AF_UNIX); c.sock.connect('/var/lib/tessera/agent.sock')\n"
        "c.request('GET', '/v1/node'); print(c.getresponse().read().decode())"
    )
    report = json.loads(inside(installed, script))
    assert len(report["node"]["gpus"]) == 8
    assert report["driver_up"]


def test_the_controller_of_the_same_image_runs_beside_it_and_decides(installed: Lab) -> None:
    """Two replicas in pods of their own, with the chart's rights: one leads, and queues the first job there is. Each
    tells of a dry run what the one that leads knows.
    """
    cluster = installed.cluster
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment", "--timeout=300s")
    queues = [yaml.safe_load(text) for text in QUEUES]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(queues))
    try:
        until(lambda: admitted(installed) == "True", "the job's workload is admitted")
        suspended = ("get", "job", "queued", "-o", "jsonpath={.spec.suspend}")
        until(lambda: cluster.kubectl(*suspended) == "false", "the job is started")
        replicas = ready_pods(installed, "ReplicaSet")
        assert len(replicas) == 2
        wanted = (
            "would wait in ClusterQueue all: Asks for 6 nvidia.com/gpu of flavor any where the queue can have 4 at most"
        )
        warned: dict[str, list[str]] = {}

        def same() -> bool:
            warned.update({pod: told(installed, pod) for pod in replicas})
            return all(said and said[0].startswith(wanted) for said in warned.values())

        until(same, f"both replicas tell of a dry run, the one that follows as the other: {warned}")
    finally:
        cluster.kubectl("delete", "-f", "-", "--wait", "--timeout=180s", input=yaml.safe_dump_all(queues))


def test_when_its_pod_is_replaced_the_devices_stay_and_the_next_agent_goes_on(installed: Lab) -> None:
    pod = installed.run("holds", {GPU: 1})
    container = pod.container
    old = agent_pod(installed)
    installed.cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait", "--timeout=180s")
    until(lambda: bool(agent_pods(installed)), "another pod is ready")
    installed.await_amounts({GPU: 8})
    assert agent_pod(installed) != old
    assert pod.container == container
    until(
        lambda: [one["pod"] for one in installed.gpunode().get("holders", [])] == ["holds"],
        "the holder, known to the new agent",
    )
