"""The admission check of campaigns answers what asks it, once, and leaves other checks alone."""

from typing import Any, cast

import pytest

from hack.chaos.api import WORKLOADS, Api, RefusedError
from hack.chaos.checks import AT, CHECK, Checks, active, answer
from hack.chaos.faults.rapid import Patches

Json = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


def workload(*conditions: str, state: str = "Pending", check: str = CHECK, name: str = "w") -> Json:
    states = [{"name": "other", "state": "Pending"}, {"name": check, "state": state, "message": ""}]
    status = {"admissionChecks": states, "conditions": [{"type": each, "status": "True"} for each in conditions]}
    return {"metadata": {"name": name, "resourceVersion": "7"}, "status": status}


def test_who_has_quota_and_asks_is_answered_at_the_version_that_was_read() -> None:
    said = answer(workload("QuotaReserved"), NOW)
    assert said is not None
    assert said["metadata"] == {"resourceVersion": "7"}
    other, mine = said["status"]["admissionChecks"]
    assert (other["state"], mine["state"], mine["lastTransitionTime"]) == ("Pending", "Ready", NOW)


@pytest.mark.parametrize(
    "asked",
    [
        workload(),
        workload("QuotaReserved", "Finished"),
        workload("QuotaReserved", state="Ready"),
        workload("QuotaReserved", state="Retry"),
        workload("QuotaReserved", check="another"),
        {"metadata": {"name": "w", "resourceVersion": "7"}},
    ],
)
def test_who_does_not_ask_is_left_alone(asked: Json) -> None:
    assert answer(asked, NOW) is None


def test_a_check_is_active_once_somebody_answers() -> None:
    said = active({"metadata": {"name": CHECK}}, NOW)
    assert said is not None
    assert active({"metadata": {"name": CHECK}, **said}, NOW) is None


class Server:
    """Refuses the first write of each workload: it has another version by now."""

    def __init__(self) -> None:
        self.workloads = [workload("QuotaReserved", name=f"w{number}") for number in range(8)]
        self.refused: set[str] = set()
        self.said: list[str] = []

    def items(self, path: str) -> list[Json]:
        return self.workloads if path == WORKLOADS else [{"metadata": {"name": CHECK}}] if path == AT else []

    def patch(self, path: str, body: Json) -> Json:
        if path not in self.refused and path.startswith(WORKLOADS):
            self.refused.add(path)
            raise RefusedError(409, "conflict")
        self.said.append(path)
        for each in self.workloads:
            if path == f"{WORKLOADS}/{each['metadata']['name']}/status":
                each["status"].update(body["status"])
        return body


def test_all_are_answered_in_some_round_and_a_conflict_is_none_of_the_others() -> None:
    server = Server()
    api: Patches = server
    checks = Checks(cast("Api", api), seed=1)
    for _ in range(40):
        checks.look()
    assert checks.answered == len(server.workloads)
    assert all(each["status"]["admissionChecks"][1]["state"] == "Ready" for each in server.workloads)
    assert f"{AT}/{CHECK}/status" in server.said
