"""The conditions of a JobKind say what holds it up, and keep their times while they stay."""

import pytest

from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared.accepting import Verdict
from controller.jobs.kinds.declared.conditions import Seen, conditions
from controller.jobs.kinds.declared.kind import DeclaredKind
from tests.support.controller.declarations import job_kind, kind_of

KIND = kind_of(job_kind())
ACCEPTED = Verdict("Accepted", "it is a kind", KIND)
GIVEN: Json = {"metadata": {"generation": 3}}


@pytest.mark.parametrize(
    ("verdict", "seen", "reason", "message"),
    [
        (ACCEPTED, Seen(), "Active", "Objects of sweeps.lab.example that name a queue are queued"),
        (Verdict("Invalid", "spec: wrong"), Seen(), "NotAccepted", "see the condition Accepted"),
        (ACCEPTED, Seen(followed=False), "NotServed", "The API server has no sweeps.lab.example of version v1"),
        (
            ACCEPTED,
            Seen(followed=False, missing=("list sweeps.lab.example", "patch sweeps.lab.example")),
            "Forbidden",
            "list sweeps.lab.example, patch sweeps.lab.example: grant it in a ClusterRole with the label tessera.dev/",
        ),
        (
            Verdict("Accepted", "it is a kind", DeclaredKind(KIND.spec, leaving=True)),
            Seen(holders=2),
            "Terminating",
            "2 of its objects hold quota, and none starts any more",
        ),
    ],
)
def test_the_first_thing_in_the_way_is_told(verdict: Verdict, seen: Seen, reason: str, message: str) -> None:
    accepted, active = conditions(GIVEN, verdict, seen, "now")
    assert (accepted["reason"], accepted["message"]) == (verdict.reason, verdict.message)
    assert active["reason"] == reason
    assert message in active["message"]
    assert active["status"] == ("True" if reason == "Active" else "False")
    assert [each["observedGeneration"] for each in (accepted, active)] == [3, 3]


def test_a_condition_that_stays_keeps_its_time() -> None:
    first = conditions(GIVEN, ACCEPTED, Seen(followed=False), "then")
    again = conditions({**GIVEN, "status": {"conditions": first}}, ACCEPTED, Seen(), "now")
    assert [each["lastTransitionTime"] for each in again] == ["then", "now"]
    assert conditions({**GIVEN, "status": {"conditions": again}}, ACCEPTED, Seen(), "later") == again
