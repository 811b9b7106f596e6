"""The MIG instances of a GPU that is reset, as the kubelet comes to see them."""

from collections.abc import Sequence

import pytest

from agent.health.repairstate import RepairState
from deviceplugin.view import ResourceView
from tests.support.agent.node import Lab, fleet
from tests.support.agent.repairs import H100, MIG, ON, count, resets, state

FOUR = ON + "layout:\n- {gpus: [0], mode: mig, profiles: [3g.40gb, 2g.20gb, 1g.10gb, 1g.10gb], whenBusy: wait}\n"


def watch_lists(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> set[frozenset[str]]:
    """The ids of all devices that the kubelet is shown from now on, at each moment."""
    seen: set[frozenset[str]] = set()
    manager = lab.agent.manager
    apply = manager.apply

    def applied(views: Sequence[ResourceView]) -> None:
        seen.add(frozenset(device.id for view in views for device in view.resource.devices))
        apply(views)

    monkeypatch.setattr(manager, "apply", applied)
    return seen


async def test_the_instances_stay_in_the_list_while_their_gpu_is_reset(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.serve(fleet(2, H100), FOUR, resource=MIG)
    profiles = [f"nvidia.com/mig-{profile}" for profile in ("3g.40gb", "2g.20gb", "1g.10gb")]
    registrations = list(lab.kubelet.registrations)
    before = {frozenset(device.id for one in lab.agent.node_state.layout.resources for device in one.devices)}
    seen = watch_lists(lab, monkeypatch)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: [len(lab.down(profile)) for profile in profiles] == [1, 1, 2])
    await lab.until(lambda: count(lab, "return", "returned") > 0)
    await lab.until(lambda: not any(map(lab.down, profiles)))
    assert resets(lab, 0) == 1
    assert seen == before, "no device has left"
    assert lab.kubelet.registrations == registrations, "no plugin has"


async def test_the_instances_stay_in_the_list_where_resets_do_not_help(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FOUR.replace("when-free", "when-free, attempts: 1")
    await lab.serve(fleet(2, H100), config, resource=MIG)
    before = {frozenset(device.id for one in lab.agent.node_state.layout.resources for device in one.devices)}
    seen = watch_lists(lab, monkeypatch)
    lab.sim(gpu=0, returns=119)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    await lab.look_again()
    assert seen == before
    assert len(lab.down(MIG)) == 1
