"""Requests with times, beside a whole controller: none is granted before its time or offered after it, and no hold is
longer than the site allows.
"""

from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from controller.cluster.watching.kinds import CAPACITY_REQUESTS
from kube.testing import FakeApiServer
from tests.support.failpoints.bargainacts import BARGAINING, ask, status, workloads_of
from tests.support.failpoints.cluster import TEAM, KilledCluster
from tests.support.failpoints.deaths import Deaths

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
async def here(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KilledCluster]:
    async with FakeApiServer() as server:
        server.install(CAPACITY_REQUESTS)
        yield KilledCluster(server, Deaths(monkeypatch), BARGAINING)


def told(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


async def test_an_accepted_offer_of_later_is_granted_at_its_time_and_not_before(here: KilledCluster) -> None:
    await here.start()
    await ask(here, "later", "Offered", min=2, max=2, duration="1h", notBefore="3s")
    created_s = told(here.server.get(CAPACITY_REQUESTS, "later", namespace=TEAM)["metadata"]["creationTimestamp"])
    (offer,) = status(here, "later")["offers"]
    assert told(offer["from"]) == created_s + 3
    assert not workloads_of(here, "later"), "nothing is held for it"
    here.server.merge(CAPACITY_REQUESTS, "later", {"spec": {"accept": offer["id"]}}, namespace=TEAM)
    await here.until(lambda: status(here, "later").get("state") == "Granted", "it is granted")
    assert told(status(here, "later")["from"]) >= created_s + 3
    await here.stop()
    assert here.findings() == ()


async def test_nothing_is_offered_that_begins_after_the_latest_time(here: KilledCluster) -> None:
    await here.start()
    await ask(here, "first", "Granted", min=4, max=4, duration="1h")
    await ask(here, "soon", "Refused", min=2, max=2, duration="1m", notAfter="30m")
    assert status(here, "soon")["message"].startswith("No offer can be made that begins by ")
    await ask(here, "patient", "Offered", min=2, max=2, duration="1m", notAfter="2h")
    until = status(here, "first")["until"]
    assert [each["from"] for each in status(here, "patient")["offers"]] == [until]
    await here.stop()


async def test_what_is_held_is_given_back_when_the_sites_time_for_it_is_over(here: KilledCluster) -> None:
    here.config = BARGAINING.replace("enabled: true", "enabled: true, longestHold: 2s")
    await here.start()
    await ask(here, "first", "Granted", min=3, max=3, duration="1h")
    await ask(here, "held", "Offered", min=2, max=2, duration="1m", answerWithin="1h")
    (now, later) = status(here, "held")["offers"]
    assert (now["units"], now["held"], later.get("held", False)) == (1, True, False)
    assert told(later["standsUntil"]) - told(now["standsUntil"]) > 3000
    assert len(workloads_of(here, "held")) == 1
    await here.until(lambda: not workloads_of(here, "held"), "what was held is free again")
    assert status(here, "held")["state"] == "Offered", "the offer of later stands"
    await here.stop()
