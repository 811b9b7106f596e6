"""Whatever is reported in whatever order: nothing raises, faults only go by rule, and what is advertised follows."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.health.checkpoint import HealthSnapshot
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
    Removed,
    ResetObserved,
    Tick,
    Unreadable,
    Verified,
    XidSeen,
)
from agent.health.machine import HealthCore
from agent.health.states import MEASURED, Fault, FaultKey, FaultKind, HealthState
from inventory.devices import Gpu, GpuUuid, MigInstance, MigUuid

GPUS = [GpuUuid("GPU-a"), GpuUuid("GPU-b")]
MIGS = [MigUuid("MIG-0"), MigUuid("MIG-1")]


def node(instances: int = 2) -> list[Gpu]:
    mig = tuple(
        MigInstance(
            uuid=uuid,
            index=n,
            gi_id=n + 1,
            ci_id=0,
            profile="3g.20gb",
            gi_slices=3,
            ci_slices=3,
            memory_mib=1,
            multiprocessors=1,
        )
        for n, uuid in enumerate(MIGS[:instances])
    )
    common = {"index": 0, "minor": 0, "product": "x", "memory_mib": 1}
    return [
        Gpu(uuid=GPUS[0], pci_bus_id="0000:01:00.0", mig_enabled=True, mig_instances=mig, **common),  # type: ignore[arg-type]  # one dict of mixed values
        Gpu(uuid=GPUS[1], pci_bus_id="0000:02:00.0", **common),  # type: ignore[arg-type]  # as above
    ]


gpus = st.sampled_from(GPUS)
ids = st.sampled_from([None, 0, 1, 2, 0xFFFFFFFF, -1])
migs = st.sampled_from([None, *MIGS, MigUuid("MIG-unknown")])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(XidSeen, gpus, st.sampled_from([0, 13, 31, 48, 63, 64, 79, 94, 95, 151, 154, 9999, 2**63]), ids, ids),
    st.builds(ProbeOk, gpus, migs),
    st.builds(ProbeFailed, gpus, migs, st.sampled_from(ProbeReason)),
    st.builds(EccSample, gpus, st.integers(-1, 3)),
    st.builds(RemapSample, gpus, st.booleans(), st.booleans()),
    st.builds(NvLinkSample, gpus, st.sampled_from([(), (1,), (3, 1)])),
    st.builds(RecoveryAction, gpus, st.integers(-1, 9)),
    st.builds(ResetObserved, gpus),
    st.builds(Removed, gpus),
    st.builds(Unreadable, gpus, st.just("the driver hangs")),
    st.just(BootChanged()),
    st.just(Tick()),
)
steps = st.lists(st.tuples(events, st.sampled_from([0.0, 0.5, 4.0, 10.0])), max_size=40)

CLEARS = {
    ProbeOk: {FaultKind.PROBE},
    RemapSample: {FaultKind.REMAP_PENDING},
    NvLinkSample: {FaultKind.NVLINK},
    RecoveryAction: {FaultKind.RECOVERY_ACTION},
}
"""Beside reset and reboot, the only events that may take a fault away, and the only kind each may take."""


def keys(core: HealthCore) -> dict[tuple[GpuUuid, FaultKey], Fault]:
    return {(gpu, fault.key): fault for gpu in GPUS for fault in core.faults(gpu)}


def may_go(event: Event, gpu: GpuUuid, fault: Fault) -> bool:
    if isinstance(event, BootChanged):
        return fault.cleared_by_reboot()
    if isinstance(event, Tick) or event.gpu != gpu:
        return False
    if isinstance(event, ResetObserved):
        return fault.cleared_by_reset()
    return fault.kind in CLEARS.get(type(event), set())


@given(steps)
@settings(max_examples=60, deadline=None)
def test_faults_only_grow_or_are_cleared_by_rule(sequence: list[tuple[Event, float]]) -> None:
    core, now_s = HealthCore(), 0.0
    core.discovered(node(), now_s)
    for event, after_s in sequence:
        now_s += after_s
        before = keys(core)
        core.apply(event, now_s)
        core.validate()
        after = keys(core)
        for (gpu, key), fault in before.items():
            assert (gpu, key) in after or may_go(event, gpu, fault), f"{event} took {fault} away"
            if fault.blocks and (gpu, key) in after and fault.kind not in MEASURED:
                assert after[gpu, key].blocks, f"{event} made light of {fault}"


@given(steps)
@settings(max_examples=60, deadline=None)
def test_what_is_advertised_follows_from_the_transitions(sequence: list[tuple[Event, float]]) -> None:
    core, now_s = HealthCore(), 0.0
    core.discovered(node(), now_s)
    devices = [(GPUS[0], None), (GPUS[0], MIGS[0]), (GPUS[0], MIGS[1]), (GPUS[1], None)]
    seen = dict.fromkeys(devices, HealthState.HEALTHY)
    for event, after_s in sequence:
        now_s += after_s
        for change in core.apply(event, now_s):
            assert change.old is seen[change.gpu, change.mig], "a transition starts where the last one ended"
            assert change.new is not change.old
            assert not (change.old is HealthState.UNHEALTHY and change.new.advertised_healthy), (
                "no way around probation"
            )
            assert change.reason
            assert change.age_s >= 0
            seen[change.gpu, change.mig] = change.new
        for gpu, mig in devices:
            health = core.state(gpu, mig)
            assert health.state is seen[gpu, mig], "a state changed without a transition"
            blocked = any(fault.blocks for fault in health.faults)
            assert not (blocked and health.advertised_healthy)


repaired: st.SearchStrategy[Event] = st.one_of(
    events,
    st.builds(ResetObserved, st.just(GPUS[0])),
    st.builds(Verified, st.just(GPUS[0]), st.just(0.0)),
    st.builds(ProbeOk, st.just(GPUS[0]), st.sampled_from([None, *MIGS])),
)


@given(st.lists(st.tuples(repaired, st.sampled_from([0.0, 0.5, 4.0, 10.0]), st.booleans()), max_size=60))
@settings(max_examples=100, deadline=None)
def test_the_whole_probation_lies_between_the_last_reset_or_verification_and_the_return(
    sequence: list[tuple[Event, float, bool]],
) -> None:
    core, now_s = HealthCore(), 0.0
    core.discovered(node(), now_s)
    last_s = dict.fromkeys(GPUS, -1000.0)
    held: set[GpuUuid] = set()
    for event, after_s, holds in sequence:
        now_s += after_s
        if holds != (GPUS[0] in held):
            held ^= {GPUS[0]}
            core.hold(held)
        told = Verified(event.gpu, now_s) if isinstance(event, Verified) else event
        changes = core.apply(told, now_s)
        core.validate()
        if isinstance(event, ResetObserved | Verified):
            last_s[event.gpu] = now_s
        if isinstance(event, Verified):
            assert all(not core.state(event.gpu, mig).advertised_healthy for mig in (None, *MIGS))
        for change in changes:
            if change.old is HealthState.PROBATION and change.new.advertised_healthy:
                assert now_s - last_s[change.gpu] >= core.settings.probation_s, f"{event} gave {change.gpu} back"
                assert change.gpu not in held, "its repair has not got so far"


@given(steps, steps)
@settings(max_examples=30, deadline=None)
def test_a_restored_core_goes_on_as_if_nothing_had_happened(
    before: list[tuple[Event, float]], after: list[tuple[Event, float]]
) -> None:
    core, now_s = HealthCore(), 0.0
    core.discovered(node(), now_s)
    for event, after_s in before:
        now_s += after_s
        core.apply(event, now_s)
    text = msgspec.json.encode(core.snapshot())
    again = HealthCore()
    assert again.restore(msgspec.json.decode(text, type=HealthSnapshot), same_boot=True, now_s=now_s) == ()
    assert again.snapshot() == core.snapshot()
    for event, after_s in after:
        now_s += after_s
        assert again.apply(event, now_s) == core.apply(event, now_s)
    again.validate()


@given(steps, st.lists(st.integers(0, 2), max_size=4))
@settings(max_examples=30, deadline=None)
def test_discovery_changes_in_between_break_nothing(sequence: list[tuple[Event, float]], cuts: list[int]) -> None:
    core, now_s = HealthCore(), 0.0
    for position, (event, after_s) in enumerate(sequence):
        now_s += after_s
        if cuts:
            found = node(cuts[position % len(cuts)])
            core.discovered(found[: 1 + position % 2], now_s)
            core.validate()
        core.apply(event, now_s)
        core.validate()
