"""Volcano's network topology by the table of the configuration: levels that pod sets ask for, or a sentence."""

from typing import Any

import pytest

from controller.foreign.objects.volcanojob import NetworkTopology
from controller.jobs.framework.podsets import JobPodSet
from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.tiers import Tier, asked, together
from controller.objects.decode import decode

TIERS = (Tier(node_label="rack", name="nvl72"), Tier(node_label="block"))
NO_TABLE = "p: expected a table of tiers in tessera.volcano.topology of the configuration, found none"


def topology(**given: Any) -> NetworkTopology:
    return decode(given, NetworkTopology)


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({"mode": "hard", "highestTierAllowed": 1}, {"required": "rack"}),
        ({"mode": "hard", "highestTierAllowed": 2}, {"required": "block"}),
        ({"highestTierAllowed": 0}, {"required": "kubernetes.io/hostname"}),
        ({"mode": "hard", "highestTierName": "nvl72"}, {"required": "rack"}),
        ({"mode": "hard"}, {"preferred": "rack"}),
        ({"mode": "soft", "highestTierAllowed": 2}, {"preferred": "rack"}),
        ({}, {"preferred": "rack"}),
    ],
)
def test_a_tier_is_its_level(given: dict[str, Any], levels: Json) -> None:
    assert asked(topology(**given), TIERS, "p") == levels
    assert asked(None, TIERS, "p") == {}


@pytest.mark.parametrize(
    ("given", "tiers", "said"),
    [
        ({"highestTierAllowed": 1}, (), NO_TABLE),
        ({"highestTierName": "nvl72"}, (), NO_TABLE),
        ({"mode": "soft"}, (), NO_TABLE),
        (
            {"highestTierAllowed": 3},
            TIERS,
            "p.highestTierAllowed: expected 0 to 2, the tiers of tessera.volcano.topology, found 3",
        ),
        (
            {"highestTierName": "pod"},
            TIERS,
            "p.highestTierName: expected a name of tessera.volcano.topology (nvl72), found 'pod'",
        ),
    ],
)
def test_what_the_table_does_not_have_is_refused(given: dict[str, Any], tiers: tuple[Tier, ...], said: str) -> None:
    with pytest.raises(JobError) as refused:
        asked(topology(**given), tiers, "p")
    assert str(refused.value) == said


def test_without_a_bound_nothing_is_asked_of_a_cluster_without_a_table() -> None:
    assert asked(topology(mode="hard"), (), "p") == {}


def pods(name: str, count: int, **request: Any) -> JobPodSet:
    return JobPodSet(name=name, count=count, template={}, topology_request={"podIndexLabel": "i", **request})


def requests(*pod_sets: JobPodSet, levels: Json) -> list[Json]:
    found = together(pod_sets, levels, "spec.networkTopology")
    return [
        {key: value for key, value in (each.topology_request or {}).items() if key != "podIndexLabel"} for each in found
    ]


REQUIRED, PREFERRED = {"required": "rack"}, {"preferred": "rack"}
PAIR = {"podSetGroupName": "volcano-job"}


def test_one_pod_set_asks_for_the_level_and_two_with_one_leader_ask_together() -> None:
    assert requests(pods("w", 4), levels=REQUIRED) == [REQUIRED]
    assert requests(pods("w", 4), pods("none", 0), levels=REQUIRED) == [REQUIRED, {}]
    for levels in (REQUIRED, PREFERRED):
        assert requests(pods("m", 1), pods("w", 4), levels=levels) == [{**levels, **PAIR}] * 2
    assert requests(pods("m", 1), levels={}) == [{}]


def test_levels_of_its_own_win_and_slices_lie_in_the_level_of_all() -> None:
    assert requests(pods("m", 1, required="zone"), pods("w", 4), levels=REQUIRED) == [{"required": "zone"}, REQUIRED]
    slices = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    assert requests(pods("w", 4, **slices), levels={"required": "block"}) == [{**slices, "required": "block"}]


@pytest.mark.parametrize("counts", [(2, 4), (1, 2, 4)])
def test_more_cannot_be_required_to_be_in_one_domain(counts: tuple[int, ...]) -> None:
    several = [pods(f"t{index}", count) for index, count in enumerate(counts)]
    assert requests(*several, levels=PREFERRED) == [PREFERRED] * len(counts)
    with pytest.raises(JobError, match=r"spec.networkTopology: expected one pod set, or two .* found t0, t1"):
        requests(*several, levels=REQUIRED)
