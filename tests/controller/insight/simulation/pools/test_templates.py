"""A flavor's node template stands for a pool, where no pool of the fleet stands for the flavor."""

import json
from typing import Any

import pytest

from controller.insight.simulation.documents import InputError
from tests.support.controller.manifests import Json, cluster_queue, flavor, job, kueue, local_queue, run, told
from tests.support.controller.nodepools import Fleet, node

TEMPLATE = {"gpus": 8, "product": "NVIDIA A100-SXM4-80GB", "max": 4, "after": "4m"}


def templated(given: dict[str, Any] | str = TEMPLATE) -> Json:
    made = flavor()
    text = given if isinstance(given, str) else json.dumps(given)
    notes = {**made["metadata"].get("annotations", {}), "tessera.dev/node-template": text}
    return {**made, "metadata": {**made["metadata"], "annotations": notes}}


def test_a_gang_waits_for_as_long_as_a_node_takes_as_a_rule() -> None:
    result = run(templated(), cluster_queue(gpus=64), local_queue(), job("train", 8, pods=2, runtime="1h"))
    assert told(result) == ["0 Pending train", "240 Admitted train", "3840 Finished train"]
    assert result.timeline[0].reason == "WaitingForNodes"
    assert result.timeline[0].message == "Holds quota in ClusterQueue main; 2 nodes of pool a100 are there in 4m"
    assert set(result.final.node_hours) == {"a100"}


def test_what_even_the_most_do_not_hold_waits_without_quota() -> None:
    result = run(templated(), cluster_queue(gpus=64), local_queue(), job("train", 8, pods=5, runtime="1h"))
    assert told(result) == ["0 Pending train"]


def test_a_pool_of_a_template_has_the_nodes_that_are_not_there_yet() -> None:
    fleet = [node(f"n{number}") for number in range(3)]
    one = TEMPLATE | {"max": 4}
    result = run(templated(one), cluster_queue(gpus=64), local_queue(), *fleet, job("train", 8, pods=4, runtime="1h"))
    assert told(result)[1] == "240 Admitted train"
    result = run(templated(one), cluster_queue(gpus=64), local_queue(), *fleet, job("train", 8, pods=5, runtime="1h"))
    assert told(result) == ["0 Pending train"]


def test_claims_get_the_devices_that_the_template_describes() -> None:
    """The simulation makes ResourceSlices of the template: a node that does not exist has none."""
    devices = TEMPLATE | {"devices": [{"driver": "gpu.nvidia.com"}], "max": 2}
    topology = kueue("Topology", "hosts", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    placing = {**templated(devices), "spec": {"topologyName": "hosts"}}
    fits, more = (_claiming(name, devices=number) for name, number in (("fits", 8), ("more", 9)))
    result = run(topology, placing, cluster_queue(gpus=64), local_queue(), *_claims(), fits, more, using=MAPPED)
    assert told(result) == ["0 Pending fits", "0 Pending more", "240 Admitted fits", "3840 Finished fits"]
    assert result.final.node_hours.keys() == {"a100"}


MAPPED = """
resources: {deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu.nvidia.com]}]}
tessera: {policy: tessera}
"""


def _claims() -> list[Json]:
    """A class of whole A100 and two templates, of 8 and of 9 devices."""
    chosen = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA A100-SXM4-80GB'"
    selectors = [{"cel": {"expression": chosen}}]
    made = [{"kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": selectors}}]
    for number in (8, 9):
        asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": number}}
        spec = {"spec": {"devices": {"requests": [asked]}}}
        meta = {"name": f"gpus-{number}", "namespace": "ns"}
        made.append({"kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec})
    return [{"apiVersion": "resource.k8s.io/v1", **each} for each in made]


def _claiming(name: str, *, devices: int) -> Json:
    made = job(name, pods=2, runtime="1h")
    spec = made["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": f"gpus-{devices}"}]
    return made


def test_a_pool_that_matches_the_flavor_stands_for_the_annotation() -> None:
    fleet = Fleet().pool("gpu", 4)
    result = run(
        templated(), cluster_queue(gpus=64), local_queue(), *fleet.nodes, job("train", 8, pods=2), pools=fleet.comes
    )
    assert set(result.final.node_hours) == {"gpu"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("{gpus: 8}", "max: found nothing"), ("{gpus: 8, max: 1, size: 2}", 'found the field "size"')],
)
def test_a_wrong_one_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputError) as wrong:
        run(templated(text), cluster_queue(gpus=8), local_queue())
    assert f"metadata.annotations[tessera.dev/node-template]: {said}" in str(wrong.value)
