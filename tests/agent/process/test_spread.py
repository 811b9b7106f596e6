"""How the agents of a fleet come to the API server one after the other."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.process.spread import SOON, WATCH_S, Spread, phase

NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, st.sampled_from(["Node", "Pods"]), st.floats(0, 600), st.booleans())
def test_a_place_lies_in_the_window_and_is_always_the_same(
    node: str, what: str, window_s: float, restarted: bool
) -> None:
    spread = Spread(node, window_s, restarted)
    assert 0 <= phase(node, what) < 1
    assert 0 <= spread.pause_s(what, SOON) <= window_s * SOON
    assert spread.pause_s(what) == Spread(node, window_s).pause_s(what)
    pace = spread.pace(what)
    assert WATCH_S[0] <= pace.lasts_s <= WATCH_S[1]
    assert (pace.after_cut_s, pace.begin_s) == (spread.pause_s(what), spread.pause_s(what) if restarted else 0.0)


@given(st.sampled_from(["node-{}", "gke-pool-{:05}", "ip-10-0-{}.ec2.internal"]), st.integers(1000, 3000))
def test_any_names_fill_the_window_evenly(form: str, nodes: int) -> None:
    filled = Counter(int(phase(form.format(index), "Node") * 10) for index in range(nodes))
    assert max(filled.values()) < 1.5 * nodes / 10


@given(NAMES)
def test_what_a_node_asks_for_has_places_of_its_own(node: str) -> None:
    assert len({phase(node, what) for what in ("Node", "Pods", "GpuLayouts", "labels", "GpuNode")}) == 5


def test_without_a_window_nothing_waits() -> None:
    pace = Spread("node-1", 0.0, restarted=True).pace("Node")
    assert (pace.after_cut_s, pace.begin_s) == (0.0, 0.0)
