"""What the net of rights takes for an answer that tells too much, and that its scenes are silent on the product."""

import asyncio

import pytest

from hack.planted.nets import accounts, queues
from hack.planted.nets.queuescenes import SCENES, acts


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (403, "", []),
        (400, 'metadata.namespace: found another one, expected "alpha"', []),
        (200, "{}", ["GET /x is answered with 200: alice has no right in beta"]),
        (403, "job-secret-1 is hers not", ["GET /x is answered with 403 and names job-secret of namespace beta"]),
    ],
)
def test_an_answer_tells_too_much_by_its_status_or_by_a_name_in_it(status: int, body: str, found: list[str]) -> None:
    assert accounts.told("GET /x", status, body) == found


def test_alice_is_answered_about_her_own_namespace_alone() -> None:
    assert asyncio.run(accounts.judged()) == []


def test_scenes_of_queues_come_in_the_order_of_their_times_and_share_no_namespace() -> None:
    found = acts()
    assert [at_s for at_s, _ in found] == sorted(at_s for at_s, _ in found)
    assert len(SCENES) >= 10
    assert found[-1][0] + 60 / 6 < queues.LASTS_S, "the judge's longest bound has time to pass after the last act"
