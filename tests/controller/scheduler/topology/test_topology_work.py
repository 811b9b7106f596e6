"""Claims about work, counted in instructions: a dirty node costs its ancestors, whatever else there is."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.controller.scheduler.test_engine_work import executed
from tests.support.engine.topologylab import FLAVOR, RACK, Lab, ask, even, node, usage

SMALL, LARGE = (even(2, 4, 15, 8), even(4, 10, 30, 8))
"""120 and 1,200 nodes."""

SHAPES: dict[str, dict[str, Any]] = {
    "required": {"required": RACK},
    "preferred": {"preferred": RACK},
    "unconstrained": {"unconstrained": True},
    "sliced": {"required": RACK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
}


def charged(lab: Lab) -> None:
    lab.hold({"b1r1h7": 3})


def shrunk(lab: Lab) -> None:
    lab.topologies.set_node(node("b1/b1r1/b1r1h7", 5))


@pytest.mark.parametrize("change", [charged, shrunk])
@pytest.mark.parametrize("asked", SHAPES.values(), ids=SHAPES)
def test_a_place_after_a_change_of_one_node_is_as_much_work_among_many_nodes_as_among_few(
    asked: dict[str, Any], change: Callable[[Lab], None]
) -> None:
    work = []
    for hosts in (SMALL, LARGE):
        lab, request = Lab(hosts), ask(4, 2, **asked)
        tree = lab.topologies.tree(FLAVOR)
        assert tree is not None
        # Everywhere a little is taken, so that no node is like another one next to it.
        lab.topologies.add(
            FLAVOR, usage({tree.path[leaf][-1]: 1 + at % 3 for at, leaf in enumerate(tree.at_level[-1])})
        )
        assert lab.main(request) is not None

        def again(lab: Lab = lab, request: Any = request) -> None:
            change(lab)
            lab.main(request)

        again()
        change(lab)
        work.append(executed(again))
        lab.topologies.validate_trees()
    # A few steps more of a binary search, and of looking for the tightest among equals.
    assert work[1] < 1.5 * work[0], work
