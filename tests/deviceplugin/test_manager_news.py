"""What happens in the kubelet's folder is told, so that looks at it can be rare; they never end."""

import pytest

from deviceplugin import manager as manager_module
from deviceplugin.manager import POLL_S, QUIET_POLL_S, UNHEARD_S, PluginManager
from kube.testing import eventually
from tests.support.deviceplugin.fakes import FakeKubelet
from tests.support.deviceplugin.managing import ManualClock, endpoint_of, listed, running
from tests.support.deviceplugin.views import GPU, gpus, migs, view_of

MIG = "nvidia.com/mig-1g.10gb"


def without_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens is told, or it is never noticed."""
    for name in ("POLL_S", "QUIET_POLL_S"):
        monkeypatch.setattr(manager_module, name, 3600.0)


async def test_a_kubelet_restart_is_noticed_without_waiting_for_a_poll(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_polls(monkeypatch)
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(8))])
        await listed(kubelet, 8)
        for _ in range(3):
            await kubelet.restart()
            await listed(kubelet, 8)


async def test_a_removed_socket_is_made_anew_without_waiting_for_a_poll(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_polls(monkeypatch)
    async with running(kubelet) as manager:
        manager.apply([view_of(gpus(2))])
        await listed(kubelet, 2)
        first = endpoint_of(kubelet)
        (kubelet.folder / first).unlink()
        await kubelet.wait_for(lambda: endpoint_of(kubelet) != first)
        await listed(kubelet, 2)


async def test_where_all_is_well_and_the_folder_is_watched_it_looks_seldom(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock
) -> None:
    clock.now_s = 1000 * QUIET_POLL_S
    manager.apply([view_of(gpus(2)), view_of(migs(1, 2))])
    await manager.mend()
    await listed(kubelet, 2)
    await listed(kubelet, 2, MIG)
    assert (manager._pause_s(watched=True), manager._pause_s(watched=False)) == (QUIET_POLL_S, POLL_S)
    await kubelet.endpoints[GPU].channel.close()
    await eventually(lambda: [status.streams for status in manager.status()] == [0, 1])
    assert manager._pause_s(watched=True) == POLL_S


async def test_a_kubelet_that_stops_listening_is_told_again_after_its_time_however_long_ago_the_last_look_was(
    kubelet: FakeKubelet, manager: PluginManager, clock: ManualClock
) -> None:
    manager.apply([view_of(gpus(2))])
    await manager.mend()
    await listed(kubelet, 2)
    clock.now_s += QUIET_POLL_S
    manager._wake.clear()
    await kubelet.endpoints[GPU].channel.close()
    await eventually(lambda: [status.streams for status in manager.status()] == [0])
    assert manager._wake.is_set(), "the end of a stream is a reason to look"
    for passed_s, registrations in ((0.0, 1), (UNHEARD_S - 0.1, 1), (0.2, 2)):
        clock.now_s += passed_s
        await manager.mend()
        assert kubelet.registrations.count(GPU) == registrations
