"""Scenes of claims ask for all that claims can be about: before Kubernetes 1.36 gates stand before most of it."""

import os
from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.support.e2e import kubernetes
from tests.support.e2e.lab import Lab, ready


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The session's cluster where it has it all, else one whose gates are on."""
    if kubernetes.CLAIMS:
        shared: Lab = request.getfixturevalue("lab")
        yield shared
        return
    for program in ("kubernetes", "containerd"):
        binaries.build(program)
    with Cluster.up(f"claims-{os.getpid()}", kubernetes.claims(on=True)) as cluster:
        yield ready(cluster)
