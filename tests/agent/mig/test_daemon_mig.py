"""Layouts of MIG instances in a running agent: what the kubelet is told, while GPUs are cut under it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pynvml
import pytest

from agent.hardware.migchange import ModeChange
from agent.mig import change, node, reconciler
from agent.mig.choice import ANSWER, LABEL, MANAGER
from agent.mig.nvmlmig import NvmlMig
from agent.mig.outcomes import MigState
from agent.mps.paths import device_paths
from deviceplugin.view import ResourceView
from simulator.fleet.orders import Reboot
from tests.support.agent.node import EAGER, GPU, Lab, fleet, mps_client

MIG = "nvidia.com/mig-"
H100 = "NVIDIA H100 80GB HBM3"


def layout(*entries: str) -> str:
    return EAGER + "layout:\n" + "".join(f"- {entry}\n" for entry in entries)


def cut(gpu: int, *profiles: str, busy: str = "") -> str:
    more = f", whenBusy: {busy}" if busy else ""
    return f"{{gpus: [{gpu}], mode: mig, profiles: [{', '.join(profiles)}]{more}}}"


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WAIT_POLL_S", 0.05)


def offered(lab: Lab) -> dict[str, int]:
    """Healthy devices by resource."""
    found = {name: len(endpoint.healthy) for name, endpoint in lab.kubelet.endpoints.items()}
    return {name: count for name, count in found.items() if count}


async def offers(lab: Lab, wanted: dict[str, int]) -> None:
    await lab.until(lambda: offered(lab) == wanted, f"{wanted}, found {offered(lab)}")


async def reload(lab: Lab, config: str) -> None:
    await lab.agent.reconfigure(lab.settings(config))


def said(lab: Lab) -> list[str]:
    return [one.sentence for one in lab.agent.mig.reconciler.statuses.values() if one.sentence]


async def test_a_layout_is_cut_before_anything_is_advertised(lab: Lab) -> None:
    lab.power_on(fleet(2, H100))
    await lab.kubelet.start()
    agent = await lab.start(layout(cut(1, "3g.40gb", "1g.10gb")))
    show, cuts = agent.manager.apply, []

    def shown(views: Sequence[ResourceView]) -> None:
        if views:
            cuts.append(len(lab.simulation.hardware.gpus[1].mig.devices()))
        show(views)

    agent.manager.apply = shown  # type: ignore[method-assign,assignment] # what is cut when the kubelet is told of anything
    await lab.listed(f"{MIG}1g.10gb")
    assert set(cuts) == {2}
    await offers(lab, {GPU: 1, f"{MIG}3g.40gb": 1, f"{MIG}1g.10gb": 1})
    assert lab.endpoint().lists == 1, "GPU 1 was never offered whole"
    assert {one.state for one in lab.agent.mig.reconciler.statuses.values()} == {MigState.APPLIED}


async def test_a_changed_layout_keeps_what_pods_hold_and_touches_no_other_stream(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), layout(cut(1, "3g.40gb", "2g.20gb")))
    await offers(lab, {GPU: 1, f"{MIG}3g.40gb": 1, f"{MIG}2g.20gb": 1})
    held = (await lab.kubelet.allocate(f"{MIG}3g.40gb", 1)).devices
    registered = list(lab.kubelet.registrations)
    whole = lab.endpoint()
    await reload(lab, layout(cut(1, "3g.40gb", "1g.10gb", "1g.10gb")))
    await offers(lab, {GPU: 1, f"{MIG}3g.40gb": 1, f"{MIG}1g.10gb": 2})
    assert tuple(lab.endpoint(f"{MIG}3g.40gb").devices) == held
    assert lab.endpoint() is whole
    assert lab.kubelet.registrations[len(registered) :] == [f"{MIG}1g.10gb"]


async def test_what_goes_is_withdrawn_before_it_goes_and_what_stays_is_given_all_the_time(lab: Lab) -> None:
    going, staying = f"{MIG}2g.20gb", f"{MIG}3g.40gb"
    await lab.serve(fleet(1, H100), layout(cut(0, "3g.40gb", "2g.20gb")), resource=going)
    lab.sim(gpu=0, slow={"call": "nvmlComputeInstanceDestroy", "seconds": 0.5})
    (device,) = lab.endpoint(going).devices
    await reload(lab, layout(cut(0, "3g.40gb", "1g.10gb")))
    await lab.until(lambda: lab.endpoint(going).devices.get(device) == "Unhealthy", "withdrawn while it exists")
    assert len(lab.simulation.hardware.gpus[0].mig.devices()) == 2
    assert len(lab.endpoint(staying).healthy) == 1
    await offers(lab, {staying: 1, f"{MIG}1g.10gb": 1})


async def test_what_a_hung_change_may_still_destroy_is_withheld_until_the_change_has_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, staying = f"{MIG}2g.20gb", f"{MIG}3g.40gb"
    monkeypatch.setattr(reconciler, "RETRY_S", 0.5)
    await lab.serve(fleet(1, H100), layout(cut(0, "3g.40gb", "2g.20gb")), resource=going)
    await offers(lab, {staying: 1, going: 1})
    monkeypatch.setattr(change, "CHANGE_DEADLINE_S", 0.2)
    lab.sim(gpu=0, slow={"call": "nvmlComputeInstanceDestroy", "seconds": 1.0})
    (device,) = lab.endpoint(going).devices
    await reload(lab, layout(cut(0, "3g.40gb", "1g.10gb")))
    await lab.until(lambda: [one.state for one in lab.agent.mig.statuses] == [MigState.FAILED], "it is given up")
    assert len(lab.simulation.hardware.gpus[0].mig.devices()) == 2, "the driver has not destroyed it yet"
    assert lab.endpoint(going).devices.get(device) == "Unhealthy"
    assert len(lab.endpoint(staying).healthy) == 1
    with pytest.raises(LookupError):
        await lab.kubelet.allocate(going, 1, pod="late")
    monkeypatch.setattr(change, "CHANGE_DEADLINE_S", 120.0)
    lab.sim(gpu=0, slow={"call": "nvmlComputeInstanceDestroy", "seconds": 0})
    await offers(lab, {staying: 1, f"{MIG}1g.10gb": 1})


async def test_a_refused_change_names_the_pods_and_leaves_all_as_it_is(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), layout(cut(0, "3g.40gb", "2g.20gb")), resource=f"{MIG}2g.20gb")
    await lab.kubelet.allocate(f"{MIG}3g.40gb", 1, pod="train", namespace="ml")
    before = lab.simulation.hardware.gpus[0].mig
    await reload(lab, layout(cut(0, "7g.80gb")))
    await lab.until(lambda: bool(said(lab)))
    assert "in use by ml/train: nothing was changed" in said(lab)[0]
    await lab.until(lambda: any("ml/train" in problem for problem in lab.reporter.problems))
    assert said(lab)[0] in lab.report().problems
    await offers(lab, {f"{MIG}3g.40gb": 1, f"{MIG}2g.20gb": 1})
    assert lab.simulation.hardware.gpus[0].mig == before
    # A refusal is no queue: the pod's end changes nothing until somebody asks again.
    lab.kubelet.delete("train", "ml")
    lab.agent.holders.nudge()
    await lab.until(lambda: not lab.agent.holders.holders)
    await asyncio.sleep(0)
    assert lab.simulation.hardware.gpus[0].mig == before
    await reload(lab, layout(cut(0, "7g.80gb")))
    await offers(lab, {f"{MIG}7g.80gb": 1})
    assert said(lab) == []


async def test_a_layout_that_waits_is_there_when_the_pod_has_ended(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), layout(cut(0, "1g.10gb", "1g.10gb")), resource=f"{MIG}1g.10gb")
    await offers(lab, {f"{MIG}1g.10gb": 2})
    await lab.kubelet.allocate(f"{MIG}1g.10gb", 1, pod="train")
    await reload(lab, layout(cut(0, "7g.80gb", busy="wait")))
    await offers(lab, {})
    assert "in use by default/train: it is done when they end" in said(lab)[0]
    with pytest.raises(LookupError):
        await lab.kubelet.allocate(f"{MIG}1g.10gb", 1, pod="late")
    lab.kubelet.delete("train")
    lab.agent.holders.nudge()
    await offers(lab, {f"{MIG}7g.80gb": 1})


async def test_after_a_reboot_the_layout_is_there_before_the_kubelet_hears_of_any_device(lab: Lab) -> None:
    config = layout(cut(0, "2g.20gb", "1g.10gb"), cut(1, "7g.80gb"))
    await lab.serve(fleet(2, H100), config, resource=f"{MIG}7g.80gb")
    await offers(lab, {f"{MIG}2g.20gb": 1, f"{MIG}1g.10gb": 1, f"{MIG}7g.80gb": 1})
    before = {name: set(endpoint.devices) for name, endpoint in lab.kubelet.endpoints.items()}
    await lab.stop()
    lab.simulation.order(Reboot())
    lab.kubelet.registrations.clear()
    await lab.kubelet.restart()
    await lab.start(config)
    await offers(lab, {f"{MIG}2g.20gb": 1, f"{MIG}1g.10gb": 1, f"{MIG}7g.80gb": 1})
    assert {name: set(endpoint.devices) for name, endpoint in lab.kubelet.endpoints.items()} == before
    assert sorted(lab.kubelet.registrations) == sorted(before), "nothing else was ever registered"


async def test_an_ampere_gpu_changes_its_mode_though_the_agent_listens_to_it(lab: Lab) -> None:
    await lab.serve(fleet(2))
    await offers(lab, {GPU: 2})
    await reload(lab, layout(cut(1, "3g.20gb")))
    await offers(lab, {GPU: 1, f"{MIG}3g.20gb": 1})
    await reload(lab, layout("{gpus: [1], mode: whole}"))
    await offers(lab, {GPU: 2})
    assert not lab.simulation.hardware.gpus[1].mig.pending


async def test_what_somebody_removes_by_hand_is_made_again(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), layout(cut(0, "1g.10gb")), resource=f"{MIG}1g.10gb")
    await offers(lab, {f"{MIG}1g.10gb": 1})
    lab.sim(gpu=0, reset=True, destroyMig=True)
    await lab.until(lambda: len(lab.simulation.hardware.gpus[0].mig.instances) == 1)
    await offers(lab, {f"{MIG}1g.10gb": 1})


async def test_a_gpu_is_let_go_for_a_reset_unless_pods_are_on_it(lab: Lab) -> None:
    await lab.serve(fleet(2, H100))
    await lab.kubelet.allocate(GPU, 1, pod="train", namespace="ml")
    (held,) = lab.kubelet.held()
    busy = next(index for index in (0, 1) if lab.uuid(index) == held)
    with pytest.raises(ValueError, match="in use by ml/train"):
        await lab.agent.mig.release(busy, 30, forced=False)
    with pytest.raises(ValueError, match="there is no GPU 7"):
        await lab.agent.mig.release(7, 30, forced=False)
    await offers(lab, {GPU: 2})
    said = await lab.agent.mig.release(1 - busy, 0.3, forced=False)
    assert said == f"GPU {1 - busy} is released for 0.3 s for a reset: no new pod gets it"
    assert said in lab.reporter.problems
    await offers(lab, {GPU: 1})
    lab.sim(gpu=1 - busy, reset=True)
    await offers(lab, {GPU: 2})
    assert await lab.agent.mig.release(busy, 0.05, forced=True)


async def test_a_layout_that_fits_no_such_gpu_leaves_the_others_working(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), layout(cut(1, "4g.40gb", "3g.40gb", "1g.10gb")))
    await lab.until(lambda: bool(lab.reporter.problems))
    assert any("4g.40gb, 3g.40gb, 1g.10gb do not fit together" in problem for problem in lab.reporter.problems)
    assert offered(lab).get(GPU, 0) >= 1


async def test_an_mps_daemon_lets_go_of_an_instance_that_is_to_go(lab: Lab) -> None:
    shared = f"{MIG}1g.10gb.shared"
    cut_and_shared = "{gpus: [0], mode: mig, profiles: [%s], replicas: 2, sharing: mps}"
    await lab.serve(fleet(1, H100), layout(cut_and_shared % "1g.10gb"), resource=shared)
    await lab.until(lambda: len(lab.endpoint(shared).healthy) == 2, "a daemon that is ready")
    (one,) = lab.simulation.hardware.gpus[0].mig.instances
    lab.sim(gpu=0, load={"pid": 77, "gi": one.id, "ci": 0, "type": "mps"})
    await reload(lab, layout(cut_and_shared % "7g.80gb"))
    await lab.until(lambda: any("in use by process 77" in line for line in said(lab)))
    await lab.until(lambda: not any(daemon.wanted for daemon in lab.agent.mps.states()), "a daemon that lets go")
    lab.sim(gpu=0, end=77)
    await offers(lab, {f"{MIG}7g.80gb.shared": 2})


async def test_a_gpu_leaves_mps_before_its_mode_is_switched_and_comes_back_after(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = f"{GPU}.shared"
    in_shares, in_instances = layout("{gpus: [0], mode: mps, replicas: 2}"), layout(cut(0, "3g.20gb"))
    seen: list[tuple[bool, bool, int]] = []
    set_mode = NvmlMig.set_mode

    async def watched(nvml: NvmlMig, *, enabled: bool) -> ModeChange:
        folders = list((lab.state_dir / "mps").glob("GPU-*"))
        seen.append((enabled, bool(folders), lab.simulation.hardware.gpus[0].compute_mode))
        return await set_mode(nvml, enabled=enabled)

    monkeypatch.setattr(NvmlMig, "set_mode", watched)
    monkeypatch.setattr(node, "QUIET_WITHIN_S", 0.1)
    await lab.serve(fleet(1), in_shares, resource=shared)
    await lab.until(lambda: len(lab.endpoint(shared).healthy) == 2, "a daemon that is ready")
    paths = device_paths(lab.state_dir / "mps", lab.uuid(0))
    daemon = int(paths.pid_file.read_text())
    # No client is left: a daemon waits for its clients before it ends.
    with mps_client(lab, 0):
        await reload(lab, in_instances)
        await lab.until(
            lambda: said(lab) == ["GPU 0: the MPS daemon of a device that is to be removed has not ended yet"]
        )
    await offers(lab, {f"{MIG}3g.20gb": 1})
    assert not Path(f"/proc/{daemon}").exists()
    assert set(seen) == {(True, False, pynvml.NVML_COMPUTEMODE_DEFAULT)}, "a daemon beside the change"
    seen.clear()
    await reload(lab, in_shares)
    await offers(lab, {shared: 2})
    assert set(seen) == {(False, False, pynvml.NVML_COMPUTEMODE_DEFAULT)}
    assert lab.simulation.hardware.gpus[0].compute_mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert not lab.simulation.hardware.gpus[0].mig.enabled


async def test_the_label_works_without_a_file_and_goes_back(lab: Lab) -> None:
    lab.power_on(fleet(2, H100))
    await lab.kubelet.start()
    agent = await lab.start(EAGER + "flags: {migStrategy: mixed}\n")
    await lab.listed()
    agent.mig.labelled({LABEL: "all-balanced"})
    await offers(lab, {f"{MIG}1g.10gb": 4, f"{MIG}2g.20gb": 2, f"{MIG}3g.40gb": 2})
    await lab.until(lambda: agent.node_state.answers == {ANSWER: "success"})
    agent.mig.labelled({LABEL: "all-disabled"})
    await offers(lab, {GPU: 2})
    agent.mig.labelled({LABEL: "all-1g.10gb", MANAGER: "true"})
    assert agent.node_state.answers == {}
    assert offered(lab) == {GPU: 2}
