import json

import pytest

from controller.scheduler.model.gates import DEFAULTS
from tests.conformance import replay

pytestmark = pytest.mark.conformance


def test_our_gate_defaults_are_the_peers() -> None:
    file = replay.roots()[""] / "feature_gate_defaults.json"
    if not file.exists():
        pytest.skip("this corpus holds cases alone")
    assert json.loads(file.read_text(encoding="utf-8")) == DEFAULTS
