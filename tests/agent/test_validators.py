"""Every validator of the agent sees the fault it is there for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.config.settings import MetricsSettings
from agent.health.checkpoint import validate as validate_record
from agent.health.events import ProbeFailed, ProbeReason, XidSeen
from agent.health.machine import HealthCore
from agent.health.records import HISTORY_LENGTH, GpuRecord
from agent.health.states import HealthState
from agent.kubelet.containers import ContainerTable, PodContainer
from agent.kubelet.plans import Demand, Plans
from agent.mps.core import LONGEST_PAUSE_S, Phase
from agent.nodestate import Choices, NodeState
from agent.telemetry import usage
from agent.telemetry.activity import WARM_S, ActivityLog, Use
from agent.telemetry.allocation import NOBODY, GpuPart
from agent.telemetry.energy import EnergyLedger
from agent.telemetry.fields import POWER
from agent.telemetry.reading.readings import GpuReading
from agent.telemetry.sampler import Pass, Sampler
from agent.telemetry.shares import Attribution, Figure, Split
from agent.telemetry.usage import Usage
from deviceplugin.strategy import NodeAccess
from inventory.devices import NodeName
from inventory.layout.entries import TimeSliced
from tests.agent.kubelet.test_plans import GPU, ask, ids, plans, pod
from tests.agent.mps import test_core as mps
from tests.support.inventory.builders import gpu, node, uuid

A = PodContainer("team", "a", "main")


# -- telemetry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "said"),
    [
        (Split(total=10.0, pods={A: 6.0}, unattributed=3.0), "9.0 is not 10.0"),
        (Split(total=10.0, pods={A: -1.0}, unattributed=11.0), "a negative part"),
        (Split(total=10.0, pods={A: 11.0}, unattributed=-1.0), "a negative rest"),
        (Split(total=10.0, pods={A: 10.0}, known=False), "parts of an unknown total"),
    ],
)
def test_a_split_that_is_not_whole_is_seen(split: Split, said: str) -> None:
    Split(total=10.0, pods={A: 6.0}, unattributed=4.0).validate()
    with pytest.raises(AssertionError, match=said):
        split.validate()
    with pytest.raises(AssertionError, match=said):
        Attribution({Figure.SM: split}, {A: True}).validate()


def test_a_part_for_a_pod_that_is_not_there_is_seen() -> None:
    with pytest.raises(AssertionError, match="a pod that is not there"):
        Attribution({Figure.SM: Split(total=1.0, pods={A: 1.0})}, {}).validate()


def use(watts: float) -> Usage:
    board = Attribution({Figure.POWER_W: Split(total=watts, unattributed=watts)})
    return Usage(gpu(0), GpuPart(uuid(0)), "", {}, NOBODY, board)


def test_power_that_is_not_the_boards_is_seen() -> None:
    readings = {uuid(0): GpuReading(uuid(0), 0.0, {POWER: 100.0})}
    usage.validate([use(60.0), use(40.0)], readings)
    with pytest.raises(AssertionError, match=r"90.0 W of 100.0 W"):
        usage.validate([use(50.0), use(40.0)], readings)
    with pytest.raises(AssertionError, match="is not"):
        usage.validate([structs.replace(use(100.0), attribution=Attribution({Figure.SM: Split(total=1.0)}))], readings)


def ledger() -> EnergyLedger[str, str]:
    made: EnergyLedger[str, str] = EnergyLedger()
    made.add("gpu", 0.0, {"a": 1.0}, 2.0)
    made.add("gpu", 1000.0, {"a": 1.0}, 2.0)
    made.validate()
    return made


@pytest.mark.parametrize(
    ("field", "value", "said"), [("unattributed_mj", 400.0, "energy is lost"), ("ended_mj", -1.0, "a negative amount")]
)
def test_energy_that_is_lost_or_negative_is_seen(field: str, value: float, said: str) -> None:
    made = ledger()
    account = made.account("gpu")
    assert account is not None
    setattr(account, field, value)
    with pytest.raises(AssertionError, match=said):
        made.validate()


@pytest.mark.parametrize(
    ("found", "idle_s", "said"),
    [
        (Use.EMPTY, -1.0, "idle since the future"),
        (Use.ACTIVE, 1.0, "active and idle"),
        (Use.WARM, WARM_S, "warm for too long"),
        (Use.HELD, WARM_S - 1, "held too early"),
    ],
)
def test_an_activity_that_its_age_contradicts_is_seen(found: Use, idle_s: float, said: str) -> None:
    log: ActivityLog[str] = ActivityLog()
    log.observe("gpu", A, active=True, memory_mib=9.0, now_s=0.0)
    log.validate()
    (record,) = log._records.values()
    record.activity = structs.replace(record.activity, use=found, idle_s=idle_s)
    with pytest.raises(AssertionError, match=said):
        log.validate()


def lost_energy(one: Sampler) -> None:
    one._energy.add(uuid(0), 0.0, {}, 0.0)
    account = one._energy.account(uuid(0))
    assert account is not None
    account.ended_mj = 1.0


def idle_since_the_future(one: Sampler) -> None:
    one._activity.observe(GpuPart(uuid(0)), A, active=True, memory_mib=0.0, now_s=0.0)
    (record,) = one._activity._records.values()
    record.activity = structs.replace(record.activity, idle_s=-1.0)


def unread(one: Sampler) -> None:
    one._pass = Pass({uuid(0): GpuReading(uuid(0), 0.0, {})})


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lost_energy, "energy is lost"),
        (idle_since_the_future, "idle since the future"),
        (unread, "a reading without a reader"),
    ],
)
def test_what_is_wrong_in_a_part_of_the_sampler_is_seen(plant: Callable[[Sampler], None], said: str) -> None:
    one = Sampler(node_state(), dict, ContainerTable(), Path("/nowhere"), MetricsSettings())
    one.validate()
    plant(one)
    with pytest.raises(AssertionError, match=said):
        one.validate()


# -- the node state and health ---------------------------------------------------------------------------------------


def node_state() -> NodeState:
    made = NodeState(NodeName("node-a"), Choices())
    made.discovered(node([gpu(0, mig=["3g.20gb", "3g.20gb"]), gpu(1)]), NodeAccess(), 0.0)
    made.validate()
    return made


def spoil_links(one: NodeState) -> None:
    one.node = structs.replace(one.node, links=one.node.links[:1])


def advertise_twice(one: NodeState) -> None:
    one.layout = structs.replace(one.layout, resources=one.layout.resources * 2)


def stand_on_nothing(one: NodeState) -> None:
    one.node = node([])


def name_a_stranger(one: NodeState) -> None:
    one.modes[uuid(9)] = TimeSliced(2)


def spoil_health(one: NodeState) -> None:
    one.health._records[uuid(1)].units[0].state = HealthState.UNHEALTHY


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (spoil_links, "another size"),
        (advertise_twice, "planned twice"),
        (stand_on_nothing, "a device without a GPU"),
        (name_a_stranger, "a mode without a GPU"),
        (spoil_health, "is Unhealthy, blocked: False"),
    ],
)
def test_a_node_state_that_is_not_whole_is_seen(plant: Callable[[NodeState], None], said: str) -> None:
    one = node_state()
    plant(one)
    with pytest.raises(AssertionError, match=said):
        one.validate()


def healthy(_: HealthCore) -> None:
    pass


def suspect(core: HealthCore) -> None:
    core.apply(ProbeFailed(uuid(0), None, ProbeReason.TIMEOUT), 1.0)


def blocked(core: HealthCore) -> None:
    core.apply(XidSeen(uuid(0), 79, None, None), 1.0)


def no_units(record: GpuRecord) -> None:
    record.units = []


def gpu_last(record: GpuRecord) -> None:
    record.units.reverse()


def twin(record: GpuRecord) -> None:
    record.units.append(record.units[-1])


def misfiled(record: GpuRecord) -> None:
    (key, fault) = next(iter(record.open.items()))
    record.open = {structs.replace(key, code=12): fault}


def harmless(record: GpuRecord) -> None:
    key, fault = next(iter(record.open.items()))
    record.open[key] = structs.replace(fault, fault_class=type(fault.fault_class).NOTICE)


def long_history(record: GpuRecord) -> None:
    record.history *= HISTORY_LENGTH + 1


def changed(**fields: Any) -> Callable[[GpuRecord], None]:
    def plant(record: GpuRecord) -> None:
        for name, value in fields.items():
            setattr(record.units[0], name, value)

    return plant


@pytest.mark.parametrize(
    ("before", "plant", "said"),
    [
        (healthy, no_units, "without a unit for itself"),
        (healthy, gpu_last, "the first unit is not the GPU"),
        (healthy, twin, "two units"),
        (blocked, misfiled, "under a wrong key"),
        (blocked, harmless, "a harmless fault is open"),
        (blocked, long_history, "not bounded"),
        (blocked, changed(state=HealthState.SUSPECT), "blocked: True"),
        (healthy, changed(state=HealthState.PROBATION), "a probation clock"),
        (healthy, changed(probation_since_s=1.0), "without probation"),
        (healthy, changed(clean_probes=1), "outside probation"),
        (suspect, changed(state=HealthState.HEALTHY), "Healthy with open faults"),
        (healthy, changed(state=HealthState.SUSPECT), "Suspect without a reason"),
    ],
)
def test_health_that_contradicts_its_faults_is_seen(
    before: Callable[[HealthCore], None], plant: Callable[[GpuRecord], None], said: str
) -> None:
    core = HealthCore()
    core.discovered(node([gpu(0, mig=["3g.20gb"])]).gpus, 0.0)
    before(core)
    core.validate()
    record = core._records[uuid(0)]
    plant(record)
    with pytest.raises(AssertionError, match=said):
        core.validate()
    with pytest.raises(AssertionError, match=said):
        validate_record(record)


# -- plans and MPS -------------------------------------------------------------------------------------------------


def half_served() -> Plans:
    """``a`` waits for the second of two; ``b`` has what it asked for."""
    made = plans(pod("a", 1, 2, 1), pod("b", 2, 4))
    made.given(GPU, ids(0, 1))
    made.given(GPU, ids(4, 5, 6, 7))
    made.validate()
    assert (set(made._waiting), set(made._served)) == ({"uid-a"}, {"uid-b"})
    return made


def in_two_places(made: Plans) -> None:
    made._served["uid-a"] = made._waiting["uid-a"]


def under_another(made: Plans) -> None:
    made._waiting["uid-c"] = made._waiting.pop("uid-a")


def never_asked(made: Plans) -> None:
    made._waiting["uid-a"].open.append(Demand(GPU, 7))


def waits_for_nothing(made: Plans) -> None:
    made._waiting["uid-a"].open.clear()


def given_twice(made: Plans) -> None:
    made._given.append(made._given[0])


def wrong_size(made: Plans) -> None:
    made._given[0] = structs.replace(made._given[0], devices=frozenset(ids(0)))


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (in_two_places, "waiting and served"),
        (under_another, "filed under another pod"),
        (never_asked, "what it never asked for"),
        (waits_for_nothing, "in the wrong place"),
        (given_twice, "given twice"),
        (wrong_size, "an answer of another size"),
    ],
)
def test_plans_that_contradict_themselves_are_seen(plant: Callable[[Plans], None], said: str) -> None:
    made = half_served()
    plant(made)
    with pytest.raises(AssertionError, match=said):
        made.validate()
    assert ask(plans(), 1) == ()


def starting() -> mps.World:
    return mps.World().hold().want(mps.spec())


def ready() -> mps.World:
    return mps.World().ready("GPU-a")


@pytest.mark.parametrize(
    ("world", "fields", "said"),
    [
        (ready, {"spec": mps.spec("GPU-b")}, "under another name"),
        (ready, {"pause_s": LONGEST_PAUSE_S * 2}, "a pause out of bounds"),
        (ready, {"misses": -1}, "misses out of bounds"),
        (ready, {"applied": None}, "ready without a process"),
        (ready, {"reason": "why"}, "ready with an excuse"),
        (starting, {"reason": ""}, "Starting without a reason"),
        (ready, {"phase": Phase.WAITING, "reason": "no"}, "waiting beside a process"),
        (starting, {"phase": Phase.REFUSED}, "refused without a reason"),
        (ready, {"wanted": False}, "without a use"),
    ],
)
def test_a_daemon_that_cannot_be_is_seen(world: Callable[[], mps.World], fields: dict[str, Any], said: str) -> None:
    core = world().core
    core.validate()
    (daemon,) = core._daemons.values()
    for name, value in fields.items():
        setattr(daemon, name, value)
    with pytest.raises(AssertionError, match=said):
        core.validate()


def test_readiness_that_is_told_wrongly_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    core = ready().core
    monkeypatch.setattr(core, "unready", lambda: {"GPU-a": "no"})
    with pytest.raises(AssertionError, match="readiness told wrongly"):
        core.validate()
