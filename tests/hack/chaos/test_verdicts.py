"""What the judge finds is counted where the last line has it, once, and what a fault excuses is not."""

from io import BytesIO
from typing import Any

from hack.chaos.verdicts import DOUBLED, UNPAID, Verdicts
from history.record import read
from tests.support.e2e.judged import RULES
from tests.support.history.told import Told, admitted, cluster_queue, job, local_queue, pod, workload


class Campaign:
    """A record that is judged in parts, as it grows."""

    def __init__(self) -> None:
        self.told = Told()
        self.told.put(cluster_queue(quota=2), local_queue())
        self.told.later(60)
        self.verdicts = Verdicts()
        self._taken = 0

    def judged(self, seconds: float = 0.0) -> dict[str, Any]:
        self.told.later(seconds)
        self.told.line("recorder", type="SIGHT", what="the time")
        facts = list(read(BytesIO(self.told.text())))
        found = self.verdicts.take(facts[self._taken :])
        self._taken = len(facts)
        return {"doubled": len(found.doubled), "quota": len(found.over_quota), "late": len(self.verdicts.late)}


NOTHING = {"doubled": 0, "quota": 0, "late": 0}


def test_rules_that_no_fault_excuses_are_figures_and_the_others_are_told() -> None:
    assert DOUBLED | UNPAID < RULES
    assert {"forgotten", "half-gang", "out-of-order"} == RULES - DOUBLED - UNPAID


def test_a_device_in_two_hands_is_doubled_once() -> None:
    campaign = Campaign()
    campaign.told.put(pod("a"), pod("b"))
    campaign.told.pods("n1", a=["GPU-1"], b=["GPU-1"])
    assert campaign.judged(3) == NOTHING
    assert campaign.judged(3) == {**NOTHING, "doubled": 1}
    assert campaign.judged(60) == NOTHING
    assert campaign.verdicts.heard == {"PodResources"}


def test_an_instance_that_goes_under_a_pod_is_doubled_too() -> None:
    campaign = Campaign()
    campaign.told.put(pod("a"))
    campaign.told.pods("n1", a=["MIG-1"])
    campaign.told.hardware("n1", {"uuid": "GPU-1", "mig": [{"uuid": "MIG-1", "profile": "1g.10gb"}]})
    campaign.told.hardware("n1", {"uuid": "GPU-1"})
    assert campaign.judged(6) == {**NOTHING, "doubled": 1}
    assert campaign.verdicts.heard == {"PodResources", "hardware"}


def test_whoever_has_what_no_quota_was_given_for_is_over_quota() -> None:
    campaign = Campaign()
    for name in ("a", "b", "c"):
        campaign.told.put(job(name), admitted(workload(job(name))))
    assert campaign.judged(6) == {**NOTHING, "quota": 1}
    campaign.told.put(job("d"), workload(job("d")), pod("d-0", job("d")))
    assert campaign.judged(6)["quota"] == 1


def test_what_is_late_is_told_and_no_figure() -> None:
    campaign = Campaign()
    campaign.told.put(job("a", suspend=True))
    assert campaign.judged(70) == {**NOTHING, "late": 1}
    assert campaign.verdicts.late[0].startswith("forgotten from 60.0 s on: Job team/a: ")
