"""One device at a time: which faults take it out, and what brings it back."""

import msgspec
import pytest

from agent.health.events import (
    BootChanged,
    EccSample,
    Event,
    NvLinkSample,
    ProbeFailed,
    ProbeOk,
    ProbeReason,
    RecoveryAction,
    RemapSample,
    ResetObserved,
    Tick,
    XidSeen,
)
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings, XidOverride
from agent.health.states import FaultKind, HealthState, Transition
from agent.health.xids import FaultClass
from inventory.devices import Gpu, GpuUuid, MigInstance, MigUuid, NvLink, RemoteType

G0, G1 = GpuUuid("GPU-0"), GpuUuid("GPU-1")
HEALTHY, SUSPECT, UNHEALTHY, PROBATION = (
    HealthState.HEALTHY,
    HealthState.SUSPECT,
    HealthState.UNHEALTHY,
    HealthState.PROBATION,
)


def gpu(
    uuid: GpuUuid = G0, pci: str = "0000:01:00.0", *, mig: int = 0, switched: bool = False, readable: bool = True
) -> Gpu:
    return Gpu(
        uuid=uuid,
        index=0,
        minor=0,
        product="NVIDIA A100-SXM4-40GB",
        pci_bus_id=pci,
        memory_mib=40960,
        mig_capable=True,
        mig_enabled=mig > 0,
        readable=readable,
        nvlinks=tuple(
            NvLink(n, active=True, remote_type=RemoteType.SWITCH if switched else RemoteType.GPU) for n in range(4)
        ),
        mig_instances=tuple(
            MigInstance(
                uuid=MigUuid(f"MIG-{uuid}-{n}"),
                index=n,
                gi_id=n + 1,
                ci_id=0,
                profile="1g.5gb",
                gi_slices=1,
                ci_slices=1,
                memory_mib=4864,
                multiprocessors=14,
            )
            for n in range(mig)
        ),
    )


def mig_uuid(n: int, uuid: GpuUuid = G0) -> MigUuid:
    return MigUuid(f"MIG-{uuid}-{n}")


class Bench:
    """A core with a clock; every step checks the invariants."""

    def __init__(self, *gpus: Gpu, settings: HealthSettings | None = None) -> None:
        self.core = HealthCore(settings)
        self.now_s = 1000.0
        self.core.discovered(gpus or (gpu(),), self.now_s)

    def __call__(self, *events: Event, after_s: float = 0.0) -> list[Transition]:
        self.now_s += after_s
        changes: list[Transition] = []
        for event in events:
            changes += self.core.apply(event, self.now_s)
            self.core.validate()
        return changes

    def state(self, uuid: GpuUuid = G0, mig: MigUuid | None = None) -> HealthState:
        return self.core.state(uuid, mig).state

    def probes(self, n: int, every_s: float, uuid: GpuUuid = G0, mig: MigUuid | None = None) -> list[Transition]:
        return [change for _ in range(n) for change in self(ProbeOk(uuid, mig), after_s=every_s)]


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109, 8, 32, 69, 154])
def test_an_application_xid_never_leaves_healthy(xid: int) -> None:
    bench = Bench()
    assert bench(XidSeen(G0, xid)) == []
    assert bench.state() is HEALTHY
    assert bench.core.faults(G0) == ()


@pytest.mark.parametrize("xid", [48, 74, 79, 95, 119, 120, 62, 110, 140, 64, 9999])
def test_a_fatal_xid_takes_the_gpu_out_and_no_other(xid: int) -> None:
    bench = Bench(gpu(), gpu(G1, "0000:02:00.0"))
    (change,) = bench(XidSeen(G0, xid), after_s=7)
    assert (change.gpu, change.old, change.new, change.reason, change.age_s) == (G0, HEALTHY, UNHEALTHY, f"Xid{xid}", 7)
    assert f"XID {xid}" in change.cause
    assert not bench.core.state(G0).advertised_healthy
    assert bench.state(G1) is HEALTHY


@pytest.mark.parametrize("xid", [63, 94])
def test_a_contained_error_leaves_the_gpu_advertised_until_a_reset(xid: int) -> None:
    bench = Bench()
    bench(XidSeen(G0, xid))
    assert bench.state() is SUSPECT
    assert bench.core.state(G0).advertised_healthy
    bench.probes(10, every_s=10)
    assert bench.state() is SUSPECT, "answers are no proof of health"
    bench(ResetObserved(G0))
    assert bench.state() is HEALTHY


def test_answering_probes_do_not_heal_a_gpu_that_needs_a_reset() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79))
    assert bench.probes(100, every_s=60) == []
    assert bench.state() is UNHEALTHY


def test_a_later_harmless_xid_does_not_erase_an_earlier_fatal_one() -> None:
    bench = Bench()
    bench(XidSeen(G0, 48), XidSeen(G0, 31), XidSeen(G0, 94))
    assert bench.state() is UNHEALTHY
    assert [fault.code for fault in bench.core.state(G0).faults] == [48, 94], "worst first"


def test_probation_takes_ten_seconds_and_three_clean_probes_and_not_less() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79))
    (change,) = bench(ResetObserved(G0), after_s=30)
    assert (change.new, change.reason, change.age_s) == (PROBATION, "ResetObserved", 30)
    assert not bench.core.state(G0).advertised_healthy
    assert bench.core.next_deadline_s() is None, "time alone does not end it"
    assert bench.probes(3, every_s=1) == []
    deadline_s = bench.core.next_deadline_s()
    assert deadline_s == bench.now_s + 7
    assert bench(Tick(), after_s=6.999) == []
    (change,) = bench(Tick(), after_s=0.001)
    assert (change.new, change.reason) == (HEALTHY, "ProbationPassed")


def test_probation_waits_for_the_third_probe_however_late() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.probes(2, every_s=100)
    assert bench(Tick(), after_s=1000) == []
    (change,) = bench(ProbeOk(G0))
    assert change.new is HEALTHY


def test_a_fault_on_probation_takes_it_out_again_and_restarts_the_clock() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.probes(3, every_s=3)
    (change,) = bench(XidSeen(G0, 119))
    assert change.new is UNHEALTHY
    bench(ResetObserved(G0))
    assert bench.probes(3, every_s=3) == []
    (change,) = bench(Tick(), after_s=1)
    assert change.new is HEALTHY


def test_one_failed_probe_on_probation_is_enough() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), ResetObserved(G0), ProbeOk(G0))
    (change,) = bench(ProbeFailed(G0, reason=ProbeReason.TIMEOUT))
    assert (change.new, change.reason) == (UNHEALTHY, "ProbeFailed")
    (change,) = bench(ProbeOk(G0))
    assert change.new is PROBATION
    assert bench.core.state(G0).clean_probes == 0


def test_a_suspect_class_fault_on_probation_restarts_the_clock() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.probes(3, every_s=3)
    bench(XidSeen(G0, 94))
    assert bench(Tick(), after_s=9.9) == []
    bench(ProbeOk(G0), ProbeOk(G0), ProbeOk(G0))
    (change,) = bench(Tick(), after_s=0.1)
    assert change.new is SUSPECT


def test_a_link_that_stays_down_does_not_keep_a_gpu_on_probation_for_ever() -> None:
    bench = Bench()
    bench(NvLinkSample(G0, (1,)), XidSeen(G0, 79), ResetObserved(G0))
    for _ in range(8):
        bench(NvLinkSample(G0, (1,)), ProbeOk(G0), after_s=2)
    assert bench.state() is SUSPECT


def test_one_failed_probe_is_suspect_three_are_unhealthy() -> None:
    bench = Bench()
    failed = ProbeFailed(G0, reason=ProbeReason.TIMEOUT)
    assert [c.new for c in bench(failed)] == [SUSPECT]
    assert [c.new for c in bench(ProbeOk(G0))] == [HEALTHY]
    assert [c.new for c in bench(failed, failed, failed)] == [SUSPECT, UNHEALTHY]
    assert [c.new for c in bench(ProbeOk(G0))] == [PROBATION]


def test_a_lost_gpu_is_out_at_once_and_needs_a_reset() -> None:
    bench = Bench()
    (change,) = bench(ProbeFailed(G0, reason=ProbeReason.LOST))
    assert (change.new, change.reason) == (UNHEALTHY, "GpuLost")
    assert bench.probes(20, every_s=10) == []
    assert [c.new for c in bench(ResetObserved(G0))] == [PROBATION]


def test_a_gpu_that_discovery_cannot_read_is_out_until_it_can() -> None:
    bench = Bench(gpu(readable=False))
    assert bench.state() is UNHEALTHY
    assert [c.new for c in bench.core.discovered([gpu()], bench.now_s)] == [PROBATION]


def test_reading_a_gpu_again_does_not_forgive_what_a_probe_or_an_xid_found() -> None:
    bench = Bench()
    bench(ProbeFailed(G0, reason=ProbeReason.LOST), XidSeen(G0, 79))
    bench.core.discovered([gpu(readable=False)], bench.now_s)
    bench.core.discovered([gpu()], bench.now_s)
    assert {fault.reason for fault in bench.core.faults(G0)} == {"GpuLost", "Xid79"}


def test_the_replace_class_survives_reset_and_reboot_and_ends_with_the_board() -> None:
    bench = Bench()
    bench(XidSeen(G0, 64), ResetObserved(G0), BootChanged())
    bench.probes(10, every_s=10)
    assert bench.state() is UNHEALTHY
    bench.core.discovered([gpu(G1)], bench.now_s)
    assert bench.core.gpus() == (G1,), "another board sits in its place"
    assert bench.state(G1) is HEALTHY


def test_a_removed_gpu_keeps_its_faults_until_it_is_back_which_is_a_reset() -> None:
    bench = Bench(gpu(), gpu(G1, "0000:02:00.0"))
    bench(XidSeen(G0, 48), XidSeen(G1, 64))
    bench.core.discovered([gpu(G1, "0000:02:00.0")], bench.now_s)
    assert {fault.reason for fault in bench.core.faults(G0)} == {"GpuRemoved", "Xid48"}
    bench.core.discovered([], bench.now_s)
    back = bench.core.discovered([gpu(), gpu(G1, "0000:02:00.0")], bench.now_s)
    assert [(c.gpu, c.new, c.reason) for c in back] == [(G0, PROBATION, "GpuBack")]
    assert bench.state(G1) is UNHEALTHY, "a board that is to be replaced is the same one"


def test_the_reboot_class_needs_a_reboot() -> None:
    bench = Bench()
    bench(XidSeen(G0, 151), ResetObserved(G0))
    assert bench.state() is UNHEALTHY
    assert [c.reason for c in bench(BootChanged())] == ["Rebooted"]


def test_the_drivers_recovery_action_counts_for_as_long_as_it_stands() -> None:
    bench = Bench()
    assert [c.new for c in bench(RecoveryAction(G0, 2))] == [UNHEALTHY]
    assert bench(RecoveryAction(G0, 1)) == []
    assert [c.new for c in bench(RecoveryAction(G0, 0))] == [PROBATION]
    bench.probes(10, every_s=2)
    assert [c.new for c in bench(RecoveryAction(G0, 3))] == [SUSPECT]
    assert [c.new for c in bench(RecoveryAction(G0, 0))] == [HEALTHY]


def test_the_recovery_action_going_away_does_not_forgive_an_xid() -> None:
    bench = Bench()
    bench(RecoveryAction(G0, 1), XidSeen(G0, 119), RecoveryAction(G0, 0))
    assert bench.state() is UNHEALTHY


def test_uncorrected_errors_are_suspect_then_confirmed() -> None:
    bench = Bench()
    assert [c.new for c in bench(EccSample(G0, 1), EccSample(G0, 1))] == [SUSPECT, UNHEALTHY]
    assert bench(EccSample(G0, 0)) == []
    assert [c.new for c in bench(ResetObserved(G0))] == [PROBATION]


def test_uncorrected_errors_that_a_contained_xid_explains_stay_suspect() -> None:
    bench = Bench()
    bench(EccSample(G0, 1), XidSeen(G0, 94), EccSample(G0, 1), EccSample(G0, 2))
    assert bench.state() is SUSPECT


def test_an_explanation_that_comes_late_does_not_lower_what_was_confirmed() -> None:
    bench = Bench()
    bench(EccSample(G0, 1), EccSample(G0, 1), XidSeen(G0, 94), EccSample(G0, 1))
    assert bench.state() is UNHEALTHY


def test_a_pending_remap_is_suspect_and_a_failed_one_is_for_good() -> None:
    bench = Bench()
    assert [c.new for c in bench(RemapSample(G0, pending=True))] == [SUSPECT]
    assert [c.new for c in bench(RemapSample(G0))] == [HEALTHY]
    assert [c.reason for c in bench(RemapSample(G0, failure=True))] == ["RowRemapFailure"]
    bench(RemapSample(G0), ResetObserved(G0), BootChanged())
    assert bench.state() is UNHEALTHY


def test_a_link_to_an_nvswitch_takes_the_gpu_out_a_direct_one_does_not() -> None:
    direct, switched = Bench(), Bench(gpu(switched=True))
    assert [c.new for c in direct(NvLinkSample(G0, (2,)))] == [SUSPECT]
    assert [c.new for c in switched(NvLinkSample(G0, (2,)))] == [UNHEALTHY]
    assert [c.new for c in direct(NvLinkSample(G0))] == [HEALTHY]
    assert [c.new for c in switched(NvLinkSample(G0))] == [PROBATION]


def test_a_fault_in_one_instance_hits_that_instance_and_the_gpu_offered_whole() -> None:
    bench = Bench(gpu(mig=3))
    assert [c.mig for c in bench(XidSeen(G0, 48, gi=2, ci=0))] == [None, mig_uuid(1)]
    assert [bench.state(G0, mig_uuid(n)) for n in range(3)] == [HEALTHY, UNHEALTHY, HEALTHY]


@pytest.mark.parametrize(("gi", "ci"), [(None, None), (0xFFFFFFFF, 0xFFFFFFFF), (None, 3)])
def test_a_fault_without_an_instance_hits_every_instance(gi: int | None, ci: int | None) -> None:
    bench = Bench(gpu(mig=3))
    bench(XidSeen(G0, 48, gi=gi, ci=ci))
    assert {bench.state(G0, mig_uuid(n)) for n in range(3)} == {UNHEALTHY}


def test_a_fault_of_the_whole_board_is_not_narrowed_by_the_instance_it_was_seen_in() -> None:
    bench = Bench(gpu(mig=3))
    bench(XidSeen(G0, 79, gi=2, ci=0))
    assert {bench.state(G0, mig_uuid(n)) for n in range(3)} == {UNHEALTHY}


def test_without_mig_the_instance_in_an_event_means_nothing() -> None:
    bench = Bench()
    bench(XidSeen(G0, 48, gi=0, ci=0))
    assert bench.state() is UNHEALTHY
    assert bench.core.faults(G0)[0].gi is None


def test_a_mig_device_is_probed_as_itself() -> None:
    bench = Bench(gpu(mig=2))
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.probes(5, every_s=5)
    assert bench.state() is HEALTHY
    assert bench.state(G0, mig_uuid(0)) is PROBATION, "its parent's answers say nothing about it"
    assert [c.mig for c in bench.probes(3, every_s=1, mig=mig_uuid(0))] == [mig_uuid(0)]
    failed = ProbeFailed(G0, mig_uuid(1))
    bench(failed, failed, failed)
    assert (bench.state(G0, mig_uuid(0)), bench.state(G0, mig_uuid(1))) == (HEALTHY, UNHEALTHY)


def test_an_instance_made_on_probation_is_on_probation() -> None:
    bench = Bench(gpu(mig=1))
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.core.discovered([gpu(mig=2)], bench.now_s)
    assert bench.state(G0, mig_uuid(1)) is PROBATION


def test_a_destroyed_instance_takes_its_failed_probes_along() -> None:
    bench = Bench(gpu(mig=2))
    bench(*[ProbeFailed(G0, mig_uuid(1))] * 3)
    assert bench.state() is UNHEALTHY
    bench.core.discovered([gpu(mig=1)], bench.now_s)
    assert bench.state() is PROBATION


def test_an_untracked_device_is_not_vouched_for() -> None:
    bench = Bench()
    assert not bench.core.state(G1).advertised_healthy
    assert bench(ProbeOk(G1), EccSample(G1, 3)) == []


def test_an_xid_seen_before_discovery_is_kept() -> None:
    core = HealthCore()
    core.apply(XidSeen(G0, 79), 1.0)
    core.discovered([gpu()], 2.0)
    assert core.state(G0).state is UNHEALTHY


def test_overrides_and_switches_change_what_an_xid_means() -> None:
    overridden = Bench(settings=HealthSettings(xids={79: XidOverride(fault_class=FaultClass.APPLICATION)}))
    assert overridden(XidSeen(G0, 79)) == []
    off = Bench(settings=HealthSettings(disabled_xids=None))
    assert off(XidSeen(G0, 79)) == []
    one_on = Bench(settings=HealthSettings(disabled_xids=None, enabled_xids=frozenset({13})))
    assert [c.new for c in one_on(XidSeen(G0, 79), XidSeen(G0, 13))] == [UNHEALTHY]
    nothing = Bench(settings=HealthSettings(enabled=False))
    assert nothing(XidSeen(G0, 79), *[ProbeFailed(G0)] * 5, ProbeFailed(G0, reason=ProbeReason.LOST)) == []


def test_new_settings_judge_open_faults_anew() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), XidSeen(G0, 62))
    bench.core.reconfigure(HealthSettings(xids={79: XidOverride(fault_class=FaultClass.NOTICE)}), bench.now_s)
    assert bench.state() is UNHEALTHY
    changes = bench.core.reconfigure(HealthSettings(disabled_xids=frozenset({79, 62})), bench.now_s)
    assert [c.new for c in changes] == [PROBATION]


def test_a_reboot_between_two_runs_clears_what_a_reboot_clears() -> None:
    bench = Bench(gpu(), gpu(G1, "0000:02:00.0"))
    bench(XidSeen(G0, 79), XidSeen(G1, 64))
    text = msgspec.json.encode(bench.core.snapshot())
    core = HealthCore()
    changes = core.restore(msgspec.json.decode(text, type=type(bench.core.snapshot())), same_boot=False, now_s=2000.0)
    assert [(c.gpu, c.new) for c in changes] == [(G0, PROBATION)]
    assert core.state(G1).state is UNHEALTHY


def test_history_is_bounded_and_tells_the_latest() -> None:
    bench = Bench()
    for _ in range(40):
        bench(ProbeFailed(G0), ProbeOk(G0), after_s=1)
    history = bench.core.history(G0)
    assert len(history) == 32
    assert history[-1].at_s == bench.now_s


def test_a_flood_of_distinct_faults_stays_bounded_and_out() -> None:
    bench = Bench()
    for xid in range(1000, 2000):
        bench(XidSeen(G0, xid))
    assert len(bench.core.faults(G0)) <= 65
    overflow = [fault for fault in bench.core.faults(G0) if fault.kind is FaultKind.OVERFLOW]
    assert overflow[0].count > 900
    bench(ResetObserved(G0))
    assert bench.state() is PROBATION


def test_a_clock_that_goes_back_delays_probation_but_does_not_stop_it() -> None:
    bench = Bench()
    bench(XidSeen(G0, 79), ResetObserved(G0))
    bench.now_s -= 500
    bench.probes(3, every_s=1)
    assert [c.new for c in bench(Tick(), after_s=9)] == [HEALTHY]
