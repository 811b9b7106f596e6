"""What the view's port takes for a namespace."""

from types import SimpleNamespace
from typing import Any, cast

from controller.process.view import SeenNamespaces, _Leading
from controller.watching.kinds import NAMESPACES
from kube.reading.reflector import ObjectKey
from kube.testing import VirtualClock
from tests.controller.visibility.test_redaction import preempting


def test_a_namespace_is_known_at_once_and_once_known_stays_so() -> None:
    world, clock = preempting(), VirtualClock()
    loaded = SimpleNamespace(is_set=lambda: True)
    core: Any = SimpleNamespace(engine=world.engine, ledger=dict.fromkeys(["led/job"]), loaded=loaded)
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
