"""The articles' manifests on a real control plane with the controller as its pod runs it: what they say happens.

The files of ``examples`` are applied as they are: tests/conformance/test_seeds.py holds them to the articles' text.
Nodes and pods are played by kwok; scheduler, Job controller, Kubeflow's training operator and API server are real.
Sections name the article.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.articles import A100, GPU, H100, HIGH, PRODUCT, QUEUES, SIMULATE, Json, Scene, cluster_queue
from tests.support.e2e.incluster import InCluster
from tests.support.e2e.lab import ROOT, until
from tests.support.e2e.trainingoperator import TrainingOperator

pytestmark = pytest.mark.e2e

CONFIG = {
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1s"},
    "tessera": {"policy": "tessera", "pendingCondition": {"after": "1s"}},
}
NODES = {A100: 7, H100: 2}
"""56 and 16 GPUs."""
TRAINING = "ml-research/distributed-training"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InCluster]:
    for program in ("kubernetes", "kwok", "helm", "training-operator"):
        binaries.build(program)
    spec = Spec(nodes=(), kwok_nodes=sum(NODES.values()), kwok_capacity={GPU: "8"})
    with Cluster.up(f"articles-{os.getpid()}", spec) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(kubeflow_crds()))
        controller = InCluster(cluster, tmp_path_factory.mktemp("controller"), CONFIG)
        controller.install()
        first = 0
        for product, count in NODES.items():
            names = [f"kwok-{index}" for index in range(first, first + count)]
            cluster.kubectl("label", "node", *names, f"{PRODUCT}={product}")
            first += count
        with controller.running(), TrainingOperator(cluster, cluster.kubeconfig.read_text()).running():
            yield controller


def kubeflow_crds() -> Path:
    found = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "kubeflow"
    assert found.is_dir(), f"CRDs of Kubeflow not found: {found} is no folder; set TESSERA_SHARED"
    return found


@pytest.fixture
def scene(controller: InCluster) -> Iterator[Scene]:
    scene = Scene(controller.cluster)
    try:
        yield scene
        scene.clean()
    finally:
        scene.close()


def team_queues(scene: Scene) -> None:
    """The queues of article 004, v1beta1 as written but for the cohort that borrowing needs."""
    for name in ("namespaces", "flavors-by-product", "cluster-queue-in-cohort", "local-queues-per-team"):
        scene.apply(QUEUES / f"{name}.yaml")


# 004: Kueue & Volcano.


def test_a_job_is_held_until_its_queue_exists_and_starts_whole_on_its_flavor_s_nodes(scene: Scene) -> None:
    scene.apply(QUEUES / "namespaces.yaml")
    scene.apply(QUEUES / "job-four-workers.yaml")
    until(lambda: scene.condition(TRAINING, "QuotaReserved") != "", "it is known why it waits")
    assert scene.job_of(TRAINING)["spec"]["suspend"]
    assert not scene.pods(TRAINING)
    assert scene.message(TRAINING, "QuotaReserved")
    team_queues(scene)
    until(lambda: scene.runs(TRAINING), "all four workers run")
    admission = scene.workload(TRAINING)["status"]["admission"]
    (assigned,) = admission["podSetAssignments"]
    assert admission["clusterQueue"] == "gpu-cluster"
    assert assigned["flavors"] == {"cpu": "nvidia-a100", "memory": "nvidia-a100", GPU: "nvidia-a100"}
    assert assigned["resourceUsage"] == {"cpu": "128", "memory": "512Gi", GPU: "32"}
    assert scene.job_of(TRAINING)["spec"]["template"]["spec"]["nodeSelector"] == {PRODUCT: A100}
    assert len(scene.pods(TRAINING)) == 4
    assert scene.products(TRAINING) == {A100}


def test_what_the_article_has_people_look_at_says_how_things_stand(scene: Scene) -> None:
    """In the version that it was written in: what is stored is converted by the controller itself."""
    team_queues(scene)
    scene.apply(QUEUES / "job-four-workers.yaml")
    until(lambda: scene.runs(TRAINING), "it runs")
    scene.job("ml-production/next", "ml-production-queue", gpus=8, pods=4)
    until(lambda: scene.condition("ml-production/next", "QuotaReserved") == "False/WaitingForQuota", "the next waits")
    old = "v1beta1.kueue.x-k8s.io"

    def queue() -> Json:
        found = json.loads(scene.kubectl("get", f"clusterqueue.{old}", "gpu-cluster", "-o", "json"))
        assert found["spec"]["cohort"] == "gpu"
        status: Json = found["status"]
        return status

    until(lambda: (queue().get("pendingWorkloads"), queue().get("admittedWorkloads")) == (1, 1), "both are counted")
    used = {one["name"]: one["resources"] for one in queue()["flavorsUsage"]}
    assert {"name": GPU, "total": "32", "borrowed": "0"} in used["nvidia-a100"]
    shown = scene.kubectl("get", f"workloads.{old}", "-n", "ml-research")
    assert shown.splitlines()[1].split()[1:3] == ["ml-research-queue", "gpu-cluster"]
    shown = scene.kubectl("describe", f"localqueue.{old}", "ml-production-queue", "-n", "ml-production")
    assert re.search(r"Pending Workloads: +1\n", shown), shown


def test_all_four_workers_wait_until_there_is_room_for_all_of_them(scene: Scene) -> None:
    """The deadlock of the article: no pod of the second job exists while a part of it would fit."""
    team_queues(scene)
    scene.apply(QUEUES / "job-four-workers.yaml")
    until(lambda: scene.runs(TRAINING), "the first has the A100s")
    scene.job("ml-production/second", "ml-production-queue", gpus=8, pods=4)
    until(lambda: scene.condition("ml-production/second", "QuotaReserved") == "False/WaitingForQuota", "it waits")
    said = scene.message("ml-production/second", "QuotaReserved")
    assert "nvidia-a100" in said, said
    assert not scene.pods("ml-production/second")
    scene.job("ml-production/small", "ml-production-queue", gpus=8, pods=2)
    until(lambda: scene.runs("ml-production/small"), "what fits passes it (BestEffortFIFO)")
    assert scene.products("ml-production/small") == {H100}, "the flavor that has room"
    scene.finish(TRAINING)
    until(lambda: scene.runs("ml-production/second"), "all four at once")
    assert scene.products("ml-production/second") == {A100}


def test_a_job_of_higher_priority_takes_the_place_of_one_of_the_queue(scene: Scene) -> None:
    """``withinClusterQueue: LowerPriority``, by the classes that the chart brings."""
    team_queues(scene)
    scene.apply(QUEUES / "job-four-workers.yaml")
    until(lambda: scene.runs(TRAINING), "the A100s are full")
    scene.job("ml-research/filler", "ml-research-queue", gpus=8, pods=2, workload_class=HIGH)
    until(lambda: scene.runs("ml-research/filler"), "the H100s are full as well")
    scene.job("ml-production/urgent", "ml-production-queue", gpus=8, pods=4)
    until(lambda: scene.condition("ml-production/urgent", "QuotaReserved") != "", "equals wait")
    label = "kueue.x-k8s.io/priority-class=training-standard"
    scene.kubectl("label", "job", "urgent", "-n", "ml-production", label)
    until(lambda: scene.runs("ml-production/urgent"), "it has the A100s")
    assert scene.condition(TRAINING, "Preempted") == "True/InClusterQueue"
    assert scene.runs("ml-research/filler")
    assert scene.suspended(TRAINING)
    assert "nodeSelector" not in scene.job_of(TRAINING)["spec"]["template"]["spec"], "as the article wrote it"
    scene.finish("ml-production/urgent")
    until(lambda: scene.runs(TRAINING), "its turn comes again")


def test_idle_quota_is_borrowed_up_to_the_limit_and_taken_back_by_its_owner(scene: Scene) -> None:
    """``reclaimWithinCohort: Any`` takes back from whatever priority; ``borrowingLimit: 16`` is on top of 32."""
    team_queues(scene)
    scene.create(cluster_queue("neighbour", "nvidia-a100", 24, cohortName="gpu"))
    scene.local_queue("ml-production/neighbour", "neighbour")
    scene.job("ml-research/filler", "ml-research-queue", gpus=8, pods=2, selector={PRODUCT: H100})
    scene.job("ml-production/guest", "neighbour", gpus=8, pods=5, workload_class=HIGH)
    until(lambda: scene.runs("ml-production/guest"), "the neighbour uses 24 of its own and 16 of gpu-cluster's")
    until(lambda: scene.borrowed("neighbour", "nvidia-a100") == 16, "its status says so")
    scene.apply(QUEUES / "job-four-workers.yaml")
    until(lambda: scene.runs(TRAINING), "the owner has its own back")
    assert scene.condition("ml-production/guest", "Preempted") == "True/InCohortReclamation"
    scene.delete_job("ml-production/guest")
    scene.job("ml-research/sixteen", "ml-research-queue", gpus=8, pods=2)
    until(lambda: scene.runs("ml-research/sixteen"), "it runs on what the neighbour leaves idle")
    assert scene.products("ml-research/sixteen") == {A100}
    until(lambda: scene.borrowed("gpu-cluster", "nvidia-a100") == 16, "all that it may borrow")
    scene.job("ml-research/beyond", "ml-research-queue", gpus=8)
    until(
        lambda: scene.condition("ml-research/beyond", "QuotaReserved").startswith("False/"), "8 are idle, none for it"
    )
    assert not scene.pods("ml-research/beyond")


def test_three_teams_share_64_gpus(scene: Scene) -> None:
    """Teams a, b and c submit 32, 8 and 64 GPUs: the article's first figure by the quotas of its second."""
    scene.apply(QUEUES / "namespaces.yaml")
    scene.apply(QUEUES / "team-quotas.yaml")
    scene.job("ml-research/a", "team-a", gpus=8, pods=4)
    scene.job("ml-research/b", "team-b", gpus=8)
    scene.job("ml-production/c", "team-c", gpus=8, pods=8)
    until(lambda: scene.runs("ml-research/a") and scene.runs("ml-research/b"), "a and b run")
    until(lambda: scene.borrowed("team-a", "gpu") == 16, "a borrows 16")
    until(lambda: scene.condition("ml-production/c", "QuotaReserved").startswith("False/"), "c can have 48 at most")
    assert "48" in scene.message("ml-production/c", "QuotaReserved")
    scene.job("ml-production/c-half", "team-c", gpus=8, pods=3)
    until(lambda: scene.runs("ml-production/c-half"), "what is left is c's")
    assert not scene.pods("ml-production/c")


# 001: Resource Scheduling and Cluster Optimization.


def test_the_job_with_a_priority_goes_through_the_default_queue_of_its_namespace(scene: Scene) -> None:
    """It names no queue: it waits in ``default`` where there is one, with the priority of its pods."""
    scene.apply(QUEUES / "flavors-by-product.yaml")
    scene.create(cluster_queue("four", "nvidia-a100", 4))
    scene.local_queue("default/default", "four")
    scene.job("default/before", "default", gpus=4, workload_class=HIGH)
    until(lambda: scene.runs("default/before"), "the queue is full")
    scene.until_served(QUEUES / "job-with-priority.yaml")
    scene.apply(QUEUES / "job-with-priority.yaml")
    job = "default/gpt-finetune-v3"
    until(lambda: scene.condition(job, "QuotaReserved") == "False/WaitingForQuota", "it is held, not refused")
    assert scene.suspended(job)
    assert scene.workload(job)["spec"]["priority"] == 1000
    scene.finish("default/before")
    until(lambda: scene.runs(job), "its turn comes")
    assert scene.products(job) == {A100}


def test_twelve_gpus_in_use_and_inference_arrives_development_goes_training_stays(scene: Scene) -> None:
    scene.apply(QUEUES / "flavors-by-product.yaml")
    scene.create(cluster_queue("twelve", "nvidia-a100", 12, preemption={"withinClusterQueue": "LowerPriority"}))
    scene.local_queue("default/twelve", "twelve")
    classes = {"dev": "development", "train-1": "training-standard", "train-2": "training-standard"}
    for name, class_ in classes.items():
        scene.job(f"default/{name}", "twelve", gpus=1, pods=4, pod_class=class_)
    until(lambda: all(scene.runs(f"default/{name}") for name in classes), "the cluster is full")
    scene.job("default/inference", "twelve", gpus=1, pods=4, pod_class="production-inference")
    until(lambda: scene.runs("default/inference"), "it has the place of dev")
    assert scene.suspended("default/dev")
    assert scene.condition("default/dev", "Preempted") == "True/InClusterQueue"
    assert all(scene.runs(f"default/{name}") for name in ("train-1", "train-2"))
    assert not any(scene.condition(f"default/{name}", "Evicted") for name in ("train-1", "train-2"))


def test_research_borrows_four_idle_gpus_and_each_policy_gives_them_back_as_the_table_says(scene: Scene) -> None:
    """24 GPUs, ``cq-research`` 8 + 8, ``cq-prod`` 16 + 0; then ``reclaimWithinCohort`` Never, LowerPriority, Any."""
    for name in ("research", "production"):
        scene.namespace(name)
    scene.apply(SIMULATE / "cohort-borrowing.yaml")
    jobs = {"research/llm-ft": 4, "research/embed": 2, "production/serve": 8, "research/rlhf": 6}
    until(lambda: all(map(scene.runs, jobs)), "20 of 24 GPUs are in use")
    until(lambda: scene.borrowed("cq-research", "a100") == 4, "research has 8 of its own and 4 of production's")
    scene.job("production/more", "lq-prod", gpus=8)
    until(lambda: scene.condition("production/more", "QuotaReserved") == "False/WaitingForQuota", "Never: it waits")
    scene.set_preemption("cq-prod", reclaimWithinCohort="LowerPriority")
    scene.job("production/later", "lq-prod", gpus=8)
    until(lambda: scene.condition("production/later", "QuotaReserved").startswith("False/"), "no equal has to go")
    assert all(map(scene.runs, jobs))
    scene.set_preemption("cq-prod", reclaimWithinCohort="Any")
    until(lambda: scene.runs("production/more"), "production has its 16")
    stopped = [name for name in jobs if scene.condition(name, "Preempted") == "True/InCohortReclamation"]
    assert stopped in (["research/llm-ft"], ["research/rlhf"]), "one of them gives back what was borrowed"
    until(lambda: scene.borrowed("cq-research", "a100") == 0, "nothing is borrowed any more")
    scene.finish("research/embed")
    until(lambda: scene.condition("research/embed", "Finished") != "", "its two GPUs are idle")
    scene.job("production/beyond", "lq-prod", gpus=1)
    until(
        lambda: scene.condition("production/beyond", "QuotaReserved").startswith("False/"), "production may not borrow"
    )
    assert not scene.pods("production/beyond")


# 003: the most surprising truth about GPU scheduling.


def test_eight_jobs_of_one_gpu_share_a_node_and_four_and_five_do_not(scene: Scene) -> None:
    scene.namespace("ml")
    scene.apply(SIMULATE / "four-and-five.yaml", kinds=("ResourceFlavor", "ClusterQueue", "LocalQueue"))
    ones = [f"ml/one-{number}" for number in range(8)]
    for name in ones:
        scene.job(name, "jobs", gpus=1)
    until(lambda: all(map(scene.runs, ones)), "all eight run")
    for name in ones:
        scene.finish(name)
    scene.apply(SIMULATE / "four-and-five.yaml", kinds=("Job",))
    until(lambda: scene.runs("ml/four"), "four runs")
    until(lambda: scene.condition("ml/five", "QuotaReserved") == "False/WaitingForQuota", "five waits")
    assert not scene.pods("ml/five")
    scene.finish("ml/four")
    until(lambda: scene.runs("ml/five"), "then five")


def test_kubeflow_s_jobs_are_denied_their_gpus_until_there_are_enough_for_all_of_their_workers(scene: Scene) -> None:
    """Four workers and eight, on eight GPUs; they name no queue."""
    scene.apply(QUEUES / "flavors-by-product.yaml")
    scene.create(cluster_queue("eight", "nvidia-a100", 8))
    scene.local_queue("default/default", "eight")
    bert, resnet = "default/bert-large-train", "default/resnet50-classify"
    scene.until_served(QUEUES / "kubeflow-jobs.yaml")
    scene.apply(QUEUES / "kubeflow-jobs.yaml", kinds=("TFJob",))
    until(lambda: scene.running(bert) == 4, "the first has its four")
    scene.apply(QUEUES / "kubeflow-jobs.yaml")
    assert scene.products(bert) == {A100}
    until(lambda: scene.condition(resnet, "QuotaReserved") == "False/WaitingForQuota", "four idle GPUs are too few")
    assert not scene.pods(resnet)
    scene.finish(bert)
    until(lambda: scene.running(resnet) == 8, "all eight at once")
    assert scene.products(resnet) == {A100}
    assert scene.condition(bert, "Finished") == "True/Succeeded"
    scene.finish(resnet)
    until(lambda: scene.condition(resnet, "Finished") == "True/Succeeded", "the operator says that it has succeeded")


def test_a_running_job_of_kubeflow_s_is_deleted_in_the_foreground(scene: Scene) -> None:
    """Its operator writes no status any more, and the deletion waits for the Workload."""
    scene.apply(QUEUES / "flavors-by-product.yaml")
    scene.create(cluster_queue("eight", "nvidia-a100", 8))
    scene.local_queue("default/default", "eight")
    scene.until_served(QUEUES / "kubeflow-jobs.yaml")
    scene.apply(QUEUES / "kubeflow-jobs.yaml", kinds=("TFJob",))
    until(lambda: scene.running("default/bert-large-train") == 4, "it runs")
    scene.kubectl("delete", "tfjob", "bert-large-train", "-n", "default", "--cascade=foreground", "--timeout=120s")


def test_kubeflow_s_jobs_as_they_are_printed_are_refused(scene: Scene) -> None:
    printed = re.sub(r"(?m)^ +", "", (QUEUES / "kubeflow-jobs.yaml").read_text())
    with pytest.raises(ClusterError, match="resource name may not be empty"):
        scene.kubectl("apply", "--dry-run=server", "-f", "-", input=printed)


# 000: GPU Scheduling and Resource Allocation.


def test_who_has_used_more_lately_waits_longer(scene: Scene) -> None:
    """The figure's status cannot be written by hand on a live cluster: anna earns it by a job that runs."""
    scene.namespace("ml")
    scene.apply(SIMULATE / "heavy-user.yaml", kinds=("ResourceFlavor", "ClusterQueue", "LocalQueue"))
    scene.job("ml/earlier", "anna", gpus=8)
    until(lambda: scene.runs("ml/earlier"), "anna has all 8 GPUs")
    until(lambda: scene.consumed("ml/anna") not in ("", "0"), "her use is written down")
    jobs = {one["metadata"]["name"]: one for one in yaml.safe_load_all((SIMULATE / "heavy-user.yaml").read_text())}
    scene.create(jobs["sweep-1"])
    until(lambda: scene.condition("ml/sweep-1", "QuotaReserved") != "", "anna's next one waits")
    scene.create(jobs["probe"])
    until(lambda: scene.condition("ml/probe", "QuotaReserved") != "", "ben's waits behind it")
    scene.finish("ml/earlier")
    until(lambda: scene.runs("ml/probe"), "ben goes first, although anna asked first")
    assert scene.suspended("ml/sweep-1")
