"""One cluster for the whole session, its name of this process alone; TESSERA_E2E_CLUSTER names a running one to use.

API servers log what the controller's and the agent's accounts do. `make e2e` has the logs of all its processes in one
folder.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.layout import AUDIT_ENV
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from hack.e2e.plugin import PART
from tests.support.e2e import order, rights
from tests.support.e2e.hands import Hands
from tests.support.e2e.judged import MARK, Records
from tests.support.e2e.lab import ROOT, Lab, ready


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to workers as these become free. Every worker has to collect alike."""
    items.sort(key=lambda item: order.place(item.path))


@pytest.fixture(scope="session", autouse=True)
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rights.Logs]:
    """The audit logs: those of the whole tier where its folder is given, else of this process."""
    given = os.environ.get(AUDIT_ENV)
    whole = bool(given) and PART not in os.environ
    logs = rights.Logs(Path(given) if given else tmp_path_factory.mktemp("audit"), of_all_tests=whole)
    logs.prepare()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(AUDIT_ENV, str(logs.folder))
        patch.setenv("TESSERA_API_SPREAD", "0")  # one node is no fleet: its agent need not wait for its place
        yield logs


@pytest.fixture(scope="session", autouse=True)
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """What happens on each cluster from its coming up to its end; the record in which something is wrong is kept."""
    every = os.environ.get("TESSERA_E2E_RECORDS")
    kept = Path(every) if every else ROOT / "build/e2e-records"
    made = Records(tmp_path_factory.mktemp("records"), kept, keeps_all=bool(every))
    with made.following() as records:
        yield records
    records.check()
    if every:
        (kept / f"cpu-{os.getpid()}").write_text(f"{records.cpu_s:.2f} s\n")


@pytest.fixture(scope="module", autouse=True)
def histories_of_a_module_keep_the_rules(records: Records, request: pytest.FixtureRequest) -> Iterator[None]:
    """After its own clusters have gone; what is wrong before its first scene, or after its last, is its own too."""
    records.begin(request.node.nodeid, request.node.iter_markers(MARK))
    yield
    records.check()


@pytest.fixture(autouse=True)
def histories_keep_the_rules(records: Records, request: pytest.FixtureRequest) -> Iterator[None]:
    """What pods, workloads, queues, kubelets and hardware did, as the judge sees it who shares nothing with us."""
    records.begin(request.node.nodeid, request.node.iter_markers(MARK))
    yield
    records.check()


@pytest.fixture(scope="session")
def lab(records: Records) -> Iterator[Lab]:
    if borrowed := os.environ.get("TESSERA_E2E_CLUSTER"):
        cluster = Cluster.of(borrowed)
        end = records.follow(cluster)
        yield ready(cluster)
        end()
        return
    for program in ("kubernetes", "containerd"):
        binaries.build(program)
    with Cluster.up(f"e2e-{os.getpid()}", Spec()) as cluster:
        yield ready(cluster)


@pytest.fixture(scope="module")
def hands(lab: Lab) -> Iterator[Hands]:
    """Looked at from outside, all the time and after each step: nothing of a GPU is in two hands.

    By module, for one may have a cluster of its own.
    """
    with Hands(lab).watching() as hands:
        yield hands


@pytest.fixture(autouse=True)
def nothing_is_in_two_hands(request: pytest.FixtureRequest) -> Iterator[None]:
    """On the node that all scenes share, whatever they are about."""
    hands: Hands | None = request.getfixturevalue("hands") if "lab" in request.fixturenames else None
    yield
    if hands is not None:
        hands.check()


@pytest.fixture(autouse=True)
def no_pods_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test finds the devices free, and agents that know it."""
    yield
    if "lab" in request.fixturenames:
        lab: Lab = request.getfixturevalue("lab")
        lab.delete_pods()
        lab.await_no_holders()
