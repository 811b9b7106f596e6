"""One cluster for the whole session, its name of this process alone; TESSERA_E2E_CLUSTER names a running one to use.

API servers log what the controller's and the agent's accounts do. The logs are kept for a second try of what failed.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.layout import AUDIT_ENV
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from tests.support.e2e import rights
from tests.support.e2e.lab import CRDS, Lab


@pytest.fixture(scope="session", autouse=True)
def audit(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Folder of the audit logs: of this run, and of the one whose failures it tries again."""
    folder: Path = request.config.cache.mkdir("audit")
    if not request.config.getoption("lf"):
        shutil.rmtree(folder)
        folder.mkdir()
    if are_all(request.session):
        rights.note_all_tests(folder)
    rights.prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(AUDIT_ENV, str(folder))
        yield folder


def are_all(session: pytest.Session) -> bool:
    """Whether no file of the tier is left out, and nothing was chosen by its name."""
    files = set(Path(__file__).parent.rglob("test_*.py"))
    return files <= {item.path for item in session.items} and not session.config.getoption("keyword")


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
