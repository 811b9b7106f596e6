"""The agent alone repairs a GPU, from its fault to its return, as the kubelet and a person come to see it."""

import logging

import msgspec
import pynvml
import pytest

from agent.health.nextsteps import next_step
from agent.health.repairstate import RepairState
from agent.health.states import HealthState
from agent.persistence.statefiles import read_boot_id
from agent.process.log import Limiter
from agent.repair import tool_shell
from agent.repair.journal_shell import FILE, VERSION
from inventory.devices import MigInstance
from simulator.nvml import links
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.agent.repairs import CUT, H100, MIG, ON, count, repair, resets, returned, state
from tests.support.hang import HANG_S


@pytest.mark.parametrize("xid", [119, 95])
async def test_a_gpu_whose_driver_asks_for_a_reset_is_reset_and_comes_back(xid: int, lab: Lab) -> None:
    endpoint = await lab.serve(fleet(4, H100), ON)
    lab.sim(gpu=3, xid=xid)
    await lab.until(lambda: bool(lab.down()))
    await returned(lab, 3)
    assert [resets(lab, index) for index in range(4)] == [0, 0, 0, 1]
    assert len(endpoint.healthy) == 4
    assert lab.state(3) is HealthState.HEALTHY
    assert lab.report().repairs == ()
    steps = [(change.old.value, change.new.value) for change in lab.reporter.transitions]
    assert steps == [("Healthy", "Unhealthy"), ("Unhealthy", "Probation"), ("Probation", "Healthy")]
    assert {change.gpu for change in lab.reporter.transitions} == {lab.uuid(3)}


async def test_the_kubelet_sees_that_gpu_alone_leave_and_return(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(3, H100), ON)
    seen: set[frozenset[str]] = set()

    def looked() -> bool:
        seen.add(frozenset(lab.down()))
        assert endpoint.devices.keys() == {lab.uuid(index) for index in range(3)}, "it stays in the list"
        return count(lab, "return", "returned") > 0 and not lab.down()

    lab.sim(gpu=1, xid=119)
    await lab.until(looked)
    assert seen == {frozenset(), frozenset({lab.uuid(1)})}


async def test_a_lost_gpu_is_never_reset_and_a_reboot_is_wanted(lab: Lab) -> None:
    await lab.serve(fleet(4, H100), ON)
    lab.sim(gpu=2, xid=79)
    await lab.until(lambda: state(lab, 2) is RepairState.REBOOT_WANTED)
    lab.sim(gpu=0, xid=31)
    await lab.look_again()
    assert [resets(lab, index) for index in range(4)] == [0, 0, 0, 0]
    assert lab.down() == {lab.uuid(2)}
    assert count(lab, "reboot", "wanted") == 1
    assert b'tessera_gpu_repairs_total{result="wanted",step="reboot"} 1.0' in lab.agent.metrics.exposition()
    (warning,) = [text for reason, _, text in lab.reporter.warnings if reason == "GpuRebootWanted"]
    assert "GPU 2" in warning
    assert "reboot it" in warning
    await lab.restart(ON)
    await lab.until(lambda: state(lab, 2) is RepairState.REBOOT_WANTED)
    assert b"tessera_gpu_reboot_wanted 1.0" in lab.agent.metrics.exposition(), "a restart does not forget it"
    lab.sim(gpu=2, reset=True)
    await lab.until(lambda: not lab.down() and lab.report().repairs == ())
    assert b"tessera_gpu_reboot_wanted 0.0" in lab.agent.metrics.exposition()


async def test_a_loss_after_another_fault_is_what_the_reboot_is_for(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.shown()
    lab.sim(gpu=0, xid=95)
    await lab.until(lambda: state(lab, 0) is RepairState.DRAINING)
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    found = repair(lab, 0)
    assert found is not None
    assert found.reason == "Xid79"
    assert "XID 79" in found.note
    assert "XID 95" not in f"{found.note} {found.cause}"


async def test_a_board_that_is_taken_out_and_put_back_wants_no_reboot(lab: Lab) -> None:
    await lab.serve(fleet(4, H100), ON)
    for turn in range(20):
        lab.sim(gpu=3, remove=True)
        if turn % 2:
            await lab.until(lambda: lab.uuid(3) not in lab.endpoint().healthy)
        else:
            await lab.look_again()
        lab.sim(gpu=3, add=True)
        if turn % 3:
            await lab.until(lambda: lab.uuid(3) in lab.endpoint().healthy)
    await lab.until(lambda: len(lab.endpoint().healthy) == 4)
    assert count(lab, "reboot", "wanted") == 0
    assert [text for reason, _, text in lab.reporter.warnings if reason == "GpuRebootWanted"] == []
    lab.sim(gpu=2, xid=79)
    await lab.until(lambda: state(lab, 2) is RepairState.REBOOT_WANTED, "one that is there, and is lost")


async def test_a_lost_gpu_that_is_reset_while_no_agent_runs_comes_back(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON)
    # Its counter of energy does not show the reset: a young board has used as much again by the next look.
    lab.sim(gpu=1, fail={"call": "nvmlDeviceGetTotalEnergyConsumption", "code": pynvml.NVML_ERROR_NOT_SUPPORTED})
    lab.sim(gpu=1, xid=79)
    journal = lab.state_dir / FILE
    await lab.until(lambda: journal.exists() and b"RebootWanted" in journal.read_bytes(), "it is in the journal")
    await lab.stop()
    lab.sim(gpu=1, reset=True)
    await lab.start(ON)
    await lab.restored(1)
    assert lab.report().repairs == ()
    assert count(lab, "reboot", "over") == 1


async def test_without_the_section_nothing_is_reset(lab: Lab) -> None:
    await lab.serve(fleet(2, H100))
    lab.sim(gpu=0, xid=119)
    lab.sim(gpu=1, xid=79)
    await lab.until(lambda: len(lab.down()) == 2)
    await lab.look_again()
    assert (resets(lab, 0), lab.report().repairs) == (0, ())
    assert lab.agent.node_state.withheld == {}
    assert lab.reporter.warnings == []


async def test_a_gpu_that_no_reset_helps_says_why_nothing_is_done(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=1, xid=64)

    def why() -> list[str]:
        return [unit.unrepaired for unit in lab.report().health]

    await lab.until(lambda: why() == ["", "it is not repaired: its board is to be replaced, which no reset does"])
    assert lab.report().repairs == ()
    await lab.agent.reconfigure(lab.settings(EAGER))
    assert why() == ["", ""], "nobody is to repair anything"


async def test_a_reset_that_fails_twice_wants_a_reboot(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=0, fail={"call": "reset", "code": 19})
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    assert count(lab, "reset", "failed") == 2
    found = repair(lab, 0)
    assert found is not None
    assert "error 19" in found.note
    assert lab.down() == {lab.uuid(0)}
    await lab.until(lambda: lab.simulation.hardware.gpus[0].persistence, "it is as it was")


async def test_a_reset_that_hangs_is_ended_and_counts_as_an_attempt(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_shell, "RESET_WITHIN_S", 0.5)
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=0, slow={"call": "reset", "seconds": HANG_S})
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: count(lab, "reset", "hung") == 1)
    lab.sim(gpu=0, slow={"call": "reset", "seconds": 0})
    await returned(lab, 0)


async def test_a_fault_that_returns_after_each_reset_wants_a_reboot(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=0, returns=119)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    assert resets(lab, 0) == 2
    assert count(lab, "verify", "failed") == 2


async def test_the_same_fault_too_often_retires_the_gpu_until_it_is_given_back(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON.replace("when-free", "when-free, retireAfter: {faults: 2, within: 1h}"))
    lab.sim(gpu=0, xid=119)
    await returned(lab, 0)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.RETIRED)
    lab.sim(gpu=0, reset=True)
    await lab.restored(0)
    told = next(unit for unit in lab.report().health if unit.uuid == lab.uuid(0))
    assert (told.state, told.repair) == ("Healthy", "Retired"), "whoever reads its health sees both"
    assert lab.down() == {lab.uuid(0)}, "well, and still out"
    assert b"tessera_gpu_retired 1.0" in lab.agent.metrics.exposition()
    for config in (EAGER, ON):
        await lab.restart(config)
        await lab.listed()
        await lab.until(lambda: lab.down() == {lab.uuid(0)}, "the next agent knows it, also with never")
        assert lab.state(0) is HealthState.HEALTHY
        assert b"tessera_gpu_retired 1.0" in lab.agent.metrics.exposition()
    with pytest.raises(ValueError, match="GPU 1 is not retired"):
        lab.agent.repair.give_back(1)
    lab.agent.repair.give_back(0)
    await lab.until(lambda: not lab.down())
    assert b"tessera_gpu_retired 0.0" in lab.agent.metrics.exposition()


async def test_an_a100_behind_a_switch_is_not_reset_alone(lab: Lab) -> None:
    await lab.serve(fleet(2, "NVIDIA A100-SXM4-40GB"), ON)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    found = repair(lab, 0)
    assert found is not None
    assert "NVSwitch" in found.note
    assert resets(lab, 0) == 0


async def test_linked_boards_before_ampere_are_reset_together_once_all_are_free(lab: Lab) -> None:
    await lab.serve(fleet(2, "Quadro RTX 8000"), ON)
    lab.sim(gpu=0, xid=119)
    await returned(lab, 0)
    assert [resets(lab, index) for index in range(2)] == [1, 1]


async def test_a_linked_board_that_is_in_use_stays_in_service_while_the_other_waits(lab: Lab) -> None:
    endpoint = await lab.serve(fleet(2, "Quadro RTX 8000"), ON)
    lab.sim(gpu=1, load={"pid": 4242})
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "process 4242" in (getattr(repair(lab, 0), "note", "")))
    lists = endpoint.lists
    await lab.look_again()
    assert (lab.down(), endpoint.lists) == ({lab.uuid(0)}, lists)
    assert [resets(lab, index) for index in range(2)] == [0, 0]
    lab.sim(gpu=1, end=4242)
    await returned(lab, 0)


async def test_the_layout_is_cut_anew_at_the_same_places(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), CUT, resource=MIG)

    def instances() -> tuple[MigInstance, ...]:
        return lab.report().node.gpus[0].mig_instances

    before = {(one.uuid, one.start) for one in instances()}
    assert len(before) == 2
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: len(lab.down(MIG)) == 2)
    await lab.until(lambda: count(lab, "return", "returned") > 0 and not lab.down(MIG) and len(instances()) == 2)
    assert resets(lab, 0) == 1
    assert {(one.uuid, one.start) for one in instances()} == before


async def test_instances_that_no_layout_names_are_made_again(lab: Lab) -> None:
    cut = "  migEnabled: [0]\n  mig: {0: [3g.40gb, 2g.20gb]}\n"
    await lab.serve(fleet(2, H100, cut), ON + "flags: {migStrategy: mixed}\n", resource=MIG)
    before = {(one.profile, one.start) for one in lab.report().node.gpus[0].mig_instances}
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: count(lab, "return", "returned") > 0 and not lab.down(MIG))
    assert {(one.profile, one.start) for one in lab.report().node.gpus[0].mig_instances} == before


@pytest.mark.parametrize(("code", "ends"), [(0, "returned"), (3, "wanted")])
async def test_the_administrators_program_has_a_say(code: int, ends: str, lab: Lab) -> None:
    program = lab.folder / "verify"
    seen = lab.folder / "seen"
    program.write_text(f"#!/bin/sh\necho $CUDA_VISIBLE_DEVICES >> {seen}\necho three rows are bad\nexit {code}\n")
    program.chmod(0o755)
    config = ON.replace("when-free", f"when-free, verify: {{command: [{program}]}}, attempts: 1")
    await lab.serve(fleet(2, H100), config)
    lab.sim(gpu=1, xid=119)
    step = "return" if ends == "returned" else "reboot"
    await lab.until(lambda: count(lab, step, ends) == 1)
    assert seen.read_text() == f"{lab.uuid(1)}\n"
    if code:
        found = repair(lab, 1)
        assert found is not None
        assert "three rows are bad" in found.note


async def test_the_whole_probation_follows_the_verification_of_a_second_attempt(lab: Lab) -> None:
    """Neither the first reset nor a program that takes longer than the probation eats it."""
    program, seen = lab.folder / "verify", lab.folder / "seen"
    program.write_text(f"#!/bin/sh\nsleep 0.8\necho x >> {seen}\ntest $(wc -l < {seen}) -gt 1\n")
    program.chmod(0o755)
    slow = ON.replace("probationSeconds: 0.1", "probationSeconds: 0.6")
    await lab.serve(fleet(1, H100), slow.replace("when-free", f"when-free, verify: {{command: [{program}]}}"))
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.PROBATION)
    found = repair(lab, 0)
    assert found is not None
    assert (found.attempt, resets(lab, 0)) == (2, 2)
    await returned(lab, 0)
    assert lab.reporter.transitions[-1].at_s - found.since_s >= 0.6
    assert [change.new for change in lab.reporter.transitions] == ["Unhealthy", "Probation", "Healthy"]


async def test_an_agent_killed_after_a_verification_has_the_probation_begin_then(lab: Lab) -> None:
    """The journal was written, and the checkpoint was not."""
    slow = ON.replace("probationSeconds: 0.1", "probationSeconds: 1")
    await lab.serve(fleet(1, H100), slow)
    await lab.stop()
    now_s = lab.agent._clock()
    entry = {"gpu": lab.uuid(0), "state": "Probation", "attempt": 1, "since_s": now_s, "fault_s": 1.0, "reason": "Xid1"}
    snapshot = {"repairs": [entry], "resets": {lab.uuid(0): now_s}}
    boot = read_boot_id(lab.settings(ON).proc_root)
    entries = {"version": VERSION, "boot_id": boot, "snapshot": snapshot}
    (lab.state_dir / FILE).write_bytes(msgspec.json.encode(entries))
    await lab.start(slow)
    await lab.listed()
    await returned(lab, 0)
    assert [(change.old, change.new) for change in lab.reporter.transitions] == [
        ("Healthy", "Probation"),
        ("Probation", "Healthy"),
    ]
    assert lab.reporter.transitions[-1].at_s - now_s >= 1


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["no agent runs", "an agent runs"])
async def test_a_gpu_that_failed_its_verification_is_verified_after_a_reboot(while_it_runs: bool, lab: Lab) -> None:
    program, seen = lab.folder / "verify", lab.folder / "seen"
    program.write_text(f"#!/bin/sh\necho x >> {seen}\nexit 3\n")
    program.chmod(0o755)
    config = ON.replace("when-free", f"when-free, verify: {{command: [{program}]}}, attempts: 1")
    await lab.serve(fleet(1, H100), config)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)

    async def reboot(runs: int) -> None:
        if not while_it_runs:
            await lab.stop()
            lab.nvml_ends()
        lab.sim(reboot=True)
        if not while_it_runs:
            await lab.start(config)
            await lab.listed()
        await lab.until(lambda: len(seen.read_text().split()) == runs, "it is verified")

    await reboot(2)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED, "that failed again")
    assert lab.down() == {lab.uuid(0)}
    program.write_text(f"#!/bin/sh\necho x >> {seen}\n")
    await reboot(3)
    await returned(lab, 0)


@pytest.mark.parametrize("rebooted", [True, False], ids=["after a reboot", "after a restart and a reset by a person"])
async def test_what_a_gpu_was_before_its_first_reset_is_compared_at_each_verification(
    rebooted: bool, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board that comes back with half of its PCIe lanes does not return because it had them no more."""
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, slow={"call": "reset", "seconds": 1})
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.RESETTING)
    monkeypatch.setattr(links, "PCIE_WIDTH", 8)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED, "the second attempt finds it wrong, too")
    assert (resets(lab, 0), count(lab, "verify", "failed")) == (2, 2)
    journal = lab.state_dir / FILE
    await lab.until(lambda: b"RebootWanted" in journal.read_bytes(), "it is in the journal")

    async def again() -> None:
        await lab.stop()
        lab.nvml_ends()
        if rebooted:
            lab.sim(reboot=True)
        await lab.start(ON)
        await lab.listed()
        if not rebooted:
            lab.sim(gpu=0, reset=True)  # by a person, while the agent runs: it is sure to be seen

    await again()
    await lab.until(lambda: count(lab, "verify", "failed") == 1, "it is verified")
    found = repair(lab, 0)
    assert found is not None
    assert found.state is RepairState.REBOOT_WANTED
    await lab.until(lambda: lab.down() == {lab.uuid(0)}, "it stays out")
    assert "PCIe x8, x16 before the reset" in found.note
    monkeypatch.undo()
    await again()
    await returned(lab, 0)
    await lab.until(lambda: b'"recorded":{}' in journal.read_bytes(), "nothing is kept of a repair that is over")


async def test_a_program_that_cannot_be_run_costs_no_second_reset_and_the_gpu_waits_for_it(lab: Lab) -> None:
    program, seen = lab.folder / "verify", lab.folder / "seen"
    program.write_text("#!/opt/nonexistent\n")
    program.chmod(0o755)
    config = ON.replace("when-free", f"when-free, verify: {{command: [{program}]}}, attempts: 2")
    await lab.serve(fleet(1, H100), config)
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "could not be run" in getattr(repair(lab, 0), "note", ""))
    turns = lab.agent.repair.turns
    await lab.until(lambda: lab.agent.repair.turns > turns + 2, "it is looked at again")
    found = repair(lab, 0)
    assert found is not None
    assert (found.state, found.attempt, resets(lab, 0)) == (RepairState.VERIFYING, 1, 1)
    assert lab.down(), "nobody gets what was not verified"
    assert [text for reason, _, text in lab.reporter.warnings if reason == "GpuResetWaits"] != []
    program.write_text(f"#!/bin/sh\necho x >> {seen}\nexit 127\n")
    await lab.until(lambda: seen.exists() and len(seen.read_text().split()) > 1, "it is run again")
    assert state(lab, 0) is RepairState.VERIFYING
    program.write_text("#!/bin/sh\nexit 0\n")
    await returned(lab, 0)
    assert resets(lab, 0) == 1


async def test_each_step_of_a_repair_is_in_the_log_also_the_same_one_again(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, xid=119)
    await returned(lab, 0)
    steps = [record for record in caplog.records if record.getMessage() == "repair"]
    assert {vars(record)["step"] for record in steps} == {"drain", "reset", "verify", "return"}
    limiter = Limiter(lambda: 0.0)
    assert all(limiter.filter(record) for record in (*steps, *steps)), "none is taken for a repetition"


async def test_the_return_of_a_gpu_is_no_warning(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, xid=119)
    await returned(lab, 0)
    assert [reason for reason, _, _ in lab.reporter.notes] == ["GpuReturned"]
    assert "GpuReturned" not in {reason for reason, _, _ in lab.reporter.warnings}


async def test_a_persons_reset_is_taken_as_what_it_is(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.shown()
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.DRAINING)
    lab.sim(gpu=0, reset=True)
    await lab.until(lambda: count(lab, "drain", "cleared") == 1)
    await lab.restored(0)
    assert resets(lab, 0) == 1, "the person's alone"


async def test_two_gpus_are_reset_one_after_the_other_and_a_third_waits(lab: Lab) -> None:
    await lab.serve(fleet(4, H100), ON)
    for index in range(3):
        lab.sim(gpu=index, xid=119)
    await lab.until(lambda: count(lab, "return", "returned") == 2)
    await lab.until(lambda: any("10 minutes" in one.note for one in lab.report().repairs))
    await lab.until(lambda: len(lab.down()) == 1, "the kubelet has not heard of the second one's return")
    assert sum(resets(lab, index) for index in range(3)) == 2
    assert len(lab.down()) == 1
    (waits,) = lab.report().repairs
    assert waits.held_back
    assert "breaker" in next_step(waits.state, held_back=waits.held_back)


async def test_a_held_gpu_that_the_breaker_holds_back_names_its_holder_as_well(lab: Lab) -> None:
    await lab.serve(fleet(3, H100), ON)
    for index in range(2):
        lab.sim(gpu=index, xid=119)
    await lab.until(lambda: count(lab, "return", "returned") == 2 and not lab.down())
    await lab.kubelet.allocate(GPU, 3, pod="train")
    await lab.shown()
    lab.sim(gpu=2, xid=119)
    await lab.until(lambda: "train, and 2 GPUs of this node were reset" in getattr(repair(lab, 2), "note", ""))


async def test_a_pod_on_another_board_of_the_unit_is_told_with_that_board(lab: Lab) -> None:
    await lab.serve(fleet(2, "Quadro RTX 8000"), ON)
    await lab.kubelet.allocate(GPU, 1, pod="p5")
    await lab.shown()
    holder = next(index for index in range(2) if lab.uuid(index) in lab.kubelet.held())
    lab.sim(gpu=1 - holder, xid=119)
    told = f"p5 (on GPU {holder}, which is reset together with it)"
    await lab.until(lambda: told in getattr(repair(lab, 1 - holder), "note", ""))


async def test_never_again_ends_repairs_and_gives_back_what_only_they_kept_out(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.shown()
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: state(lab, 0) is RepairState.DRAINING)
    await lab.agent.reconfigure(lab.settings(EAGER))
    assert (lab.report().repairs, lab.agent.node_state.withheld) == ((), {})
    lab.kubelet.delete("train")
    await lab.look_again()
    assert resets(lab, 0) == 0


async def test_an_agent_that_may_not_reset_keeps_out_what_is_retired_and_nothing_else(lab: Lab) -> None:
    await lab.serve(fleet(2, H100), ON)
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    await lab.agent.repair.obey({lab.uuid(1): "retire"})
    await lab.agent.reconfigure(lab.settings(EAGER))
    assert set(lab.agent.node_state.withheld) == {lab.uuid(1)}
    await lab.agent.reconfigure(lab.settings(ON))
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    await lab.restart(EAGER)
    assert set(lab.agent.node_state.withheld) == {lab.uuid(1)}
    assert count(lab, "reboot", "ended") == 1, "the end of the other is told"
    await lab.listed()
    lab.agent.repair.give_back(1)
    assert lab.agent.node_state.withheld == {}


async def test_an_earlier_agents_repair_goes_on_at_the_next_start(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    await lab.kubelet.allocate(GPU, 1, pod="train")
    await lab.shown()
    lab.sim(gpu=0, xid=119)
    await lab.until((lab.state_dir / "repairs.json").exists)
    await lab.stop()
    lab.nvml_ends()
    await lab.start(ON)
    assert state(lab, 0) is RepairState.DRAINING, "before anything was probed"
    await lab.listed()
    lab.kubelet.delete("train")
    await returned(lab, 0)
    assert resets(lab, 0) == 1


async def test_a_shared_gpus_daemon_ends_before_its_reset_and_comes_back(lab: Lab) -> None:
    shared = "nvidia.com/gpu.shared"
    await lab.serve(fleet(1, H100), ON + "layout:\n- {gpus: [0], mode: mps, replicas: 2}\n", resource=shared)
    await lab.until(lambda: not lab.down(shared))
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: count(lab, "return", "returned") > 0 and not lab.down(shared))
    assert resets(lab, 0) == 1
    assert lab.simulation.hardware.gpus[0].compute_mode == 3


async def test_the_report_travels_with_its_repairs(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON)
    lab.sim(gpu=0, xid=79)
    await lab.until(lambda: state(lab, 0) is RepairState.REBOOT_WANTED)
    report = lab.report()
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "Draining", "attempt": -1},
        {"state": "Resetting", "attempt": 0},
        {"state": "Probation", "attempt": 1},
    ],
)
async def test_a_journal_that_contradicts_itself_is_ignored_and_the_agent_serves(
    wrong: dict[str, object], lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    await lab.serve(fleet(1, H100), ON)
    entry = {"gpu": lab.uuid(0), "since_s": 1.0, "fault_s": 1.0, "reason": "Xid119", **wrong}
    await lab.stop()
    path = lab.state_dir / "repairs.json"
    boot = read_boot_id(lab.settings(ON).proc_root)
    path.write_bytes(msgspec.json.encode({"version": VERSION, "boot_id": boot, "snapshot": {"repairs": [entry]}}))
    await lab.start(ON)
    await lab.listed()
    assert lab.report().repairs == ()
    assert any("journal of repairs ignored" in record.getMessage() for record in caplog.records)
    await lab.until(lambda: lab.down() == set())


async def test_a_program_that_is_not_there_is_a_problem_from_the_start_until_it_is(lab: Lab) -> None:
    program = lab.folder / "verify"
    line = f"remediation.verify.command: found {program}, expected a program that can be run on this node"
    section = f"when-free, verify: {{command: [{program}]}}"
    await lab.serve(fleet(1, H100), ON.replace("when-free", section))
    assert line in lab.report().problems
    assert line in lab.reporter.problems
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    await lab.look_again()
    await lab.until(lambda: line not in lab.report().problems)
    program.unlink()
    await lab.restart(ON.replace("when-free", section.replace("when-free", "never")))
    await lab.listed()
    assert line not in lab.report().problems, "nothing is to be verified"


async def test_nothing_is_reset_that_could_not_be_verified_afterwards(lab: Lab) -> None:
    await lab.serve(fleet(1, H100), ON.replace("when-free", "when-free, verify: {command: [/opt/nonexistent]}"))
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: "found /opt/nonexistent" in getattr(repair(lab, 0), "note", ""))
    found = repair(lab, 0)
    assert found is not None
    assert (found.state, found.attempt, resets(lab, 0)) == (RepairState.DRAINING, 0, 0)
