"""A real Job on a real API server with its real controller, moved by the core's own actions.

Workloads are held in memory (``model.World``): what is proved here is that the patches of start and stop are what
the API server accepts, in the order in which they come, and that the model's rules are the server's.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from controller.jobs.framework import names
from controller.jobs.framework.actions import ReleaseQuota, StopJob
from controller.jobs.framework.kind import Patch
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.batchjob import BatchJob
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.cluster.waiting import until
from tests.support.controller.jobmodel import ConflictError, InvalidError, World
from tests.support.e2e.kubernetes import STARTS_ANEW

pytestmark = pytest.mark.e2e

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: q}}
  annotations: {annotations}
spec:
  suspend: {suspend}
  parallelism: {parallelism}
  completions: {completions}
  completionMode: {mode}
  activeDeadlineSeconds: 3600
  template:
    metadata:
      labels: {{team: vision}}
      annotations: {{note: mine}}
    spec:
      restartPolicy: Never
      nodeSelector: {{disk: ssd}}
      tolerations:
      - {{key: spot, operator: Exists}}
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 1
            preference: {{matchExpressions: [{{key: zone, operator: In, values: [a]}}]}}
      initContainers:
      - {{name: prepare, image: busybox, command: [sh, -c, "true"]}}
      containers:
      - name: main
        image: busybox
        env: [{{name: A, value: "1"}}]
        ports: [{{containerPort: 8080}}]
        resources: {{requests: {{cpu: 1000m}}, limits: {{memory: 0.5Gi}}}}
        volumeMounts: [{{name: scratch, mountPath: /scratch}}]
      volumes:
      - {{name: scratch, emptyDir: {{sizeLimit: 1Gi}}}}
"""


class RealWorld(World):
    """The model with a real Job in it: job patches go to the API server, and the job is read from there."""

    def __init__(self, cluster: Cluster, manifest: str) -> None:
        self._cluster = cluster
        created = json.loads(cluster.kubectl("create", "-f", "-", "-o", "json", input=manifest))
        self._name = created["metadata"]["name"]
        super().__init__(created)
        self.status_patches = 0

    def read(self) -> Json:
        self.job = json.loads(self._cluster.kubectl("get", "job", self._name, "-o", "json"))
        assert self.job is not None
        return self.job

    def patch_job(self, patch: Patch) -> None:
        words = ["--subresource", patch.subresource] if patch.subresource else []
        self.status_patches += bool(patch.subresource)
        try:
            self._cluster.kubectl(
                "patch", "job", self._name, "--type=merge", *words, "-p", json.dumps(patch.body), timeout_s=120
            )
        except ClusterError as error:
            if "Conflict" in str(error) or "modified" in str(error):
                raise ConflictError(str(error)) from None
            raise InvalidError(str(error)) from None
        finally:
            self.read()

    def until(self, condition: Any, what: str) -> Json:
        """Reconcile, and let the real controller work, until the job is as wanted."""

        def holds() -> bool:
            self.read()
            self.step()
            return bool(condition(self.read()))

        until(holds, what, timeout_s=120, every_s=0.05)
        return self.read()


AS_1_35 = (
    "--feature-gates=MutableSchedulingDirectivesForSuspendedJobs=false,MutablePodResourcesForSuspendedJobs=false",
)


@pytest.fixture(
    scope="module",
    params=[(), AS_1_35] if STARTS_ANEW else [()],
    ids=["own", "as-1.35"] if STARTS_ANEW else ["own"],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A control plane alone: pods stay pending, which the Job controller counts as active."""
    if borrowed := os.environ.get("TESSERA_E2E_JOBS_CLUSTER"):
        yield Cluster.of(borrowed)
        return
    binaries.build("kubernetes")
    flags = tuple(request.param)
    spec = Spec(nodes=(), apiserver_args=flags, controller_manager_args=flags)
    with Cluster.up(f"jobs-{os.getpid()}", spec) as found:
        yield found


@pytest.fixture
def world(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[RealWorld]:
    made = RealWorld(cluster, manifest(request.node.name))
    yield made
    drop(cluster)


def manifest(test: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> str:
    values = {"suspend": "true", "parallelism": 2, "completions": 4, "mode": "NonIndexed", **spec}
    name = "".join(letter if letter.isalnum() else "-" for letter in test.lower()).strip("-")[:50].strip("-")
    return MANIFEST.format(name=name, annotations=json.dumps(annotations or {}), **values)


def drop(cluster: Cluster) -> None:
    cluster.kubectl("delete", "job", "--all", "--cascade=foreground", "--now", "--wait", "--timeout=180s")


def active(job: Json) -> int:
    return int(job["status"].get("active", 0))


def runs(job: Json) -> bool:
    return not job["spec"]["suspend"] and active(job) > 0


def pods(cluster: Cluster) -> list[Json]:
    found: list[Json] = json.loads(cluster.kubectl("get", "pods", "-o", "json"))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def test_a_job_is_started_stopped_and_restored_exactly_twice(
    world: RealWorld, cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    world.until(lambda job: world.live() and BatchJob().is_stopped(job), "a workload")
    original = world.read()["spec"]
    for flavor in ("a100", "h100"):
        world.admit(world.only, flavor=flavor)
        job = world.until(runs, "running")
        assert job["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": flavor}
        (pod, _) = pods(cluster)
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "gpu": flavor}
        assert pod["metadata"]["labels"][names.CLUSTER_QUEUE_NAME] == "cq"
        assert pod["metadata"]["annotations"][names.WORKLOAD] == world.only
        world.evict(world.only)
        job = world.until(lambda _: "admission" not in world.workloads[world.only]["status"], "quota released")
        assert job["spec"] == original
        assert pods(cluster) == []
    assert not world.refusals
    older = not STARTS_ANEW or "as-1.35" in request.node.name
    assert (world.status_patches > 0) is older, "from 1.36 the Job controller itself unsets the start time"


def test_quota_goes_after_the_pods(world: RealWorld, cluster: Cluster) -> None:
    world.until(lambda _: world.live(), "a workload")
    world.admit(world.only)
    world.until(runs, "running")
    world.evict(world.only)

    def released() -> bool:
        job = world.read()
        actions = world.step()
        if any(isinstance(action, ReleaseQuota) for action in actions):
            assert not active(job)
            assert pods(cluster) == []
            return True
        return False

    until(released, "quota released", timeout_s=120, every_s=0.02)


def test_the_server_refuses_the_template_of_a_running_job_and_of_one_that_is_not_stopped_yet(world: RealWorld) -> None:
    """The rules that stop goes by: without them it could restore in one patch."""
    world.until(lambda _: world.live(), "a workload")
    world.admit(world.only)
    job = world.until(runs, "running")
    body: Json = {"spec": {"suspend": True, "template": {"spec": {"nodeSelector": {"gpu": None}}}}}
    with pytest.raises(InvalidError, match="immutable"):
        world.patch_job(Patch(body=body))
    with pytest.raises(InvalidError, match="startTime"):
        world.patch_job(Patch(body={"status": {"startTime": None}}, subresource="status"))
    stale = {"metadata": {"uid": job["metadata"]["uid"], "resourceVersion": "1"}, "spec": {"suspend": True}}
    with pytest.raises(ConflictError):
        world.patch_job(Patch(body=stale))
    stale["metadata"] = {"uid": "00000000-0000-0000-0000-000000000000"}
    with pytest.raises(InvalidError, match="uid"):
        world.patch_job(Patch(body=stale))


def test_a_stop_that_is_cut_off_anywhere_is_taken_up_again(world: RealWorld) -> None:
    world.until(lambda _: world.live(), "a workload")
    original = world.read()["spec"]
    world.admit(world.only)
    world.until(runs, "running")
    world.evict(world.only)
    (stop, *_) = world.next_actions()
    assert isinstance(stop, StopJob)
    world.patch_job(stop.patches[0])
    fresh = RealWorld.__new__(RealWorld)  # a controller that knows nothing but the objects
    fresh.__dict__.update(world.__dict__, events=[], refusals=[])
    job = fresh.until(lambda _: "admission" not in fresh.workloads[fresh.only]["status"], "quota released")
    assert job["spec"] == original


@pytest.mark.parametrize(
    ("mode", "equal"), [("NonIndexed", False), ("Indexed", True)], ids=["parallelism", "completions-too"]
)
def test_fewer_pods_are_run_and_the_full_number_comes_back(
    cluster: Cluster, mode: str, equal: bool, request: pytest.FixtureRequest
) -> None:
    annotations = {names.MIN_PARALLELISM: "1"}
    if equal:
        annotations[names.COMPLETIONS_EQUAL_PARALLELISM] = "true"
    world = RealWorld(
        cluster, manifest(request.node.name, annotations=annotations, mode=mode, parallelism=4, completions=4)
    )
    with contextlib.ExitStack() as stack:
        stack.callback(drop, cluster)
        world.until(lambda _: world.live(), "a workload")
        original = world.read()["spec"]
        world.admit(world.only, count=3)
        job = world.until(runs, "running")
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (3, 3 if equal else 4)
        world.evict(world.only)
        job = world.until(lambda _: "admission" not in world.workloads[world.only]["status"], "quota released")
        assert job["spec"] == original
        assert job["metadata"]["annotations"].keys() == annotations.keys()


def test_a_job_that_was_let_run_before_its_queue_saw_it_is_stopped_and_queued(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    world = RealWorld(cluster, manifest(request.node.name, suspend="false"))
    with contextlib.ExitStack() as stack:
        stack.callback(drop, cluster)
        until(lambda: active(world.read()) == 2, "running on its own", timeout_s=120, every_s=0.1)
        world.until(lambda job: job["spec"]["suspend"] and world.live() and not pods(cluster), "queued, without pods")
        world.admit(world.only)
        assert world.until(runs, "running")["spec"]["template"]["spec"]["nodeSelector"]["gpu"] == "a100"


def test_somebody_elses_pause_of_an_admitted_job_ends_with_the_same_template(world: RealWorld) -> None:
    world.until(lambda _: world.live(), "a workload")
    world.admit(world.only)
    template = world.until(runs, "running")["spec"]["template"]
    world.edit({"spec": {"suspend": True}})
    assert world.until(runs, "running again")["spec"]["template"] == template
