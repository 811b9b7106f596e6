"""What the view's port takes for a namespace."""

from types import SimpleNamespace
from typing import Any, cast

from controller.cluster.process.view import _Leading, in_rows
from controller.cluster.watching.kinds import NAMESPACES, SeenNamespaces
from kube.reading.entries import ObjectKey
from kube.testing import VirtualClock
from tests.controller.people.visibility.test_redaction import preempting
from tests.support.controller.gpunodes import observed


def test_a_namespace_is_known_at_once_and_once_known_stays_so() -> None:
    world, clock = preempting(), VirtualClock()
    loaded = SimpleNamespace(is_set=lambda: True)
    held = SimpleNamespace(held=SimpleNamespace(waits=lambda _: None))
    core: Any = SimpleNamespace(engine=world.engine, ledger=dict.fromkeys(["led/job"]), loaded=loaded, decisions=held)
    feeds = {NAMESPACES: [ObjectKey("", "early")]}
    spaces = SeenNamespaces()
    spaces.read(b'{"metadata": {"name": "early"}}')
    leading = _Leading(lambda: cast("Any", SimpleNamespace(core=core)), cast("Any", feeds), clock, spaces, dict)
    answers = leading.answers()
    assert {"early", "led", "zulu-ns"} <= leading.known()
    spaces.read(b'{"metadata": {"name": "late"}}')
    assert leading.answers() is answers, "within the second"
    assert "late" in leading.known()
    feeds[NAMESPACES].clear()
    assert {"early", "late"} <= leading.known(), "one that came and went between two questions may stand in a story"


def test_namespaces_of_rows_come_in_the_order_in_which_people_miss_them() -> None:
    held = [{"namespace": "debug", "pod": "p", "device": "A"}, {"namespace": "zeta", "pod": "p", "device": "A"}]
    node = observed("n", devices=[{"uuid": "A", "index": 0}], holders=held)
    assert in_rows(["zeta/job", "beta/job"], ["alpha/queue", "beta/queue"], [node]) == [
        "beta",
        "zeta",
        "alpha",
        "debug",
    ]
