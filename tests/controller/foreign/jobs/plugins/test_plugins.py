"""What plugins write into pods, and the objects that a job keeps."""

import base64
import copy
import json
import subprocess
from itertools import accumulate
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from controller.foreign.jobs.plugins import ssh, table
from controller.foreign.jobs.plugins.plugin import LONGEST_VARIABLE, TaskView, variable
from controller.jobs.framework.raw import JobError

Json = dict[str, Any]
CONTAINERS = [{"name": "main", "image": "i"}]


def job(tasks: dict[str, int], **plugins: list[str]) -> Json:
    listed = [{"name": name, "replicas": count, "template": {"spec": {}}} for name, count in tasks.items()]
    metadata = {"name": "train", "namespace": "lab", "uid": "u1"}
    return {"metadata": metadata, "spec": {"tasks": listed, "plugins": plugins}}


def pod_of(job: Json, task: str, index: int = 0, **spec: Any) -> Json:
    name = f"{job['metadata']['name']}-{task}-{index}"
    pod = {"metadata": {"name": name}, "spec": {"containers": copy.deepcopy(CONTAINERS), **spec}}
    return table.writer(job)(task, index, pod)


def variables(pod: Json, container: int = 0, of: str = "containers") -> Json:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["spec"][of][container]["env"]}


def kept(job: Json) -> dict[tuple[str, str], Json]:
    return {(each.body["kind"], each.body["metadata"]["name"]): each.body for each in table.objects(job)}


def test_env_says_which_pod_of_its_task_it_is_in_every_container() -> None:
    pod = pod_of(job({"w": 3}, env=[]), "w", 2, initContainers=[{"name": "first"}])
    assert variables(pod) == {"VK_TASK_INDEX": "2", "VC_TASK_INDEX": "2"}
    assert variables(pod, of="initContainers") == variables(pod)


def test_a_pod_is_written_into_a_copy() -> None:
    given = {"metadata": {"name": "train-w-0"}, "spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}]}}
    before = copy.deepcopy(given)
    made = table.writer(job({"w": 1}, env=[], svc=[], ssh=[], pytorch=[]))("w", 0, given)
    assert given == before != made


@pytest.mark.parametrize(
    ("plugin", "name", "each"),
    [
        ("tensorflow", "TF_CONFIG", len('"train-worker-0000.train:2222",')),
        ("mpi", "MPI_HOST", len("train-worker-0000.train,")),
        ("svc", "VC_WORKER_HOSTS", len("train-worker-0000.train,")),
    ],
)
def test_a_variable_that_no_program_can_be_started_with_is_refused(plugin: str, name: str, each: int) -> None:
    """Some thousand pods: fewer than the bound pass, a tenth more do not."""
    most = LONGEST_VARIABLE // each
    others = {"master": 1} if plugin == "mpi" else {}
    arguments = {plugin: [], "svc": ["--inject-hosts-env=false"] if plugin != "svc" else []}
    table.check(job({**others, "worker": most}, **arguments))
    with pytest.raises(JobError) as told:
        table.check(job({**others, "worker": most * 11 // 10}, **arguments))
    assert str(told.value).startswith(f"spec.plugins: expected at most 131071 bytes of {name}, found 14")


@pytest.mark.parametrize("plugin", ["svc", "ssh", "mpi", "tensorflow", "pytorch", "ray"])
def test_names_that_no_object_takes_twice_are_refused_before_they_are_listed(
    plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(_task: TaskView) -> tuple[str, ...]:
        raise AssertionError("a list of all names was made")

    monkeypatch.setattr(TaskView, "hosts", property(listed))
    told, kind = ("svc", "ConfigMap") if plugin != "ssh" else ("ssh", "Secret")
    huge = job({f"t{at}": 100_000 for at in range(18)}, **{plugin: []})
    with pytest.raises(JobError, match=f"^spec.plugins.{told}: expected at most 1048576 bytes in its {kind}, found"):
        table.check(huge)
    table.check(job({f"t{at}": 100_000 for at in range(18)}, env=[], hcclrank=[]))


def test_an_object_has_the_names_up_to_its_bound() -> None:
    quiet = ["--inject-hosts-env=false"]
    sizes = accumulate(2 * len(f"train-w-{index}.train,") for index in range(40_000))
    most, more = next((count, size) for count, size in enumerate(sizes) if size > 1048576)
    table.check(job({"w": most}, svc=quiet))
    with pytest.raises(JobError, match=f"found {more}: the names of all pods stand there twice$"):
        table.check(job({"w": most + 1}, svc=quiet))


def test_the_secret_of_a_job_that_is_queued_is_no_larger_than_the_api_takes() -> None:
    def data_bytes(whole: Json) -> int:
        (secret,) = table.objects(whole)
        return sum(len(base64.b64decode(each)) for each in table.made(secret)["data"].values())

    fits, grown = (job({"w": pods}, ssh=[]) for pods in (17_000, 17_900))
    table.check(fits)
    assert data_bytes(fits) <= 1048576 < data_bytes(grown)
    with pytest.raises(JobError, match="in its Secret, found 10") as told:
        table.check(grown)
    assert 0 <= int(str(told.value).split("found ")[1].split(":")[0]) - data_bytes(grown) < 4096


def test_a_hostname_that_many_pods_share_is_not_listed_for_each_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = job(dict.fromkeys(("ps", "worker", "chief", "evaluator"), 100000), tensorflow=[])
    for task in whole["spec"]["tasks"]:
        task["template"]["spec"]["hostname"] = "same"
    asked: list[int] = []
    host = TaskView.host

    def counted(task: TaskView, index: int) -> str:
        asked.append(index)
        return host(task, index)

    monkeypatch.setattr(TaskView, "host", counted)
    with pytest.raises(JobError, match="expected at most 131071 bytes of TF_CONFIG, found 7200000: "):
        table.check(whole)
    assert len(asked) < 100


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 1001])
def test_the_length_of_a_list_is_known_without_it(count: int) -> None:
    task = TaskView(name="w", replicas=count, stem="träin-w", domain="sub")
    shared = TaskView(name="w", replicas=count, stem="train-w", domain="sub", hostname="host")
    assert task.listed_bytes == len("".join(f"{host}," for host in task.hosts).encode())
    assert len(task.hosts) == max(0, count)
    assert shared.hosts == (("host.sub",) if count > 0 else ())
    assert shared.listed_bytes == len("host.sub,") * (count > 0)
    assert task.host(count + 5) == (task.hosts[-1] if count > 0 else "")


def test_the_longest_variable_is_what_linux_starts_a_program_with() -> None:
    value = "a" * (LONGEST_VARIABLE - len("X="))
    assert variable("X", value)["value"] == value
    assert subprocess.run(["/bin/true"], env={"X": value}, check=False).returncode == 0
    with pytest.raises(JobError, match="expected at most 131071 bytes of X, found 131072: Linux starts no program"):
        variable("X", f"{value}a")
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"X": f"{value}a"}, check=False)


def test_svc_names_pods_and_gives_them_the_lists_of_hosts() -> None:
    whole = job({"ps": 1, "big-worker": 2}, svc=[])
    pod = pod_of(whole, "ps")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-ps-0", "train")
    key = {"configMapKeyRef": {"name": "train-svc", "key": "VC_BIG_WORKER_HOSTS"}}
    assert variables(pod)["VC_BIG_WORKER_HOSTS"] == key
    assert pod["spec"]["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "train-svc", "mountPath": "/etc/volcano"}]
    assert kept(whole)["ConfigMap", "train-svc"]["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "big_worker.host": "train-big-worker-0.train\ntrain-big-worker-1.train",
        "VC_BIG_WORKER_HOSTS": "train-big-worker-0.train,train-big-worker-1.train",
        "VC_BIG_WORKER_NUM": "2",
    }


def test_names_of_the_template_stay() -> None:
    whole = job({"w": 3}, svc=[])
    whole["spec"]["tasks"][0]["template"]["spec"] = {"hostname": "h", "subdomain": "s"}
    pod = pod_of(whole, "w", 1, hostname="h", subdomain="s")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("h", "s")
    assert kept(whole)["ConfigMap", "train-svc"]["data"]["w.host"] == "h.s"


def test_svc_keeps_a_service_and_a_network_policy_for_the_jobs_own_pods() -> None:
    own = {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "lab"}
    found = kept(job({"w": 1}, svc=[]))
    service = found["Service", "train"]["spec"]
    assert (service["clusterIP"], service["selector"], service["publishNotReadyAddresses"]) == ("None", own, False)
    policy = found["NetworkPolicy", "train"]["spec"]
    assert policy["podSelector"] == policy["ingress"][0]["from"][0]["podSelector"] == {"matchLabels": own}
    owner = found["Service", "train"]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "u1", True)


def test_switches_of_svc_are_read_as_gos_flags() -> None:
    open_to_all = job({"w": 1}, svc=["--publish-not-ready-addresses=true", "-disable-network-policy"])
    found = kept(open_to_all)
    assert found["Service", "train"]["spec"]["publishNotReadyAddresses"] is True
    assert ("NetworkPolicy", "train") not in found
    assert "env" not in pod_of(job({"w": 1}, svc=["--inject-hosts-env=false"]), "w")["spec"]["containers"][0]


def test_ssh_makes_a_pair_of_keys_once_and_mounts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_KEY_BITS", 1024)
    whole = job({"w": 2}, ssh=["--ssh-port=2222"])
    [secret] = table.objects(whole)
    assert set(secret.body["data"]) == {"config"}
    assert not secret.follows
    data = {key: base64.b64decode(value).decode() for key, value in table.made(secret)["data"].items()}
    private = serialization.load_pem_private_key(data["id_rsa"].encode(), None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert data["id_rsa.pub"] == data["authorized_keys"] == public.decode() + "\n"
    assert "Host train-w-1\n  HostName train-w-1.train\n  Port 2222\n" in data["config"]
    pod = pod_of(whole, "w")
    [volume] = pod["spec"]["volumes"]
    assert volume["secret"]["defaultMode"] == 0o600
    mounted = {"name": "train-ssh", "mountPath": "/root/.ssh", "subPath": ".ssh"}
    assert pod["spec"]["containers"][0]["volumeMounts"] == [mounted]


def test_files_for_another_user_can_be_read_by_it() -> None:
    pod = pod_of(job({"w": 1}, ssh=["--ssh-key-file-path=/home/mpi/.ssh"]), "w")
    assert pod["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o644


def test_given_keys_are_taken() -> None:
    [secret] = table.objects(job({"w": 1}, ssh=["--ssh-private-key=PRIVATE", "--ssh-public-key", "PUBLIC"]))
    assert base64.b64decode(table.made(secret)["data"]["id_rsa"]) == b"PRIVATE\n"
    assert base64.b64decode(table.made(secret)["data"]["authorized_keys"]) == b"PUBLIC\n"


def test_no_complaint_has_a_private_key() -> None:
    found = table.complaints(job({"w": 1}, ssh=["--ssh-privat-key=SECRET", "SECRET"]))
    assert found[0].startswith("spec.plugins.ssh: expected --ssh-key-file-path or ")
    assert found[0].endswith("found '--ssh-privat-key'")


def test_pytorch_ranks_follow_the_master() -> None:
    whole = job({"master": 1, "worker": 2, "watch": 1}, pytorch=[])
    expected = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
    for task, index, rank in (("master", 0, "0"), ("worker", 0, "1"), ("worker", 1, "2")):
        assert expected.items() | {("RANK", rank)} <= {
            (name, value) for name, value in variables(pod_of(whole, task, index)).items() if isinstance(value, str)
        }
    assert "RANK" not in variables(pod_of(whole, "watch"))
    port = {"name": "pytorchjob-port", "containerPort": 23456}
    assert pod_of(whole, "worker")["spec"]["containers"][0]["ports"] == [port]


def test_pytorch_without_a_master_writes_nothing_of_its_own() -> None:
    assert "MASTER_ADDR" not in variables(pod_of(job({"worker": 2}, pytorch=[]), "worker"))


def test_pytorch_workers_wait_for_the_masters_name_where_they_are_told_to() -> None:
    whole = job({"master": 1, "worker": 1}, pytorch=["--wait-master-enabled", "--wait-master-timeout=9"])
    [waiting] = pod_of(whole, "worker")["spec"]["initContainers"]
    assert (waiting["name"], waiting["image"]) == ("wait-for-master", "busybox:1.36.1")
    assert "nslookup train-master-0.train${zone:+.$zone} " in waiting["command"][2]
    assert "sed -n 's/^search //p' /etc/resolv.conf" in waiting["command"][2]
    assert "+ 9))" in waiting["command"][2]
    assert "initContainers" not in pod_of(whole, "master")["spec"]
    own = [{"name": "wait-for-master", "image": "mine"}]
    assert [each["image"] for each in pod_of(whole, "worker", initContainers=own)["spec"]["initContainers"]] == ["mine"]


def test_tensorflow_says_what_the_cluster_is() -> None:
    whole = job({"ps": 1, "trainer": 2, "side": 1}, tensorflow=["--worker=trainer", "--port", "99"])
    config = json.loads(variables(pod_of(whole, "trainer", 1))["TF_CONFIG"])
    assert config == {
        "cluster": {"ps": ["train-ps-0.train:99"], "worker": ["train-trainer-0.train:99", "train-trainer-1.train:99"]},
        "task": {"type": "worker", "index": 1},
    }
    assert json.loads(variables(pod_of(whole, "side"))["TF_CONFIG"])["task"]["type"] == "side"


def test_tensorflow_alone_has_no_cluster() -> None:
    assert "TF_CONFIG" not in variables(pod_of(job({"worker": 1}, tensorflow=[]), "worker"))


def test_mpi_tells_the_master_its_workers_and_opens_them_for_ssh() -> None:
    whole = job({"master": 1, "worker": 2}, mpi=[])
    master = pod_of(whole, "master", initContainers=[{"name": "wait"}])
    hosts = "train-worker-0.train,train-worker-1.train"
    assert variables(master)["MPI_HOST"] == variables(master, of="initContainers")["MPI_HOST"] == hosts
    assert "ports" not in master["spec"]["containers"][0]
    worker = pod_of(whole, "worker")["spec"]["containers"][0]
    assert worker["ports"] == [{"name": "mpijob-port", "containerPort": 22}]
    assert {("Secret", "train-ssh"), ("Service", "train")} <= set(kept(whole))


def test_ray_starts_the_named_containers_and_leads_to_the_head() -> None:
    whole = job({"head": 1, "worker": 1}, ray=["--port=6380"])
    side = {"name": "side", "command": ["own"]}
    made = {task: pod_of(whole, task, containers=[{"name": task}, side]) for task in ("head", "worker")}
    pods = {task: pod["spec"]["containers"] for task, pod in made.items()}
    assert "ray start --head --block" in pods["head"][0]["command"][2]
    assert "--port=6380 --dashboard-port=8265 --ray-client-server-port=10001" in pods["head"][0]["command"][2]
    assert {each["name"]: each["containerPort"] for each in pods["head"][0]["ports"]} == {
        "gcs": 6380,
        "dashboard": 8265,
        "client-server": 10001,
    }
    assert pods["worker"][0]["command"] == ["sh", "-c", "ray start --block --address=train-head-0.train:6380"]
    assert [containers[1]["command"] for containers in pods.values()] == [["own"], ["own"]]
    service = kept(whole)["Service", "train-head-svc"]["spec"]
    assert service["selector"]["volcano.sh/task-spec"] == "head"
    assert [each["port"] for each in service["ports"]] == [6380, 8265, 10001]


def test_ray_without_its_head_is_refused() -> None:
    with pytest.raises(JobError, match=r"spec\.plugins\.ray: expected a task 'head', found 'worker'"):
        pod_of(job({"worker": 1}, ray=[]), "worker")


def test_hcclrank_takes_the_rank_that_is_known() -> None:
    def rank(task: str, index: int, *plugins: str, **spec: Any) -> str | None:
        whole = job({"master": 2, "worker": 2, "side": 1}, hcclrank=[], **{each: [] for each in plugins})
        found: str | None = pod_of(whole, task, index, **spec)["metadata"]["annotations"].get("hccl/rankIndex")
        return found

    assert [rank("master", 1), rank("worker", 1), rank("side", 0)] == ["1", "3", None]
    assert rank("worker", 1, "pytorch") == "2"
    assert rank("worker", 1, containers=[{"name": "a", "env": [{"name": "RANK", "value": "7"}]}]) == "7"


def test_an_unknown_plugin_is_refused_and_a_wrong_argument_told() -> None:
    with pytest.raises(JobError, match=r"spec\.plugins: expected one of svc, ssh, env, .*, found 'nccl'"):
        table.objects(job({"w": 1}, nccl=[]))
    wrong = {"pytorch": ["--port=many", "--master=m"], "hcclrank": ["--port"], "ssh": ["--ssh-port"]}
    assert table.complaints(job({"master": 1}, **wrong)) == (
        "spec.plugins.ssh: expected a value after '--ssh-port', found none",
        "spec.plugins.pytorch: --port: expected an integer, found 'many'",
        "spec.plugins.hcclrank: expected --master or --worker, found '--port'",
    )


def test_what_was_read_before_a_wrong_argument_counts() -> None:
    whole = job({"chief": 1, "worker": 1}, pytorch=["--master", "chief", "--no-such", "--port=1"])
    found = variables(pod_of(whole, "worker"))
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("train-chief-0.train", "23456")


def test_tasks_without_names_are_called_by_their_places() -> None:
    whole = job({"": 2}, svc=[])
    assert kept(whole)["ConfigMap", "train-svc"]["data"]["VC_DEFAULT0_NUM"] == "2"


def test_the_status_names_the_plugins_that_run() -> None:
    assert table.controlled(job({"master": 1}, mpi=[])) == {
        "plugin-svc": "svc",
        "plugin-ssh": "ssh",
        "plugin-mpi": "mpi",
    }
