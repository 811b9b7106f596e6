"""Claims of devices in a simulation: the page's examples, with its configuration and without."""

import re
from pathlib import Path

import yaml

from controller.cluster.config.load import default, parse
from controller.insight.simulation.documents import Document, documents
from controller.insight.simulation.manifests import scenario
from controller.insight.simulation.run import simulate
from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import GPU, told

ROOT = Path(__file__).parents[4]
QUEUED, GANG = (ROOT / "examples" / "claims" / f"{name}.yaml" for name in ("queued", "queued-gang"))
PAGE = next(
    text
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "dra-queues.md").read_text(), re.DOTALL)
    if "deviceClassMappings" in text
)


def read(*files: Path, without: str = "") -> list[Document]:
    found = [document for file in files for document in documents(file.read_text(), file.name)]
    return [document for document in found if document.kind != without]


def run(*files: Path, using: str = PAGE, without: str = "") -> SimulationResult:
    settings = parse(using) if using else default()
    return simulate(scenario(read(*files, without=without), settings), settings.engine, until_s=60, check=True)


def test_the_examples_of_the_page_are_counted() -> None:
    assert told(run(QUEUED)) == ["0 Admitted default/claims-queued"]
    assert told(run(QUEUED, GANG, without="Job")) == ["0 Admitted default/claims-gang"]
    both = run(QUEUED, GANG)
    assert sorted(told(both)) == ["0 Admitted default/claims-queued", "0 Pending default/claims-gang"]
    (waits,) = [entry for entry in both.timeline if entry.event == "Pending"]
    assert f"Needs 2 {GPU} of flavor claimed: 0 free, 2 more needed" in str(waits)


def test_without_a_mapping_the_class_is_named() -> None:
    (entry,) = run(QUEUED, using="").timeline
    assert "DeviceClass gpu.nvidia.com is not mapped" in str(entry)


def test_a_missing_template_is_named() -> None:
    (entry,) = run(QUEUED, without="ResourceClaimTemplate").timeline
    assert "there is no ResourceClaimTemplate default/queued-gpu" in str(entry)


NODES = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: hosts},
 spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com},
 spec: {selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}}
"""
NODE = """
---
{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}},
 status: {{allocatable: {{cpu: "8", pods: "100"}}, conditions: [{{type: Ready, status: "True"}}]}}}}
---
{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: {name}}},
 spec: {{driver: gpu.nvidia.com, nodeName: {name}, pool: {{name: {name}, generation: 1, resourceSliceCount: 1}},
         devices: [{devices}]}}}}
"""
DEVICE = "{{name: gpu-{at}, attributes: {{type: {{string: gpu}}}}}}"


def placed(**gpus: int) -> SimulationResult:
    """The example on nodes with so many GPUs, under a topology."""
    nodes = [NODE.format(name=name, devices=", ".join(DEVICE.format(at=at) for at in range(number)))
             for name, number in gpus.items()]  # fmt: skip
    text = QUEUED.read_text().replace("name: claimed\n---", "name: claimed\nspec: {topologyName: hosts}\n---")
    settings = parse(PAGE)
    given = documents(text + "---" + NODES + "".join(nodes), "nodes.yaml")
    return simulate(scenario(given, settings), settings.engine, until_s=60, check=True)


def test_pods_go_where_slices_have_devices_for_their_claims() -> None:
    assert told(placed(a=1, b=2)) == ["0 Admitted default/claims-queued"]
    assert told(placed(a=1, b=1)) == ["0 Admitted default/claims-queued"]
    (waits,) = placed(a=1, b=0).timeline
    assert "their claims find no devices on 1 of 2 open nodes" in str(waits)
    assert "at most 0 of the 1 of class gpu.nvidia.com that a pod needs" in str(waits)


SHARED = """
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: shared, labels: {kueue.x-k8s.io/queue-name: claims}}
spec:
  schedulingPolicy: {gang: {minCount: 4}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: queued-gpu}]
"""
SHARING_POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: "{name}", labels: {{kueue.x-k8s.io/queue-name: claims}}}}
spec:
  schedulingGroup: {{podGroupName: shared}}
  resourceClaims: [{{name: {claim}, resourceClaimTemplateName: queued-gpu}}]
  containers: [{{name: main, resources: {{claims: [{{name: {claim}}}]}}}}]
"""


def of_a_group(pods: int, claim: str = "gpu") -> SimulationResult:
    text = QUEUED.read_text() + SHARED + "".join(SHARING_POD.format(name=f"p{at}", claim=claim) for at in range(pods))
    settings = parse(PAGE)
    given = [each for each in documents(text, "shared.yaml") if each.kind != "Job"]
    return simulate(scenario(given, settings), settings.engine, until_s=60, check=True)


def test_a_claim_of_a_pod_group_is_charged_once_for_all_its_pods() -> None:
    result = of_a_group(6)
    assert told(result) == [
        "0 Admitted default/shared",
        "0 Admitted default/p4",
        "0 Admitted default/p5",
    ]
    (queue,) = result.final.cluster_queues.values()
    assert queue.usage[GPU] == 1


def test_a_claim_that_the_pods_name_in_other_words_is_each_pods_own() -> None:
    assert told(of_a_group(4, claim="own")) == ["0 Pending default/shared"]


def test_the_examples_ask_for_what_they_have() -> None:
    names = {each["metadata"]["name"] for each in yaml.safe_load_all(QUEUED.read_text())}
    assert {"claims", "queued-gpu", "claims-queued"} <= names
