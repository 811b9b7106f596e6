"""A GpuLayout at admission, on a real API server: what no schema can say of ``gpus`` is refused there and then."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.e2e.admission.test_fraction_policies import CHART
from tests.support.e2e.lab import EXAMPLES, until

pytestmark = pytest.mark.e2e

UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    binaries.build("kubernetes")
    with Cluster.up(f"layout-policy-{os.getpid()}", Spec(nodes=())) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(CHART / "crds/gpulayouts.tessera.dev.yaml"))
        command = [str(binaries.binary("helm")), "template", "t", str(CHART), "-s", "templates/layout-policy.yaml"]
        made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        cluster.kubectl("apply", "--server-side", "-f", "-", input=made.stdout)
        until(lambda: refusal(cluster, []) != "", "the policy in effect")
        yield cluster


def refusal(cluster: Cluster, *gpus: Any) -> str:
    """Why a layout with an entry for each of ``gpus`` is not let in; empty where it is."""
    layout = [{"gpus": one, "mode": "whole"} for one in gpus]
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuLayout", "metadata": {"name": "a"}}
    text = json.dumps({**body, "spec": {"layout": layout}})
    try:
        cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
    except ClusterError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    "gpus", [[0, UUID], {"any": 2}, {"product": "NVIDIA H100"}, {"product": "NVIDIA H100", "any": 1}], ids=str
)
def test_every_way_to_name_gpus_is_let_in(cluster: Cluster, gpus: Any) -> None:
    assert refusal(cluster, gpus) == ""


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        (0, "gpus: expected a list of indexes"),
        ("0", "gpus: expected a list of indexes"),
        ([], "gpus: expected a list of indexes"),
        ({}, "gpus: expected a list of indexes"),
        ({"nay": 1}, "gpus: expected a list of indexes"),
        ({"any": 0}, "gpus: expected a list of indexes"),
        ({"any": "two"}, "gpus: expected a list of indexes"),
        ([0, "first"], "gpus: found first, expected an index"),
        ([-1], "gpus: found -1, expected an index"),
        (["GPU-1"], "gpus: found a wrong UUID"),
        ([1, 1], "gpus: a GPU is named twice"),
    ],
    ids=repr,
)
def test_what_names_no_gpus_is_refused(cluster: Cluster, gpus: Any, why: str) -> None:
    assert why in refusal(cluster, gpus)


def test_a_gpu_that_two_entries_name_is_refused(cluster: Cluster) -> None:
    assert "gpus: a GPU is named twice" in refusal(cluster, [0, 1], [2, 1])


def test_the_examples_are_let_in(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--dry-run=server", "-f", str(EXAMPLES / "layouts"))
