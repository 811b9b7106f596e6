"""One control plane with 8 GPUs for each file of Volcano's scenes, and a controller beside it."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.podlab import GPU
from tests.support.e2e.queuelab import Controller
from tests.support.e2e.volcanolab import VolcanoLab, controlling, install_volcano, volcano_lab


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    for program in ("kubernetes", "kwok", "helm"):
        binaries.build(program)
    name = f"vc{request.path.stem.removeprefix('test_')}-{os.getpid()}"
    with Cluster.up(name, Spec(nodes=(), kwok_nodes=2, kwok_capacity={GPU: "4"})) as cluster:
        install_volcano(cluster)
        yield cluster


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with controlling(cluster, tmp_path_factory.mktemp("volcano")) as controller:
        yield controller


@pytest.fixture
async def scene(cluster: Cluster, controller: Controller) -> AsyncIterator[VolcanoLab]:
    assert controller.runs
    async with volcano_lab(cluster) as scene:
        yield scene
