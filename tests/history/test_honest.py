"""The judge is silent on a thousand honest histories, and speaks where a cluster does one thing wrong."""

import pytest

from tests.support.history.honest import Honest
from tests.support.seeds import drawn


@pytest.mark.explored
@pytest.mark.parametrize("part", range(10))
def test_honest_histories_have_no_findings(part: int) -> None:
    facts = 0
    for seed in drawn(range(part * 100, part * 100 + 100)):
        verdict = Honest(seed, steps=4 + seed % 8).play().told().verdict()
        assert verdict.findings == (), f"seed {seed}"
        facts += verdict.facts
    assert facts > 3_000


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        ("gang-charged-one-less", {"over-quota"}),
        ("sidecar-uncharged", {"over-quota"}),
        ("lending-limit-crossed", {"over-quota"}),
        ("never-released", {"forgotten", "over-quota"}),
        ("kept-by-eviction", {"forgotten", "over-quota"}),
        ("runs-on", {"released-early", "over-quota"}),
        ("evicted-too-soon", {"released-early"}),
        ("shares-once-too-few", {"one-device-two-hands"}),
        ("given-twice", {"one-device-two-hands", "destroyed-while-held"}),
        ("destroyed", {"destroyed-while-held"}),
        ("reset-held", {"reset-while-held"}),
        ("no-workload", {"forgotten"}),
        ("no-reason", {"forgotten"}),
        ("lost-workload", {"forgotten", "out-of-order"}),
        ("turned-around", {"out-of-order"}),
        ("half", {"half-gang"}),
        ("admitted-late", {"ran-without-admission", "released-early", "forgotten"}),
    ],
)
def test_a_cluster_that_does_one_thing_wrong_is_found_and_accused_of_nothing_else(fault: str, rules: set[str]) -> None:
    found = {each.rule for seed in range(12) for each in Honest(seed, fault).play().told().verdict().findings}
    assert found == rules
