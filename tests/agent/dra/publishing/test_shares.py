"""Shares of a GPU by claim: what is published of it, and what a claim that has one is given."""

import re

import pytest

from agent.dra.claim import ClaimError
from agent.dra.publishing.devices import offered
from agent.dra.publishing.shares import NONE, Share, consumed
from tests.support.inventory.builders import gpu, node, uuid

DRIVER = "gpu.nvidia.com"
COMPUTE = "tessera.dev/computePercent"


def test_a_gpu_with_shares_is_one_device_that_several_claims_have_parts_of() -> None:
    """It is no whole GPU beside that, and what a claim does not name is one step."""
    shared, whole = offered(node([gpu(0), gpu(1)]), [uuid(0), uuid(1)], {uuid(0): 10}).devices
    assert (shared.name, whole.name, whole.shares) == ("gpu-0-shares", "gpu-1", None)
    content = shared.content()
    assert content["attributes"]["type"] == {"string": "share"}
    assert content["attributes"]["uuid"] == {"string": uuid(0)}
    assert content["allowMultipleAllocations"] is True
    assert content["capacity"] == {
        "memory": {
            "value": "40Gi",
            "requestPolicy": {"default": "4Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
        },
        COMPUTE: {"value": "100", "requestPolicy": {"default": "10", "validRange": {"min": "10", "step": "10"}}},
    }
    assert "allowMultipleAllocations" not in whole.content()


@pytest.mark.parametrize(
    ("memory", "percent", "share"),
    [("8Gi", "30", Share(8192, 30)), ("8589934592", "1", Share(8192, 1)), ("1Mi", "100", Share(1, 100))],
)
def test_what_the_scheduler_gave_is_a_share(memory: str, percent: str, share: Share) -> None:
    assert consumed({"memory": memory, COMPUTE: percent}, DRIVER, "x") == share
    assert consumed({f"{DRIVER}/memory": memory, COMPUTE: percent}, DRIVER, "x") == share


@pytest.mark.parametrize(
    ("capacity", "why"),
    [
        ({}, "x: consumedCapacity.memory: found None, expected 1Mi or more"),
        ({"memory": "1k", COMPUTE: "10"}, "x: consumedCapacity.memory: found '1k', expected 1Mi or more"),
        ({"memory": "-1Gi", COMPUTE: "10"}, "found '-1Gi'"),
        ({"memory": "9" * 400, COMPUTE: "10"}, "expected 1Mi or more"),
        ({"memory": "1Gi"}, f"x: consumedCapacity.{COMPUTE}: found '', expected 1 to 100"),
        ({"memory": "1Gi", COMPUTE: "0"}, "found '0', expected 1 to 100"),
        ({"memory": "1Gi", COMPUTE: "101"}, "found '101', expected 1 to 100"),
        ({"memory": "1Gi", COMPUTE: "1e1"}, "found '1e1', expected 1 to 100"),
        ({"memory": "1Gi", COMPUTE: "9" * 5000}, "expected 1 to 100"),
    ],
)
def test_what_is_no_share_is_refused(capacity: dict[str, str], why: str) -> None:
    with pytest.raises(ClaimError, match=re.escape(why)):
        consumed(capacity, DRIVER, "x")


def test_shares_add_up() -> None:
    both = sum([Share(100, 30), Share(50, 70)], NONE)
    assert both == Share(150, 100)
    assert both.within(Share(150, 100))
    assert not both.within(Share(149, 100))
    assert not both.within(Share(150, 99))
