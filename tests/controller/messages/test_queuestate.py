"""A queue's state in one word."""

import pytest

from controller.messages.queuestate import is_nodeless, local_queue_state, queue_state


@pytest.mark.parametrize(
    ("policy", "active", "nodeless", "state"),
    [
        ("None", True, False, "open"),
        ("None", True, True, "no nodes"),
        ("None", False, True, "inactive"),
        ("Hold", False, True, "stopped"),
        ("HoldAndDrain", True, False, "draining"),
    ],
)
def test_what_keeps_a_queue_from_admitting_comes_first(policy: str, active: bool, nodeless: bool, state: str) -> None:
    assert queue_state(policy, active=active, nodeless=nodeless) == state


@pytest.mark.parametrize(
    ("policy", "leads_to", "state"),
    [
        ("None", "open", "open"),
        ("None", "no nodes", "no nodes"),
        ("None", "draining", "draining"),
        ("None", None, "inactive"),
        ("Hold", "open", "stopped"),
        ("HoldAndDrain", "no nodes", "draining"),
    ],
)
def test_a_local_queue_is_what_it_leads_to_unless_it_is_stopped(policy: str, leads_to: str | None, state: str) -> None:
    assert local_queue_state(policy, leads_to) == state


def test_a_queue_has_no_nodes_where_none_of_its_flavors_has() -> None:
    assert is_nodeless(["a", "b"], {"a", "b"})
    assert not is_nodeless(["a", "b"], {"a"})
    assert not is_nodeless([], {"a"})
