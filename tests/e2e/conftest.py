"""One cluster for the whole session, its name of this process alone; TESSERA_E2E_CLUSTER names a running one to use."""

import os
from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e.lab import CRDS, Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    if borrowed := os.environ.get("TESSERA_E2E_CLUSTER"):
        cluster = Cluster.of(borrowed)
        yield ready(cluster)
        return
    for program in ("kubernetes", "containerd"):
        binaries.build(program)
    with Cluster.up(f"e2e-{os.getpid()}", Spec()) as cluster:
        yield ready(cluster)


def ready(cluster: Cluster) -> Lab:
    lab = Lab(cluster, cluster.node("node-1"))
    lab.apply(*sorted(CRDS.glob("*.yaml")))
    lab.delete_pods()
    return lab


@pytest.fixture(autouse=True)
def no_pods_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test finds the devices free, and agents that know it."""
    yield
    if "lab" in request.fixturenames:
        lab: Lab = request.getfixturevalue("lab")
        lab.delete_pods()
        lab.await_no_holders()
