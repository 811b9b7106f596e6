"""Parts of GPUs as KAI and HAMi ask for them are percents in a simulation too, or refused as in a cluster."""

import re
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.config.load import default
from controller.foreign.rules.fractions import Fleet
from controller.insight.simulation.documents import Document, InputError
from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.queued.fractions import fleet_of, in_percents
from controller.objects.core import Node
from controller.objects.decode import decode
from inventory.api.names import GPU_PERCENT, GPU_PERCENT_DEVICES
from tests.support.controller.manifests import job

FLEET = Fleet(granularity=10, memory_mib={"NVIDIA-H100": 80_000})
POLICY = Path(__file__).parents[5] / "charts/tessera/templates/fractions-policy.yaml"


def pod(limits: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    container = {"name": "c", "resources": {"limits": limits or {}}}
    metadata = {"name": "p", "namespace": "ns", "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def made(given: dict[str, Any]) -> Any:
    return in_percents(Document("f.yaml", 1, given), FLEET).data


def percents(given: dict[str, Any]) -> tuple[Any, ...]:
    asked = [each.get("resources", {}) for each in given["spec"]["containers"]]
    assert [each.get("limits", {}).get(GPU_PERCENT) for each in asked] == [
        each.get("requests", {}).get(GPU_PERCENT) for each in asked
    ]
    return tuple(each.get("limits", {}).get(GPU_PERCENT) for each in asked)


def test_pods_and_the_templates_of_jobs_and_deployments_ask_for_percents() -> None:
    assert percents(made(pod(gpu_fraction="0.33"))) == ("40",)
    assert percents(made(pod(gpu_memory="20000"))) == ("30",)
    both = made(pod(gpu_fraction="0.5", gpu_fraction_num_devices="2"))
    assert (percents(both), both["metadata"]["annotations"][GPU_PERCENT_DEVICES]) == (("100",), "2")
    hami = made(pod({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "25", "cpu": "1"}))
    assert hami["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1", GPU_PERCENT: "30"}
    template = pod(gpu_fraction="0.3")
    for version, kind in (("batch/v1", "Job"), ("apps/v1", "Deployment")):
        owner = {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, "spec": {"template": template}}
        assert percents(made(owner)["spec"]["template"]) == ("30",)
    assert percents(template) == (None,), "the manifest itself is as it was"


def test_a_part_may_be_for_an_init_container() -> None:
    given = pod(gpu_fraction="0.33", gpu_fraction_container_name="warm-up")
    given["spec"]["initContainers"] = [{"name": "warm-up"}]
    spec = made(given)["spec"]
    assert percents({"spec": {"containers": spec["initContainers"]}}) == ("40",)
    assert percents(made(given)) == (None,)


def test_whole_gpus_of_an_init_container_stand_beside_a_part_too() -> None:
    given = pod(gpu_fraction="0.5")
    given["spec"]["initContainers"] = [{"name": "warm-up", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    with pytest.raises(InputError, match=" beside nvidia"):
        made(given)


def node(name: str, product: str, mib: Any) -> Document:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": mib}
    return Document("f.yaml", 1, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})


def test_mib_are_percents_of_the_only_product_that_nodes_tell() -> None:
    one = fleet_of(Fleet(), [node("a", "NVIDIA-L4", "23000"), node("b", "NVIDIA-L4", "22500"), node("c", "", "9")], ())
    assert one.memory_mib == {"NVIDIA-L4": 22500}, "so many MiB are as many percents on each node"
    asked = in_percents(Document("f.yaml", 1, pod(gpu_memory="2251")), one).data
    assert percents(asked) == ("11",)
    known = decode(node("d", "NVIDIA-H100", "80000").data, Node)
    two = fleet_of(Fleet(), [node("a", "NVIDIA-L4", "23000"), node("e", "MIG", "0")], [known])
    assert two.memory_mib == {"NVIDIA-L4": 23000, "NVIDIA-H100": 80000}
    with pytest.raises(InputError, match="and no GPU that it is a part of"):
        in_percents(Document("f.yaml", 1, pod(gpu_memory="2251")), two)


def test_what_the_configuration_says_of_products_goes_before_what_nodes_tell() -> None:
    assert fleet_of(FLEET, [node("a", "NVIDIA-L4", "23000")], ()) is FLEET
    assert fleet_of(Fleet(), [node("a", "NVIDIA-L4", 23000)], ()).memory_mib == {}, "a label is a text"


def test_a_pod_in_a_simulation_gets_the_percents_of_the_fleets_product() -> None:
    asked = {**pod(gpu_memory="8000"), "metadata": {**pod(gpu_memory="8000")["metadata"], "namespace": "ns"}}
    asked["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    beside = decode(node("n", "NVIDIA-H100", "80000").data, Node)
    found = scenario([Document("f.yaml", 1, asked)], default(), [beside])
    assert beside in found.objects
    (pods,) = found.submissions[0].workload.spec.pod_sets
    assert str(pods.template.spec.containers[0].resources.requests[GPU_PERCENT].fraction) == "10"


def test_a_container_without_a_word_about_resources_asks_for_percents() -> None:
    bare = pod(gpu_fraction="0.3")
    del bare["spec"]["containers"][0]["resources"]
    assert percents(made(bare)) == ("30",)


def test_what_asks_for_no_part_is_the_same_document() -> None:
    given = Document("f.yaml", 1, job("a", 2))
    assert in_percents(given, FLEET) is given
    other = Document("f.yaml", 1, {**pod(gpu_fraction="0.3"), "kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1"})
    assert in_percents(other, FLEET) is other, "its pods are translated in a cluster, not its template"


def test_a_job_in_a_simulation_is_charged_for_percents() -> None:
    given = job("a", 0)
    given["spec"]["template"]["metadata"] = {"annotations": {"gpu-fraction": "0.5"}}
    del given["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    found = scenario([Document("f.yaml", 1, given)], default())
    (pods,) = found.submissions[0].workload.spec.pod_sets
    assert str(pods.template.spec.containers[0].resources.requests[GPU_PERCENT].fraction) == "50"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (pod(gpu_fraction="1.5"), 'gpu-fraction: found "1.5", expected a part of one GPU such as "0.3"'),
        (pod(gpu_fraction="0.0"), 'gpu-fraction: found "0.0", expected a part of one GPU'),
        (pod(gpu_fraction="0.5", gpu_fraction_container_name="x"), 'gpu-fraction-container-name: found "x", expected'),
        (
            pod(gpu_fraction="0.5", gpu_fraction_num_devices="0"),
            'gpu-fraction-num-devices: found "0", expected a',
        ),
        (pod(gpu_fraction_num_devices="2"), "gpu-fraction-num-devices: found without gpu-fraction and gpu-memory"),
        (
            pod({"nvidia.com/gpu": "1"}, gpu_fraction="0.5"),
            'gpu-fraction: found "0.5" beside nvidia.com/gpu, expected a part of a GPU or whole ones',
        ),
        (
            pod({"nvidia.com/gpu": "1", GPU_PERCENT: "50"}, gpu_memory="8000"),
            'gpu-memory: found "8000" beside nvidia.com/gpu, expected a part of a GPU or whole ones',
        ),
        (
            pod(gpu_fraction="0.5", gpu_memory="4096"),
            'gpu-memory: found "4096" beside gpu-fraction, expected one of the two',
        ),
        (pod(gpu_memory="many"), 'gpu-memory: found "many" and no GPU that it is a part of: give MiB'),
        (pod({"nvidia.com/gpu": "2", "nvidia.com/gpucores": "5"}), "a share lies on one GPU here"),
        (pod({"nvidia.com/gpumem": "0"}), "nvidia.com/gpumem: no GPU is known that it is a part of"),
        (pod({"nvidia.com/gpucores": "0.5"}), "expected a whole number"),
    ],
)
def test_a_part_of_which_nothing_can_be_made_is_refused_in_the_words_of_the_policy(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=f"^f.yaml: document 1: Pod p: .*{re.escape(says)}"):
        made(given)
    policy = re.sub(r"\s+", " ", POLICY.read_text())
    words = re.sub(r'^.*?found "[^"]*"', "", says).strip(", ").removeprefix("beside nvidia.com/gpu, ")
    assert words in policy
