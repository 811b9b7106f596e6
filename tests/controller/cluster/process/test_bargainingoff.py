"""Bargaining is turned off beside requests of before: what was granted is brought to its end, nothing else comes of a
request, and where there are none nothing is read.
"""

from collections.abc import AsyncIterator

import pytest

from cli.playground.cluster import GPU
from controller.cluster.watching.kinds import CAPACITY_REQUESTS, WORKLOADS
from kube.errors import NotFoundError
from kube.testing import FakeApiServer
from tests.support.failpoints.bargainacts import BARGAINING, a_program_bargains, ask, status, workloads_of
from tests.support.failpoints.cluster import CONFIG, TEAM, KilledCluster
from tests.support.failpoints.deaths import Deaths

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
async def here(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KilledCluster]:
    async with FakeApiServer() as server:
        server.install(CAPACITY_REQUESTS)
        yield KilledCluster(server, Deaths(monkeypatch), BARGAINING)


async def turned_off(here: KilledCluster) -> None:
    """Start the controller again, without bargaining."""
    await here.stop()
    here.config = CONFIG
    await here.start()


async def test_a_request_that_is_deleted_ends_its_pods_and_then_its_workload(here: KilledCluster) -> None:
    await here.start()
    granted, used, given_back = a_program_bargains(here, "a")
    for stage in (granted, used):
        stage.deed()
        await here.until(stage.until, stage.what)
    (workload,) = workloads_of(here, "ask-a")
    await turned_off(here)
    assert status(here, "ask-a")["state"] == "Granted", "it lasts as it was told"
    given_back.deed()
    await here.until(given_back.until, given_back.what)
    gone = [each.body["metadata"]["name"] for each in here.server.store.changes if each.type == "DELETED"]
    assert gone.index("inside-a") < gone.index(workload)
    await here.stop()
    assert here.findings() == ()


async def test_a_grant_ends_when_nothing_uses_it_and_no_offer_is_answered(here: KilledCluster) -> None:
    await here.start()
    await ask(here, "idle", "Granted", min=3, max=3, duration="1h", useWithin="2s")
    await ask(here, "held", "Offered", min=2, max=2, duration="1h", answerWithin="1h")
    assert status(here, "held")["offers"][0]["held"]
    await turned_off(here)
    await here.until(lambda: status(here, "held").get("state") == "Expired", "the offer ends")
    assert status(here, "held")["message"].startswith(
        "Bargaining is off, tessera.bargaining.enabled: found false, expected true"
    )
    await here.until(lambda: status(here, "idle").get("state") == "Released", "the grant ends as it was told")
    assert status(here, "idle")["message"] == "Nothing used it within 2s of its start"
    await here.until(lambda: not workloads_of(here, "idle") + workloads_of(here, "held"), "quota is given back")
    here.make(CAPACITY_REQUESTS, "late", TEAM, spec={"queueName": "lq", "unit": {GPU: "1"}})
    await here.stop()
    assert status(here, "late") == {}, "nothing new is answered"


async def test_nothing_is_read_of_requests_where_none_was_granted(here: KilledCluster) -> None:
    here.config = CONFIG
    await here.start()
    here.make(CAPACITY_REQUESTS, "late", TEAM, spec={"queueName": "lq", "unit": {GPU: "1"}})
    await here.stop()
    with pytest.raises(NotFoundError):
        here.server.get(WORKLOADS, "late", namespace=TEAM)
    assert not [each for each in here.server.requests if "capacityrequests" in each.path]
    assert not [each for each in here.server.requests if "capacity-request" in str(each)]
