"""Fractions at admission, on a real API server: what no node can give is refused with the sentence why, and KAI's and
HAMi's requests become percents. No kubelet: what a pod asks for is what the API server says it asks for."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.lab import until

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "tessera"
NAMESPACE = "tessera-system"
SPLIT = "tessera.dev/gpu-percent-devices"
PERCENT, SHARED, PRODUCT = "tessera.dev/gpu-percent", "nvidia.com/gpu.shared", "nvidia.com/gpu.product"
A100, H100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"
BOTH = (f"fractions.gpuMemoryMiB.{A100}=80000", f"fractions.gpuMemoryMiB.{H100}=160000")


def rendered(*values: str) -> str:
    flags = [word for value in ("fractions.granularity=10", *values) for word in ("--set", value)]
    command = [str(binaries.binary("helm")), "template", "t", str(CHART), "--namespace", NAMESPACE]
    command += ["-s", "templates/fractions-policy.yaml", "-s", "templates/mps-user-policy.yaml", *flags]
    command += ["--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod(
    limits: dict[str, Any] | None = None,
    *more: dict[str, Any],
    annotations: dict[str, str] | None = None,
    product: str = "",
) -> dict[str, Any]:
    containers = [
        {"name": f"c{i}", "image": "none", "resources": {"limits": one} if one is not None else {}}
        for i, one in enumerate((limits, *more))
    ]
    spec: dict[str, Any] = {"containers": containers, "restartPolicy": "Never"}
    if product:
        spec["nodeSelector"] = {PRODUCT: product}
    metadata = {"generateName": "p-", "namespace": "default", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def job(of: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"annotations": of["metadata"]["annotations"]}, "spec": of["spec"]}
    metadata = {"generateName": "j-", "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


class Api:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def made(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self.cluster.kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", input=json.dumps(body))
        found: dict[str, Any] = json.loads(text)
        return found

    def limits(self, body: dict[str, Any]) -> list[dict[str, str]]:
        """What each container asks for, of a pod and of a Job made of it: always the same."""
        made = self.made(body)
        template = self.made(job(body))["spec"]["template"]
        of_both = [
            [one["resources"].get("limits", {}) for one in spec["containers"]]
            for spec in (made["spec"], template["spec"])
        ]
        assert of_both[0] == of_both[1]
        for one in made["spec"]["containers"]:
            assert one["resources"].get("requests", {}) == one["resources"].get("limits", {})
        found: list[dict[str, str]] = of_both[0]
        return found

    def warnings(self, body: dict[str, Any]) -> list[str]:
        """What is said to who makes the pod, or a Job of it, and is let in."""
        said = []
        for one in (body, job(body)):
            words, environment = self.cluster.kubectl_command("create", "--dry-run=server", "-f", "-")
            done = subprocess.run(
                words, env=environment, input=json.dumps(one), capture_output=True, text=True, check=True, timeout=60
            )
            said.append([line for line in done.stderr.splitlines() if line.startswith("Warning")])
        assert len(said[0]) == len(said[1])
        return said[0]

    def refusal(self, body: dict[str, Any]) -> str:
        """Why neither the pod nor a Job of it is let in."""
        said = []
        for one in (body, job(body)):
            with pytest.raises(ClusterError) as refused:
                self.made(one)
            said.append(str(refused.value).partition("denied request: ")[2].strip())
        assert said[0] == said[1]
        assert said[0]
        return said[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    binaries.build("kubernetes")
    with Cluster.up(f"fraction-policies-{os.getpid()}", Spec(nodes=())) as cluster:
        cluster.kubectl("create", "namespace", NAMESPACE)
        yield cluster


@pytest.fixture(scope="module")
def one_product(cluster: Cluster) -> Api:
    return policies(cluster, BOTH[0], f"mps.resources={{{SHARED}}}")


def policies(cluster: Cluster, *values: str) -> Api:
    """The policies with these values, in effect."""
    text = rendered(*values)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    api = Api(cluster)
    sizes = next(one for one in yaml.safe_load_all(text) if one["kind"] == "ConfigMap").get("data") or {}
    wanted = 50 if len(sizes) == 1 else None

    def acts() -> bool:
        try:
            api.refusal(pod({PERCENT: 110}))
        except (pytest.fail.Exception, AssertionError):
            return False
        try:
            (limits,) = api.limits(pod(annotations={"gpu-memory": "40000"}))
        except ClusterError:
            return wanted is None
        return limits.get(PERCENT) == str(wanted)

    until(acts, "the policies in effect")
    return api


def test_what_no_node_can_give_is_refused_with_the_sentence_why(one_product: Api) -> None:
    assert one_product.refusal(pod({PERCENT: 110})) == (
        "tessera.dev/gpu-percent: found a request for 110, expected 100 at most: it is percent of one GPU; "
        "ask for whole GPUs by their own resource"
    )
    assert one_product.refusal(pod({PERCENT: 30}, {PERCENT: 15})) == (
        "tessera.dev/gpu-percent: found a request for 15, expected a multiple of 10, the granularity of the fleet"
    )
    assert one_product.limits(pod({PERCENT: 30}, {"cpu": "1"})) == [{PERCENT: "30"}, {"cpu": "1"}]


@pytest.mark.parametrize(
    ("fraction", "percent"), [("0.3", "30"), ("0.57", "60"), (".5", "50"), ("1", "100"), ("0.001", "10"), ("0.7", "70")]
)
def test_kais_fraction_becomes_percents_of_the_first_container(one_product: Api, fraction: str, percent: str) -> None:
    asked = pod({"cpu": "1"}, {"cpu": "2"}, annotations={"gpu-fraction": fraction})
    assert one_product.limits(asked) == [{"cpu": "1", PERCENT: percent}, {"cpu": "2"}]


def test_kais_fraction_goes_to_the_container_that_it_names_and_stays_what_was_asked_for(one_product: Api) -> None:
    named = {"gpu-fraction": "0.2", "gpu-fraction-container-name": "c1"}
    assert one_product.limits(pod(None, {"cpu": "2"}, annotations=named)) == [{}, {"cpu": "2", PERCENT: "20"}]
    assert one_product.limits(pod({PERCENT: 40}, annotations={"gpu-fraction": "0.2"})) == [{PERCENT: "40"}]


def test_kais_fraction_may_be_for_an_init_container(one_product: Api) -> None:
    def named(container: str) -> dict[str, Any]:
        body = pod({"cpu": "1"}, annotations={"gpu-fraction": "0.2", "gpu-fraction-container-name": container})
        body["spec"]["initContainers"] = [{"name": "setup", "image": "none"}]
        return body

    for made in (
        one_product.made(named("setup"))["spec"],
        one_product.made(job(named("setup")))["spec"]["template"]["spec"],
    ):
        assert made["containers"][0]["resources"]["limits"] == {"cpu": "1"}
        resources = made["initContainers"][0]["resources"]
        assert resources["limits"] == resources["requests"] == {PERCENT: "20"}
    assert 'gpu-fraction-container-name: found "other", expected the name of a' in one_product.refusal(named("other"))
    (said,) = one_product.warnings(named("setup"))
    assert "container setup shares a GPU under MPS" in said


def test_a_part_beside_whole_gpus_and_a_part_said_twice_are_refused(one_product: Api) -> None:
    for key, value in (("gpu-fraction", "0.5"), ("gpu-memory", "40000")):
        assert one_product.refusal(pod({"cpu": "1"}, {"nvidia.com/gpu": 1}, annotations={key: value})).endswith(
            f'{key}: found "{value}" beside nvidia.com/gpu, expected a part of a GPU or whole ones'
        )
    both = {"gpu-fraction": "0.5", "gpu-memory": "40000"}
    assert one_product.refusal(pod(annotations=both)).endswith(
        'gpu-memory: found "40000" beside gpu-fraction, expected one of the two'
    )


@pytest.mark.parametrize("wrong", ["1.5", "0", "half", "-0.3", ""])
def test_what_is_no_part_of_a_gpu_is_refused(one_product: Api, wrong: str) -> None:
    assert f'gpu-fraction: found "{wrong}", expected a part of one GPU' in one_product.refusal(
        pod(annotations={"gpu-fraction": wrong})
    )


def test_a_fraction_of_several_gpus_becomes_equal_parts_of_so_many(one_product: Api) -> None:
    """0.33 is rounded up to the granularity on each of them; the annotation says on how many the percents lie."""
    for asked, percent in (
        ({"gpu-fraction": "0.33", "gpu-fraction-num-devices": "2"}, "80"),
        ({"gpu-memory": "40000", "gpu-fraction-num-devices": "3"}, "150"),
        ({"gpu-fraction": "1", "gpu-fraction-num-devices": "64"}, "6400"),
    ):
        body = pod({"cpu": "1"}, annotations=asked)
        assert one_product.limits(body) == [{"cpu": "1", PERCENT: percent}]
        marks = one_product.made(body)["metadata"]["annotations"]
        assert marks[SPLIT] == asked["gpu-fraction-num-devices"]
    alone = pod(annotations={"gpu-fraction": "0.3", "gpu-fraction-num-devices": "1"})
    assert one_product.limits(alone) == [{PERCENT: "30"}]
    assert SPLIT not in one_product.made(alone)["metadata"]["annotations"]


@pytest.mark.parametrize("wrong", ["0", "-2", "65", "1.5", "two", "", "1" * 400])
def test_a_number_of_gpus_that_is_none_is_refused(one_product: Api, wrong: str) -> None:
    said = one_product.refusal(pod(annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": wrong}))
    assert said.endswith(f'gpu-fraction-num-devices: found "{wrong}", expected a whole number from 1 to 64')
    said = one_product.refusal(pod({PERCENT: 100}, annotations={SPLIT: wrong}))
    assert said.endswith(f'{SPLIT}: found "{wrong}", expected a whole number from 1 to 64')


def test_parts_of_several_gpus_that_no_node_can_give_are_refused(one_product: Api) -> None:
    two = {SPLIT: "2"}
    assert one_product.limits(pod({PERCENT: 100}, {"cpu": "1"}, annotations=two)) == [{PERCENT: "100"}, {"cpu": "1"}]
    assert "found a request for 220, expected 200 at most: it is percent of 2 GPUs" in one_product.refusal(
        pod({PERCENT: 220}, annotations=two)
    )
    assert "found a request for 70, expected a multiple of 20, the granularity" in one_product.refusal(
        pod({PERCENT: 70}, annotations=two)
    )
    assert "found 2 containers with tessera.dev/gpu-percent, expected one" in one_product.refusal(
        pod({PERCENT: 40}, {PERCENT: 40}, annotations=two)
    )
    assert "found without gpu-fraction and gpu-memory" in one_product.refusal(
        pod(annotations={"gpu-fraction-num-devices": "2"})
    )


def test_a_share_of_several_gpus_as_hami_writes_it_is_refused(one_product: Api) -> None:
    assert "a share lies on one GPU here" in one_product.refusal(pod({"nvidia.com/gpu": 2, "nvidia.com/gpucores": 30}))


def test_memory_is_a_part_of_what_the_fleets_one_product_has(one_product: Api) -> None:
    assert one_product.limits(pod(annotations={"gpu-memory": "20000"})) == [{PERCENT: "30"}]
    assert "expected 100 at most" in one_product.refusal(pod(annotations={"gpu-memory": "90000"}))
    hami = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 16000, "cpu": "1"}
    assert one_product.limits(pod(hami)) == [{"cpu": "1", PERCENT: "20"}]


@pytest.mark.parametrize(
    ("asked", "percent"),
    [
        ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30}, "30"),
        ({"nvidia.com/gpucores": 25}, "30"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 10}, "50"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 40}, "40"),
    ],
)
def test_hamis_shares_become_the_larger_of_cores_and_memory(
    one_product: Api, asked: dict[str, Any], percent: str
) -> None:
    assert one_product.limits(pod({"cpu": "1"}, asked)) == [{"cpu": "1"}, {PERCENT: percent}]


def test_whole_gpus_are_left_alone(one_product: Api) -> None:
    assert one_product.limits(pod({"nvidia.com/gpu": 2})) == [{"nvidia.com/gpu": "2"}]


def test_who_shares_a_gpu_under_mps_and_says_no_user_is_told_that_it_serves_one_at_a_time(one_product: Api) -> None:
    unsaid = pod({"cpu": "1"}, {PERCENT: 30})
    until(lambda: bool(one_product.warnings(unsaid)), "the policy in effect")
    (said,) = one_product.warnings(unsaid)
    assert (
        "container c1 shares a GPU under MPS, which serves one user at a time: found no securityContext.runAsUser"
        in said
    )
    for of_pod in (True, False):
        told = pod({"cpu": "1"}, {PERCENT: 30})
        where = told["spec"] if of_pod else told["spec"]["containers"][1]
        where["securityContext"] = {"runAsUser": 1000}
        assert one_product.warnings(told) == []
    assert one_product.warnings(pod({SHARED: 1})) != [], "named in mps.resources"
    assert one_product.warnings(pod({"nvidia.com/gpu": 1})) == []
    assert len(one_product.warnings(pod(annotations={"gpu-fraction": "0.3"}))) == 1, "as it was translated"


def test_in_a_mixed_fleet_memory_needs_a_product(cluster: Cluster) -> None:
    mixed = policies(cluster, *BOTH)
    memory = {"gpu-memory": "40000"}
    assert mixed.limits(pod(annotations=memory, product=A100)) == [{PERCENT: "50"}]
    assert mixed.limits(pod(annotations=memory, product=H100)) == [{PERCENT: "30"}]
    hami = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 40000}
    assert mixed.limits(pod(hami, product=H100)) == [{PERCENT: "30"}]
    assert "select one by the node label nvidia.com/gpu.product" in mixed.refusal(pod(annotations=memory))
    assert "select one by the node label nvidia.com/gpu.product" in mixed.refusal(pod(hami))
    assert mixed.limits(pod(annotations={"gpu-fraction": "0.3"})) == [{PERCENT: "30"}]


def test_without_the_configmap_only_parts_are_refused_as_while_the_chart_is_uninstalled(cluster: Cluster) -> None:
    api = policies(cluster, BOTH[0])
    cluster.kubectl("delete", "configmap", "-n", NAMESPACE, "--all")

    def refused(annotations: dict[str, str]) -> str:
        try:
            return api.refusal(pod(annotations=annotations))
        except pytest.fail.Exception:
            return ""

    missing = "and no tessera.dev/gpu-percent, which the ConfigMap"
    until(lambda: missing in refused({"gpu-fraction": "0.5"}), "the API server knows that it is gone")
    assert "no GPU that it is a part of" in refused({"gpu-memory": "40000"})
    assert api.limits(pod({"nvidia.com/gpu": 2})) == [{"nvidia.com/gpu": "2"}]
    assert api.limits(pod({PERCENT: 50})) == [{PERCENT: "50"}]
