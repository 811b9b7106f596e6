"""A repair waits for all who have the GPU: pods, processes, openers of its device files."""

import pytest

from agent.hardware.monitor import GpuMonitor
from agent.health.repairstate import RepairState
from inventory.devices import GpuUuid
from tests.support.agent.node import GPU, Lab, fleet
from tests.support.agent.repairs import H100, ON, repair, resets, returned, state


async def test_a_held_gpu_is_not_reset_until_its_holder_is_gone(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.shown()
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "train" in (getattr(repair(lab, 0), "note", "")))
    assert "train" in next(text for reason, _, text in lab.reporter.warnings if reason == "GpuResetWaits")
    await lab.look_again()
    assert (resets(lab, 0), state(lab, 0)) == (0, RepairState.DRAINING)
    assert "Nobody asks pods to leave" in getattr(repair(lab, 0), "note", ""), "it may wait for ever"
    lab.kubelet.delete("train")
    await returned(lab, 0)
    assert resets(lab, 0) == 1


async def test_a_process_on_the_gpu_is_waited_for(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, load={"pid": 4242})
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "process 4242" in (getattr(repair(lab, 0), "note", "")))
    assert resets(lab, 0) == 0
    lab.sim(gpu=0, end=4242)
    await returned(lab, 0)


async def test_an_opener_is_waited_for_and_named_and_stewards_are_told_apart(lab: Lab) -> None:
    procfs = lab.folder / "pids"
    descriptors = procfs / "77" / "fd"
    descriptors.mkdir(parents=True)
    (procfs / "77" / "comm").write_text("nvidia-persiste\n")
    (descriptors / "5").symlink_to("/dev/nvidia0")
    lab.flags["--pid-root"] = str(procfs)
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "nvidia-persiste (77)" in (getattr(repair(lab, 0), "note", "")))
    found = repair(lab, 0)
    assert found is not None
    assert "watches GPUs" in found.note
    assert resets(lab, 0) == 0
    (descriptors / "5").unlink()
    await returned(lab, 0)


@pytest.mark.parametrize(("name", "says"), [("python", "python (79)"), ("nv-hostengine", "watches GPUs")])
async def test_who_opens_the_gpu_between_the_look_and_the_reset_is_waited_for(
    name: str, says: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors = lab.folder / "pids" / "79" / "fd"
    descriptors.mkdir(parents=True)
    (descriptors.parent / "comm").write_text(f"{name}\n")
    lab.flags["--pid-root"] = str(lab.folder / "pids")
    await lab.serve(fleet(2, H100), ON)
    set_aside, late = GpuMonitor.set_aside, [descriptors / "5"]

    async def then_opened(self: GpuMonitor, gpus: frozenset[GpuUuid], within_s: float) -> None:
        await set_aside(self, gpus, within_s)
        if gpus and late:
            late.pop().symlink_to("/dev/nvidia0")

    monkeypatch.setattr(GpuMonitor, "set_aside", then_opened)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: says in (getattr(repair(lab, 0), "note", "")))
    assert late == [], "nobody had it at the first look"
    assert (resets(lab, 0), state(lab, 0), lab.down()) == (0, RepairState.DRAINING, {lab.uuid(0)})
    (descriptors / "5").unlink()
    await returned(lab, 0)


async def test_the_configuration_names_the_stewards_and_a_change_of_them_is_taken_at_once(lab: Lab) -> None:
    descriptors = lab.folder / "pids" / "78" / "fd"
    descriptors.mkdir(parents=True)
    (descriptors.parent / "comm").write_text("site-watcher\n")
    (descriptors / "5").symlink_to("/dev/nvidia0")
    lab.flags["--pid-root"] = str(lab.folder / "pids")
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, xid=119)

    def note() -> str:
        return getattr(repair(lab, 0), "note", "")

    await lab.until(lambda: "site-watcher (78)" in note() and "watches GPUs" not in note())
    named = ON.replace("when-free", "when-free, stewards: [site-watcher]")
    await lab.agent.reconfigure(lab.settings(named))
    await lab.until(lambda: "watches GPUs and is not ended" in note(), "it is a steward now")
    assert resets(lab, 0) == 0


async def test_what_must_not_be_looked_at_is_not_taken_for_nobody(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.repair import attempt_shell
    from agent.repair.openers import Openers

    monkeypatch.setattr(attempt_shell, "openers", lambda *_: Openers(blind=True))
    lab.flags["--pid-root"] = str(lab.folder)
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "SYS_PTRACE" in (getattr(repair(lab, 0), "note", "")))
    assert resets(lab, 0) == 0
