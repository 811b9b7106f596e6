"""A cluster that runs NVIDIA's device plugin and Kueue is converted by the commands of the two pages, in their order,
with pods and an admitted job running all along.
"""

import os
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.support.e2e import conversionlab
from tests.support.e2e.lab import GPU, until
from tests.support.e2e.lifelab import NAMESPACE, PRESENT, SPEC, Life

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    binaries.build("helm")
    with Cluster.up(f"conversion-{os.getpid()}", SPEC) as cluster:
        site = Life.beside(cluster, tmp_path_factory.mktemp("site"))
        site.load(PRESENT)
        conversionlab.nvidia(site.lab)
        conversionlab.kueue(site.lab)
        yield site


@pytest.fixture(scope="module")
def before(site: Life) -> dict[str, Any]:
    """What runs in containers: a pod of two GPUs without a queue, and a job that Kueue admitted. Another job waits."""
    site.lab.run("holds", {GPU: 2})
    for number, admitted in enumerate((True, True, False)):
        conversionlab.queued(site.lab, f"job-{number}", admitted=admitted)
    conversionlab.webhooks(site.lab)
    return {"containers": site.containers(), "admitted": site.admissions()}


def test_nvidias_plugin_gives_way_to_the_agent_and_no_pod_notices(site: Life, before: dict[str, Any]) -> None:
    site.shell.follow("migration-nvidia.md", "In which order", site.site())
    site.lab.await_amounts({GPU: 8})
    until(lambda: len(site.holders()) == 4, "the agent knows the pods from before as holders")
    until(lambda: site.pods_of(conversionlab.OPERATOR) == [], "nothing of NVIDIA's runs on the node")
    assert site.containers() == before["containers"]
    held = {device for _, device in site.holders()}
    site.lab.run("new", {GPU: 4})
    until(lambda: len(site.holders()) == 8, "the new pod has the four others")
    assert held < {device for _, device in site.holders()}
    site.lab.delete_pods("new")


def older_api_is_answered(site: Life) -> bool:
    """Until a replica of the controller serves conversion the API server's answer is an error."""
    with suppress(urllib.error.HTTPError):
        return bool(site.lab.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/team"))
    return False


def test_kueue_gives_way_to_the_controller_and_what_it_admitted_stays_admitted(
    site: Life, before: dict[str, Any]
) -> None:
    site.shell.follow("migration-kueue.md", "Switching", site.site())
    assert site.containers() == before["containers"]
    assert site.admissions() == before["admitted"]
    assert site.pods_of(conversionlab.KUEUE) == []
    assert "controller" in site.cluster.kubectl("-n", NAMESPACE, "get", "deployments", "-o", "name")
    until(lambda: older_api_is_answered(site), "the older API is answered")


def test_what_waited_for_kueue_starts_when_its_turn_comes(site: Life) -> None:
    assert site.suspended("job-2")
    site.cluster.kubectl("delete", "job", "job-0", "--cascade=foreground", "--timeout=120s")
    until(lambda: not site.suspended("job-2"), "the job that waited starts")
    until(lambda: site.lab.get("/apis/batch/v1/namespaces/default/jobs/job-2")["status"].get("ready") == 1, "it runs")
