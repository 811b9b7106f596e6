"""One pass over one simulated GPU: what NVML gives is there, what it does not give is absent."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from msgspec import structs

from agent.hardware.query import GpuLost
from agent.telemetry.collectors import USUAL
from agent.telemetry.fields import (
    BANKS,
    CRC_DATA,
    CRC_FLIT,
    FIELD_VALUES,
    FIELDS,
    FURTHER_VALUES,
    GPM_METRICS,
    LINK_COUNTS,
    RECOVERY,
    REPLAY,
    FieldKind,
)
from agent.telemetry.reading import processes, reader
from tests.agent.telemetry.conftest import Board
from tests.support.agent import dcgm_exporter as peer

Boards = Callable[..., Board]
LOAD = (
    "load:\n- {gpu: 0, pid: 4242, smUtil: 0.5, encUtil: 0.2, memUsedMiB: 4096, powerW: 300, throttle: [swPowerCap]}\n"
)
A100 = "NVIDIA A100-SXM4-80GB"
MIG = "  migEnabled: [0]\n  mig: {0: [3g.40gb, 1g.10gb]}\n"


def test_a_board_at_work_shows_what_its_load_says(board: Boards) -> None:
    one = board(more=LOAD)
    one.read()
    found = one.read()
    expected = {
        "DCGM_FI_DEV_GPU_UTIL": 50,
        "DCGM_FI_DEV_ENC_UTIL": 20,
        "DCGM_FI_DEV_FB_USED": 4096,
        "DCGM_FI_DEV_POWER_USAGE": 300,
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0x4,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.25,
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 0,
        "DCGM_FI_DEV_MIG_MODE": 0,
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_MAX_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MAX_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_SHUTDOWN_TEMP": 95,
        "DCGM_FI_DEV_SLOWDOWN_TEMP": 92,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": 700,
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700,
        "DCGM_FI_DEV_FB_TOTAL": 81559,
        "DCGM_FI_DEV_FB_RESERVED": 637,
        "DCGM_FI_DEV_FB_FREE": 81559 - 637 - 4096,
        "DCGM_FI_DEV_FB_USED_PERCENT": 4096 / (81559 - 637),
        "DCGM_FI_DEV_BAR1_TOTAL": 131072,
        "DCGM_FI_DEV_BAR1_FREE": 131071,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_LINK_GEN": 5,
    }
    assert {name: found.values.get(name) for name in expected} == pytest.approx(expected)
    assert (found.links, found.links_up) == (18, 18)
    (process,) = found.processes
    assert (process.pid, process.memory_mib, process.sm) == (4242, 4096, 50)
    assert found.processes_sampled


def test_energy_is_the_counters(board: Boards) -> None:
    one = board(more=LOAD)
    before, after = one.read(), one.read(10)
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    assert after.values[name] - before.values[name] == pytest.approx(3_000_000, rel=1e-3)


def test_each_field_is_nvmls_of_that_meaning_in_that_unit() -> None:
    """By the constants' names in NVML's own header, as pynvml has them."""
    for number, (name, factor) in FIELD_VALUES.items():
        constant, unit = peer.NVML_FIELDS[name]
        assert (number, factor) == (getattr(pynvml, f"NVML_FI_DEV_{constant}"), unit), name
    assert {name for name, _ in FIELD_VALUES.values()} == peer.NVML_FIELDS.keys()
    for name, (number, factor) in GPM_METRICS.items():
        constant, unit = peer.GPM_METRICS[name]
        assert (number, factor) == (getattr(pynvml, f"NVML_GPM_METRIC_{constant}"), unit), name
    assert GPM_METRICS.keys() == peer.GPM_METRICS.keys()
    counts = {f"DCGM_FI_DEV_NVLINK_COUNT_{ours}": f"NVLINK_COUNT_{nvmls}" for ours, nvmls in peer.LINK_COUNTS.items()}
    counts |= {f"DCGM_FI_DEV_{ours}": nvmls for ours, nvmls in peer.C2C_VALUES.items()}
    read = {name: number for number, name in FURTHER_VALUES.items()}
    read |= {name: number for number, (name, _) in LINK_COUNTS.items()}
    assert read == {name: getattr(pynvml, f"NVML_FI_DEV_{constant}") for name, constant in counts.items()}


def test_types_are_the_peers() -> None:
    types = {field.name: field.kind.value for field in FIELDS}
    recorded = peer.DEFAULT_COUNTERS | peer.MORE_COUNTERS
    assert {name: types.get(name) for name in recorded} == recorded
    assert {field.name for field in USUAL.series} >= peer.DEFAULT_COUNTERS.keys()
    assert all(field.help and "\n" not in field.help for field in FIELDS)


def test_every_field_of_the_catalogue_is_read_somewhere(board: Boards) -> None:
    found: set[str] = set()
    for product in ("NVIDIA H100 80GB HBM3", A100, "Tesla T4", "NVIDIA RTX A6000"):
        one = board(product, more=LOAD)
        one.read()
        found |= one.read().values.keys()
        one.simulation.close()
    not_simulated = {*FURTHER_VALUES.values(), *(name for name, _ in LINK_COUNTS.values())}
    not_simulated |= {name for name in GPM_METRICS if name.startswith("DCGM_FI_PROF_C2C_")}
    from_elsewhere = {
        "DCGM_FI_DEV_XID_ERRORS",
        *not_simulated,
        *(field.name for field in FIELDS if field.name.startswith("DCGM_EXP_")),
    }
    assert {field.name for field in FIELDS if field.kind is not FieldKind.LABEL} - found == from_elsewhere


def test_counts_of_newer_links_are_summed_and_asked_only_where_they_are_wanted(
    board: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = board()
    names = {*FURTHER_VALUES.values(), *(name for name, _ in LINK_COUNTS.values())}
    asked: list[int] = []
    real = pynvml.nvmlDeviceGetFieldValues

    def newer(handle: Any, fields: Any) -> Any:
        answers = real(handle, fields)
        for answer, (number, _) in zip(answers, fields, strict=False):
            if number in FURTHER_VALUES or number in LINK_COUNTS:
                asked.append(number)
                answer.nvmlReturn, answer.valueType, answer.value.uiVal = pynvml.NVML_SUCCESS, 1, 3
        return answers

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", newer)
    one.reader.wanted -= names
    assert one.read().values.keys().isdisjoint(names)
    assert not asked
    one.reader.wanted |= names
    found = one.read().values
    assert {found[name] for name in FURTHER_VALUES.values()} == {3}
    assert {found[name] for name, _ in LINK_COUNTS.values()} == {3 * 18}


def test_limits_banks_and_fabric_are_nvmls(board: Boards) -> None:
    one = board()
    found = one.read()
    expected = {
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": 700,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": 700,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": 200,
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 3,
        "DCGM_FI_DEV_FABRIC_MANAGER_ERROR_CODE": 0,
        "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE": 0,
    }
    assert {name: found.values.get(name) for name in expected} == expected
    assert sum(value for name, value in found.values.items() if name.startswith(BANKS)) > 0
    assert "DCGM_FI_DEV_FABRIC_CLUSTER_UUID" not in found.texts, "one machine's fabric has no cluster"


def test_gpm_needs_two_looks_and_time_between_them(board: Boards) -> None:
    one = board(more=LOAD)
    first, soon, later = one.read(), one.read(0.05), one.read(1)
    assert first.first
    assert not later.first
    for early in (first, soon):
        assert not any(name.startswith("DCGM_FI_PROF_") for name in early.values)
    assert later.values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == pytest.approx(0.5)


def test_before_hopper_there_are_no_profiling_figures(board: Boards) -> None:
    one = board(A100, more=LOAD)
    one.read()
    assert not any(name.startswith("DCGM_FI_PROF_") for name in one.read().values)
    assert held() == set(), "nothing is even asked for"


def test_gpm_starts_anew_with_a_session_and_after_a_reset(board: Boards) -> None:
    one = board(more=LOAD)
    one.read()
    one.sim(reset=True)
    name = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    assert name not in one.read().values
    one.read()
    assert name in one.read().values
    anew = one.read(session=2)
    assert anew.first
    assert name not in anew.values


def test_mig_instances_have_their_own_memory_and_activity(board: Boards) -> None:
    one = board(node=MIG)
    gi, other = (mig.gi_id for mig in one.gpu.mig_instances)
    one.sim(load={"gi": other, "ci": 0, "pid": 7, "smUtil": 0.4, "memUsedMiB": 2048})
    one.sim(load={"gi": gi, "ci": 0, "pid": 8, "smUtil": 0.25, "memUsedMiB": 1024})
    one.read()
    found = one.read()
    assert found.values.keys().isdisjoint({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_ENC_UTIL"})
    by_id = {part.gi_id: part.values for part in found.instances}
    assert by_id.keys() == {mig.gi_id for mig in one.gpu.mig_instances}
    assert by_id[gi]["DCGM_FI_DEV_FB_USED"] == 1024
    assert by_id[gi]["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == pytest.approx(0.25)
    assert not found.processes_sampled
    assert (8, gi, 1024) in {(process.pid, process.gi_id, process.memory_mib) for process in found.processes}


def test_links_that_were_up_are_counted_when_they_are_down(board: Boards) -> None:
    one = board()
    gpu = one.gpu
    one.sim(nvlinkDown=[0, 3])
    found = one.reader.read(one.handle, gpu, 1, 1.0)
    assert (found.links, found.links_up) == (18, 16)


def test_each_links_traffic_is_read_where_it_is_asked_for(board: Boards) -> None:
    one = board(node="  nvlink: full\n", more="load:\n- {gpu: 0, smUtil: 0.5, nvlinkTxMiBs: 36, nvlinkRxMiBs: 18}\n")
    one.read()
    found = one.read(10).values
    whole = found["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"]
    links = [value for name, value in found.items() if name.startswith("DCGM_FI_DEV_NVLINK_BANDWIDTH_L")]
    assert len(links) == 18
    assert whole > 0
    assert sum(links) == pytest.approx(whole, rel=1e-3)
    one.reader.wanted -= {"DCGM_FI_DEV_NVLINK_BANDWIDTH_L3"}
    assert "DCGM_FI_DEV_NVLINK_BANDWIDTH_L3" not in one.read().values


@pytest.mark.parametrize("product", ["NVIDIA H100 80GB HBM3", A100, "Tesla V100-SXM3-32GB"])
def test_errors_of_nvlinks_are_there_whatever_way_the_board_tells_them(board: Boards, product: str) -> None:
    one = board(product, node="  nvlink: full\n")
    one.sim(xid=74)
    values = one.read().values
    assert values[REPLAY] == 1
    assert (values[RECOVERY], values[CRC_FLIT], values[CRC_DATA]) == (0, 0, 0)


def test_errors_of_nvlinks_are_absent_where_nobody_tells_them(board: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    one = board(node="  nvlink: full\n")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkErrorCounter", refused)
    assert one.read().values.keys() >= {REPLAY, RECOVERY, CRC_FLIT}
    assert CRC_DATA not in one.read().values


def test_retired_pages_are_counted_where_no_field_tells_them(board: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    one = board("Tesla T4")
    one.sim(xid=63)
    one.sim(reset=True)
    one.sim(xid=63)
    names = [f"DCGM_FI_DEV_RETIRED_{word}" for word in ("SBE", "DBE", "PENDING")]
    by_field = one.read().values
    assert [by_field[name] for name in names] == [0, 1, 1]
    real = pynvml.nvmlDeviceGetFieldValues

    def without(handle: Any, asked: Any) -> Any:
        answers = real(handle, asked)
        for answer in answers:
            if answer.fieldId in (29, 30, 31):
                answer.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        return answers

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", without)
    counted = one.read().values
    assert [counted[name] for name in names] == [0, 1, 1]
    one.simulation.close()
    remapping = board(A100).read().values
    assert remapping.keys().isdisjoint(names), "a board that remaps rows retires no page"


def test_what_stands_in_labels_alone_is_read_once_a_session_and_only_when_it_is_wanted(
    board: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = board()
    asked: list[int] = []
    real = pynvml.nvmlSystemGetNVMLVersion

    def counted() -> Any:
        asked.append(1)
        return real()

    monkeypatch.setattr(pynvml, "nvmlSystemGetNVMLVersion", counted)
    name = "DCGM_FI_NVML_VERSION"
    one.reader.wanted -= {name}
    assert name not in one.read().texts
    one.reader.wanted |= {name}
    for session in (1, 1, 2):
        found = one.read(session=session).texts
    assert len(asked) == 2
    assert found[name] == real()
    assert found["DCGM_FI_DEV_VBIOS_VERSION"] == pynvml.nvmlDeviceGetVbiosVersion(one.handle)
    assert found["DCGM_FI_DEV_ECC_INFOROM_VER"] == pynvml.nvmlDeviceGetInforomVersion(one.handle, 1)

    def missing(*_: object) -> str:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    monkeypatch.setattr(reader, "_TEXTS", (("DCGM_FI_DEV_INFOROM_IMAGE_VER", missing, ()),))
    assert "DCGM_FI_DEV_INFOROM_IMAGE_VER" not in one.read(session=3).texts, "what a library does not have is absent"


def test_an_instance_that_was_made_anew_since_discovery_is_not_taken_for_the_old_one(
    board: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = board(node=MIG)
    old = one.gpu
    one.read()
    large, small = (mig.gi_id for mig in old.mig_instances)
    real = pynvml.nvmlDeviceGetGpuInstanceId
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstanceId", lambda mig: 9 if real(mig) == small else real(mig))
    found = one.reader.read(one.handle, old, 1, one.now_s + 1)
    assert [part.gi_id for part in found.instances] == [large]


def test_a_process_weighs_what_its_new_samples_sum_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(pid: int, stamp: int, sm: int) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, timeStamp=stamp, smUtil=sm, memUtil=0, encUtil=0, decUtil=0)

    given = [sample(1, 10, 90), sample(1, 20, 30), sample(1, 30, 10), sample(2, 30, 40)]
    given += [sample(3, 2**62, 0xFFFFFFFF), sample(1, 2**62, 101)]  # memory that the driver did not write
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", lambda *_: given)
    found = processes.read_samples(None, 10)
    assert found is not None
    assert {pid: sm for pid, (sm, *_) in found.weights.items()} == {1: 40, 2: 40}
    assert found.newest_us == 30


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (pynvml.NVML_ERROR_NOT_FOUND, processes.Samples({}, 10)),
        (pynvml.NVML_SUCCESS, processes.Samples({}, 10)),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, None),
        (pynvml.NVML_ERROR_UNKNOWN, None),
    ],
)
def test_nobody_ran_is_an_answer_and_no_samples_are_none(
    error: int, found: processes.Samples | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise pynvml.NVMLError(error)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", refused)
    assert processes.read_samples(None, 10) == found


def test_a_process_in_two_lists_has_its_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*mib: int | None) -> Callable[[object], list[SimpleNamespace]]:
        gi = processes.NO_INSTANCE
        return lambda _: [
            SimpleNamespace(pid=7, gpuInstanceId=gi, usedGpuMemory=None if one is None else one << 20) for one in mib
        ]

    monkeypatch.setattr(processes, "_LISTS", (listed(300), listed(None), listed(300)))
    (found,) = processes.read(None, None)
    assert found.memory_mib == 300


def test_numbers_that_stand_for_nothing_are_nothing(board: Boards, monkeypatch: pytest.MonkeyPatch) -> None:
    one = board()
    monkeypatch.setattr(pynvml.nvmlLib, "nvmlDeviceGetPowerUsage", _says(0xFFFFFFFF))
    monkeypatch.setattr(pynvml.nvmlLib, "nvmlDeviceGetTemperature", _says(0x7FFFFFF0))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=0xFFFFFFFF, memory=100))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetEncoderUtilization", lambda _: (101, 0))
    values = one.read().values
    assert values.keys().isdisjoint(
        {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_ENC_UTIL"}
    )
    assert values["DCGM_FI_DEV_MEM_COPY_UTIL"] == 100


def test_an_answer_that_is_an_error_has_no_value_whatever_stands_in_it(
    board: Boards, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = board(more=LOAD)
    fields, gpm = pynvml.nvmlDeviceGetFieldValues, pynvml.nvmlGpmMetricsGet

    def odd_fields(handle: Any, asked: Any) -> Any:
        answers = fields(handle, asked)
        for answer in answers:
            if answer.fieldId == pynvml.NVML_FI_DEV_MEMORY_TEMP:
                answer.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            elif answer.fieldId == pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
                answer.valueType, answer.value.ullVal = 3, 2**64 - 1
            elif answer.fieldId == pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER:
                answer.valueType = 99
        return answers

    def odd_gpm(request: Any) -> None:
        gpm(request)
        gr, sm, occupancy, tensor, dram = request.metrics[:5]
        gr.value, occupancy.value, tensor.value, dram.value = 200.0, math.nan, -1.0, 104.0
        sm.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", odd_fields)
    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", odd_gpm)
    endless = SimpleNamespace(total=2**64 - 1, free=2**64 - 1, used=2**64 - 1, reserved=0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda *_: endless)
    one.read()
    values = one.read().values
    absent = {f"DCGM_FI_DEV_{name}" for name in ("MEMORY_TEMP", "TOTAL_ENERGY_CONSUMPTION", "PCIE_REPLAY_COUNTER")}
    absent |= {f"DCGM_FI_DEV_FB_{name}" for name in ("TOTAL", "FREE", "USED", "USED_PERCENT")}
    absent |= {
        f"DCGM_FI_PROF_{name}" for name in ("GR_ENGINE_ACTIVE", "SM_ACTIVE", "SM_OCCUPANCY", "PIPE_TENSOR_ACTIVE")
    }
    assert values.keys().isdisjoint(absent)
    assert values["DCGM_FI_PROF_DRAM_ACTIVE"] == 1


def test_of_many_processes_those_with_the_most_memory_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [SimpleNamespace(pid=pid, gpuInstanceId=None, usedGpuMemory=pid << 20) for pid in range(1, 600)]
    monkeypatch.setattr(processes, "_LISTS", (lambda _: listed,))
    assert sorted(one.pid for one in processes.read(None, None)) == list(range(600 - processes.MOST, 600))


def _says(number: int) -> Callable[..., int]:
    def function(*arguments: object) -> int:
        arguments[-1]._obj.value = number  # type: ignore[attr-defined]
        return 0

    return function


def test_a_lost_gpu_ends_the_pass(board: Boards) -> None:
    one = board()
    handle, gpu = one.handle, one.gpu
    one.sim(lost=True)
    with pytest.raises(GpuLost):
        one.reader.read(handle, gpu, 1, 1.0)


def held() -> set[int]:
    """GPM sample buffers that NVML has handed out."""
    return set(pynvml.nvmlLib._session.samples)


def test_samples_held_are_bounded(board: Boards) -> None:
    one = board(node=MIG)
    for session in (1, 1, 1, 2, 3):
        one.read(session=session)
    assert len(held()) == 2 * (1 + len(one.gpu.mig_instances))
    one.reader.read(one.handle, structs.replace(one.gpu, mig_instances=one.gpu.mig_instances[:1]), 3, one.now_s + 1)
    assert len(held()) == 2 * (1 + 1), "an instance that is gone has no samples"
    one.reader.close()
    assert held() == set()
