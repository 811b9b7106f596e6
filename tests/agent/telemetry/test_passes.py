"""From pass to pass on hardware that changes in between: the sampler with GPUs that say what the test wants."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from agent.config.settings import MetricsSettings, XidErrors
from agent.hardware.query import GpuLost
from agent.health.states import Fault, FaultKind
from agent.health.xids import FaultClass
from agent.kubelet.containers import ContainerTable, PodContainer, PodIdentity
from agent.kubelet.holders import Holder
from agent.nodestate import NodeState
from agent.telemetry.collectors import parse
from agent.telemetry.reading.readings import GpuReading, InstanceReading, ProcessReading, Values
from agent.telemetry.sampler import Sampler
from inventory.devices import DeviceId, GpuUuid, MigInstance, NodeInventory, ResourceName
from inventory.layout.layout import Layout, plan
from inventory.layout.sharing import LayoutSpec
from kube.clock import Clock
from kube.testing import VirtualClock
from tests.agent.telemetry.test_series import GPU, MIXED, SHARED, UTIL, VALUES, board, instance, node

T = TypeVar("T")
ENERGY, USED, POWER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE"
POD_ENERGY = "tessera_pod_gpu_energy_estimate_joules_total"
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
DIGITS = "a" * 64, "b" * 64


class Rig:
    """A sampler whose hardware, holders and readings are set by hand. Also its ``Gpus``."""

    def __init__(
        self,
        of: NodeInventory,
        layout: Layout,
        proc: Path = Path("/nowhere"),
        clock: Clock | None = None,
        passed: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        self.session = 1
        self.node_state = SimpleNamespace(
            node=of,
            layout=layout,
            health=SimpleNamespace(state=lambda _: SimpleNamespace(faults=())),
        )
        self.holders: dict[DeviceId, Holder] = {}
        self.containers = ContainerTable()
        self.say: dict[str, GpuReading | Exception] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a GPU is read."""
        self.sampler = Sampler(
            cast("NodeState", self.node_state),
            lambda: self.holders,
            self.containers,
            proc,
            MetricsSettings(),
            passed=passed,
            clock=clock,
        )

    def hold(self, device: str, pod: str, namespace: str = "team", resource: str = GPU) -> None:
        self.holders[DeviceId(device)] = Holder(namespace, pod, "main", ResourceName(resource))

    async def read(self, uuid: GpuUuid, function: Callable[[Any], T], timeout_s: float) -> T:  # noqa: ARG002
        self.meanwhile()
        answer = self.say[uuid]
        if isinstance(answer, Exception):
            raise answer
        return cast("T", answer)

    async def look(self) -> None:
        await self.sampler.sample(self)
        self.sampler.validate()

    def shown(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels.get(label, "") for label in labels): sample.value
            for family in text_string_to_metric_families(self.sampler.exposition().decode())
            for sample in family.samples
            if sample.name == name
        }


def whole(
    index: int, values: Values, at_s: float = 0.0, processes: Sequence[ProcessReading] = (), **more: Any
) -> GpuReading:
    return GpuReading(GpuUuid(f"GPU-{index}"), at_s, values, processes=tuple(processes), **more)


def cut(values: Values, parts: Mapping[int, Values], **more: Any) -> GpuReading:
    return GpuReading(
        GpuUuid("GPU-0"), 0.0, values, instances=tuple(InstanceReading(*one) for one in parts.items()), **more
    )


TWO = node(board(0), board(1))


async def test_a_gpu_that_is_gone_before_it_is_read_takes_its_series_along_and_no_others() -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")
    rig.hold("GPU-1", "serve")
    rig.say = {f"GPU-{i}": whole(i, {UTIL: 50.0, POWER: 100.0, ENERGY: 1000.0, USED: 5.0}) for i in (0, 1)}
    await rig.look()
    assert rig.shown(UTIL, "gpu", "pod") == {("0", "train"): 50, ("1", "serve"): 50}
    rig.say["GPU-1"] = GpuLost("lost")
    await rig.look()
    assert rig.shown(UTIL, "gpu", "pod") == {("0", "train"): 50}
    assert rig.shown("tessera_gpu_allocation", "gpu", "pod") == {("0", "train"): 1, ("1", "serve"): 1}
    rig.node_state.node = node(board(0))
    await rig.look()
    assert rig.shown("tessera_gpu_allocation", "gpu", "pod") == {("0", "train"): 1}
    assert rig.sampler._readers.keys() == {"GPU-0"}, "nothing is kept of it"


async def test_a_gpu_that_was_lost_at_discovery_is_not_asked_and_no_failure() -> None:
    told: list[tuple[int, int]] = []
    boards = node(board(0), structs.replace(board(1), readable=False))
    rig = Rig(boards, plan(TWO, LayoutSpec()), passed=lambda read, failed, _: told.append((read, failed)))
    rig.say = {"GPU-0": whole(0, {UTIL: 50.0})}
    await rig.look()
    assert told == [(1, 0)]


@pytest.mark.parametrize("session", [0, 2])
async def test_what_was_read_while_the_session_ended_is_not_shown(session: int) -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.say = {f"GPU-{i}": whole(i, {UTIL: 50.0}) for i in (0, 1)}

    def ends() -> None:
        rig.session = session
        rig.sampler.forget()

    rig.meanwhile = ends
    assert await rig.sampler.sample(rig) is bool(session), "with a new session the next pass is due soon"
    assert rig.shown(UTIL, "gpu") == {}


async def forward(clock: VirtualClock, seconds: float) -> None:
    """Time goes on from wake to wake, and everybody who was woken acts."""
    end_s = clock.monotonic() + seconds
    while True:
        for _ in range(50):
            await asyncio.sleep(0)
        left_s = end_s - clock.monotonic()
        if left_s <= 0:
            return
        clock.advance(min(left_s, clock.next_wake_s or left_s))


async def test_two_passes_are_a_second_apart_at_the_start_and_then_an_interval() -> None:
    clock = VirtualClock()
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()), clock=clock)
    start_s, times = clock.monotonic(), list[float]()

    def passes() -> None:
        times.append(clock.monotonic() - start_s)
        rig.say = {"GPU-0": whole(0, {UTIL: 50.0}, first=len(times) == 1)}

    rig.meanwhile = passes
    running = asyncio.create_task(rig.sampler.run(rig))
    await forward(clock, 40)
    assert times == [0, 1, 16, 31]
    rig.sampler.nudge()
    await forward(clock, 0.5)
    assert times[4:] == [40], "news are read at once"
    rig.sampler.nudge()
    await forward(clock, 0.4)
    assert times[5:] == [], "but not sooner than the driver has something new to say"
    await forward(clock, 10)
    assert times[5:] == [41, 46], "and the interval goes on as before"
    running.cancel()


async def test_an_answer_that_nobody_foresaw_costs_that_gpus_figures_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.say = {"GPU-0": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a board's name"), "GPU-1": whole(1, {UTIL: 50.0})}
    for _ in range(2):
        await rig.look()
        assert rig.shown(UTIL, "gpu") == {("1",): 50}
    assert [record.getMessage() for record in caplog.records] == ["no figures"], "said once"


async def test_the_gauge_of_xids_has_the_worst_xid_also_behind_a_fault_of_another_kind() -> None:
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()))
    faults = [(FaultKind.UNREADABLE, 7), (FaultKind.XID, 48), (FaultKind.XID, 63)]  # worst first
    found = SimpleNamespace(faults=tuple(SimpleNamespace(kind=kind, code=code) for kind, code in faults))
    rig.node_state.health = SimpleNamespace(state=lambda _: found)
    assert rig.shown("DCGM_FI_DEV_XID_ERRORS", "gpu") == {("0",): 48}
    found.faults = found.faults[:1]
    rig.sampler.changed()
    assert rig.shown("DCGM_FI_DEV_XID_ERRORS", "gpu") == {("0",): 0}


XID, OPEN = "DCGM_FI_DEV_XID_ERRORS", "tessera_gpu_open_xid"


def with_fault(rig: Rig, *xids: int) -> None:
    """The open faults, the worst first."""
    faults = tuple(
        Fault(kind=FaultKind.XID, fault_class=FaultClass.RESET, since_s=0, last_s=0, cause="", source="", code=xid)
        for xid in xids
    )
    rig.node_state.health = SimpleNamespace(state=lambda _: SimpleNamespace(faults=faults))
    rig.sampler.changed()


@pytest.mark.parametrize("xid", [13, 31, 43])
async def test_an_xid_of_a_program_is_shown_as_the_last_one_and_not_for_ever(xid: int) -> None:
    clock = VirtualClock()
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()), clock=clock)
    with_fault(rig, 63)
    rig.sampler.xid(GpuUuid("GPU-0"), xid)
    assert (rig.shown(XID, "err_code"), rig.shown(OPEN, "gpu")) == ({(str(xid),): xid}, {("0",): 63})
    clock.advance(539)
    assert rig.shown(XID, "gpu") == {("0",): xid}
    clock.advance(121)  # ten minutes, and the minute that a scrape's text may be old
    assert rig.shown(XID, "gpu") == {("0",): 63}, "no longer the last: the worst that is open"
    with_fault(rig)
    assert rig.shown(XID, "gpu") == {("0",): 0}


async def test_with_worst_an_xid_that_opens_no_fault_is_not_shown() -> None:
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()))
    rig.sampler.settings = MetricsSettings(xid_errors=XidErrors.WORST)
    rig.sampler.xid(GpuUuid("GPU-0"), 31)
    assert rig.shown(XID, "gpu") == {("0",): 0}
    with_fault(rig, 79)
    assert rig.shown(XID, "gpu") == {("0",): 79}


async def test_what_happened_within_the_windows_is_counted(tmp_path: Path) -> None:
    clock = VirtualClock()
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()), clock=clock)
    rig.sampler.collectors = parse(
        "DCGM_EXP_XID_ERRORS_COUNT, gauge, x\nDCGM_EXP_CLOCK_EVENTS_COUNT, gauge, x\n"
        "DCGM_EXP_GPU_HEALTH_STATUS, gauge, x\n",
        str(tmp_path),
    )
    held = {**VALUES, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": float(0x44)}
    for _ in range(3):
        rig.say["GPU-0"] = GpuReading(GpuUuid("GPU-0"), 1.0, held)
        await rig.look()
        rig.sampler.xid(GpuUuid("GPU-0"), 31)
        clock.advance(15)
    with_fault(rig, 95)
    assert rig.shown("DCGM_EXP_XID_ERRORS_COUNT", "xid") == {("31",): 3}
    assert rig.shown("DCGM_EXP_CLOCK_EVENTS_COUNT", "clock_event") == {("power_cap",): 3, ("hw_thermal",): 3}
    watches = rig.shown("DCGM_EXP_GPU_HEALTH_STATUS", "health_watch", "health_error_code")
    assert {watch: value for watch, value in watches.items() if value} == {
        ("MEM", "DCGM_FR_UNCONTAINED_ERROR"): 20,
        ("THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL"): 10,
    }
    clock.advance(400)
    assert rig.shown("DCGM_EXP_XID_ERRORS_COUNT", "xid") == {("",): 0}


async def test_the_uid_and_labels_that_are_asked_for_are_those_of_the_pod_that_is_there() -> None:
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")
    rig.containers.describe("u1", "team", "train", PodIdentity("u1", {"team": "a", "other": "b"}))
    rig.say["GPU-0"] = GpuReading(GpuUuid("GPU-0"), 1.0, VALUES)
    await rig.look()
    assert rig.shown(UTIL, "pod", "pod_uid", "team") == {("train", "", ""): 80}
    rig.sampler.settings = MetricsSettings(pod_uid=True, pod_labels=True, pod_label_allowlist=("^team$",))
    rig.sampler.changed()
    assert rig.shown(UTIL, "pod", "pod_uid", "team", "other") == {("train", "u1", "a", ""): 80}
    rig.containers.drop("u1")
    rig.sampler.changed()
    assert rig.shown(UTIL, "pod", "pod_uid", "team") == {("train", "", ""): 80}


async def test_hardware_that_changes_during_a_pass_is_shown_as_it_is_after_it() -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.hold("GPU-1", "serve")
    rig.say = {f"GPU-{i}": whole(i, {UTIL: 50.0}) for i in (0, 1)}
    rig.meanwhile = lambda: setattr(rig.node_state, "node", node(board(0)))
    await rig.look()
    assert rig.shown(UTIL, "gpu", "pod") == {("0", ""): 50}
    assert rig.shown("tessera_gpu_allocation", "pod") == {}


async def test_a_pod_that_ended_is_in_no_series_and_what_it_used_is_nobodys() -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")
    for energy in (1000.0, 5000.0):
        rig.say = {f"GPU-{i}": whole(i, {UTIL: 50.0, POWER: 100.0, ENERGY: energy, USED: 5.0}) for i in (0, 1)}
        await rig.look()
    assert rig.shown(POD_ENERGY, "gpu", "pod") == {("0", "train"): 4, ("0", ""): 0, ("1", ""): 4}
    rig.holders.clear()
    rig.sampler.changed()  # what the news of the kubelet does: the next scrape shows it, without a pass
    assert b"train" not in rig.sampler.exposition()
    await rig.look()
    assert b"train" not in rig.sampler.exposition()
    assert rig.shown(POD_ENERGY, "gpu", "pod") == {("0", ""): 0, ("1", ""): 4}


async def test_idle_times_outlast_a_pass_that_failed_and_not_the_pod() -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")

    async def idle_at(at_s: float, failure: Exception | None = None) -> dict[tuple[str, ...], float]:
        rig.say = {f"GPU-{i}": whole(i, {UTIL: 0.0, USED: 900.0}, at_s) for i in (0, 1)}
        if failure is not None:
            rig.say["GPU-0"] = failure
        await rig.look()
        return rig.shown("tessera_pod_gpu_idle_seconds", "pod")

    assert await idle_at(0) == {("train",): 0}
    assert await idle_at(600, GpuLost("lost")) == {}
    assert await idle_at(1200) == {("train",): 1200}
    holder = rig.holders.pop(DeviceId("GPU-0"))
    assert await idle_at(1300) == {}
    rig.holders[DeviceId("GPU-0")] = holder  # another of the same name, as of a StatefulSet
    assert await idle_at(1400) == {("train",): 0}


async def test_a_gpu_that_comes_back_is_counted_from_there() -> None:
    rig = Rig(TWO, plan(TWO, LayoutSpec()))
    for energy, of in ((0.0, TWO), (5000.0, TWO), (6000.0, node(board(0))), (9000.0, TWO), (9500.0, TWO)):
        rig.node_state.node = of
        rig.say = {f"GPU-{i}": whole(i, {POWER: 100.0, ENERGY: energy}) for i in (0, 1)}
        await rig.look()
    assert rig.shown(POD_ENERGY, "gpu") == {("0",): 9.5, ("1",): 0.5}


async def test_a_counter_that_restarts_adds_what_it_shows_since() -> None:
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")
    for energy in (900_000.0, 950_000.0, 3000.0, 4000.0):
        rig.say = {"GPU-0": whole(0, {POWER: 100.0, ENERGY: energy, USED: 5.0})}
        await rig.look()
    assert rig.shown(POD_ENERGY, "pod") == {("train",): 54, ("",): 0}


async def test_a_pass_without_power_leaves_the_pods_energy_where_it_is() -> None:
    rig = Rig(node(board(0)), plan(TWO, LayoutSpec()))
    rig.hold("GPU-0", "train")
    for values in ({POWER: 100.0, ENERGY: 0.0}, {POWER: 100.0, ENERGY: 2000.0}, {ENERGY: 3000.0}, {POWER: 100.0}):
        rig.say = {"GPU-0": whole(0, {**values, USED: 5.0})}
        await rig.look()
    rig.say = {"GPU-0": whole(0, {POWER: 100.0, ENERGY: 7000.0, USED: 5.0})}
    await rig.look()
    assert rig.shown(POD_ENERGY, "pod") == {("train",): 7, ("",): 0}


def mig(gi_id: int, uuid: str) -> MigInstance:
    return structs.replace(instance(gi_id, "3g.40gb", 3), uuid=uuid)


async def test_an_instance_that_is_made_anew_on_another_gpu_goes_with_its_holder() -> None:
    parts = {1: {USED: 700.0, BUSY: 0.5}}
    before, after = (node(board(0, (mig(1, "MIG-x"),)), board(1)), node(board(0), board(1, (mig(1, "MIG-x"),))))
    rig = Rig(before, plan(before, MIXED))
    rig.hold("MIG-x", "train", resource="nvidia.com/mig-3g.40gb")
    rig.say = {"GPU-0": cut({POWER: 100.0, ENERGY: 0.0}, parts), "GPU-1": whole(1, {USED: 1.0})}
    await rig.look()
    assert rig.shown(USED, "gpu", "GPU_I_ID", "pod")["0", "1", "train"] == 700
    energy = rig.shown(POD_ENERGY, "gpu", "GPU_I_ID", "pod")
    assert energy == {("0", "1", "train"): 0, ("0", "", ""): 0}, "what nobody used is the board's, once"
    rig.node_state.node, rig.node_state.layout = after, plan(after, MIXED)
    moved = GpuReading(GpuUuid("GPU-1"), 1.0, {POWER: 90.0}, instances=(InstanceReading(1, {USED: 30.0, BUSY: 0.1}),))
    rig.say = {"GPU-0": whole(0, {USED: 2.0}), "GPU-1": moved}
    await rig.look()
    assert rig.shown(USED, "gpu", "GPU_I_ID", "pod") == {("0", "", ""): 2, ("1", "1", "train"): 30}
    assert rig.shown("tessera_gpu_allocation", "gpu", "GPU_I_ID", "pod").keys() == {("1", "1", "train")}


async def test_pods_of_one_name_in_two_namespaces_stay_apart(tmp_path: Path) -> None:
    one = node(board(0))
    rig = Rig(one, plan(one, SHARED), tmp_path)
    for index, namespace in enumerate(("blue", "red")):
        rig.hold(f"GPU-0::{index}", "train", namespace)
        rig.containers.put(namespace, [(DIGITS[index], PodContainer(namespace, "train", "main"))])
        (tmp_path / str(index)).mkdir()
        (tmp_path / str(index) / "cgroup").write_text(f"0::/kubepods/pod{'0' * 32}/{DIGITS[index]}\n")
    processes = [ProcessReading(0, memory_mib=30, sm=60), ProcessReading(1, memory_mib=10, sm=20)]
    rig.say = {"GPU-0": whole(0, {UTIL: 80.0, USED: 40.0}, processes=processes, processes_sampled=True)}
    await rig.look()
    assert rig.shown(UTIL, "namespace", "pod") == {("blue", "train"): 60, ("red", "train"): 20, ("", ""): 0}


async def test_a_pid_that_is_another_containers_now_is_that_ones_and_one_that_is_gone_is_nobodys(
    tmp_path: Path,
) -> None:
    one = node(board(0))
    rig = Rig(one, plan(one, SHARED), tmp_path)
    (tmp_path / "7").mkdir()
    for index, pod in enumerate(("old", "new")):
        rig.hold(f"GPU-0::{index}", pod)
        rig.containers.put(pod, [(DIGITS[index], PodContainer("team", pod, "main"))])
    processes = [ProcessReading(7, memory_mib=30, sm=60), ProcessReading(8, memory_mib=10, sm=20)]
    rig.say = {"GPU-0": whole(0, {UTIL: 80.0, USED: 40.0}, processes=processes, processes_sampled=True)}
    for index, pod in enumerate(("old", "new")):
        (tmp_path / "7/cgroup").write_text(f"0::/kubepods/pod{'0' * 32}/{DIGITS[index]}\n")
        await rig.look()
        assert {key: part for key, part in rig.shown(UTIL, "pod").items() if part} == {(pod,): 60, ("",): 20}


async def test_a_pod_that_started_nothing_is_empty_though_the_driver_holds_some_memory() -> None:
    one = node(board(0))
    rig = Rig(one, plan(one, LayoutSpec()))
    rig.hold("GPU-0", "notebook")
    rig.say = {"GPU-0": whole(0, {UTIL: 0.0, USED: 44.0})}
    await rig.look()
    assert rig.shown("tessera_pod_gpu_use", "pod", "use") == {("notebook", "empty"): 1}
    rig.say = {"GPU-0": whole(0, {UTIL: 0.0, USED: 44.0}, processes=[ProcessReading(1, memory_mib=None)])}
    await rig.look()
    assert rig.shown("tessera_pod_gpu_use", "pod", "use") == {("notebook", "warm"): 1}
