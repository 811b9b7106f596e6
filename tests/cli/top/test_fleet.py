"""The fleet at one moment: what agents measured, GPU by GPU, and what a screen of it has room for."""

import io

import msgspec
import pytest
from rich.console import Console

from cli.top.fleet import NONE, Figures, Fleet, GpuRow, figures, gpus, queues, totals
from cli.top.screen import bar, screen
from tests.support.controller.gpunodes import observed

EXPOSITION = """\
# HELP tessera_gpu_busy_ratio x
tessera_gpu_busy_ratio{gpu="0",UUID="GPU-0",Hostname="n",source="gpm"} 0.5
tessera_gpu_busy_ratio{gpu="1",UUID="GPU-1",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1",Hostname="n",source="gpm"} 0.9
tessera_gpu_busy_ratio{gpu="1",UUID="GPU-1",GPU_I_PROFILE="3g.40gb",GPU_I_ID="2",Hostname="n",source="gpm"} 0.1
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",pod="a"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0",pod="b"} 200
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-0"} 50
DCGM_FI_DEV_FB_USED_PERCENT{gpu="0",UUID="GPU-0"} 0.9
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-0"} 301.5 1700000000
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0"} 61
"""


def test_figures_are_of_the_whole_gpu() -> None:
    found = figures(EXPOSITION)
    assert found["GPU-0"] == Figures(busy=0.5, used_mib=350.0, power_w=301.5, temperature_c=61.0)
    assert found["GPU-1"] == Figures(busy=0.5)


@pytest.mark.parametrize(
    "line",
    [
        'tessera_gpu_busy_ratio{UUID="GPU-9"} NaN',
        'tessera_gpu_busy_ratio{UUID="GPU-9"} +Inf',
        'tessera_gpu_busy_ratio{UUID="GPU-9"} many',
        'tessera_gpu_busy_ratio{gpu="9"} 1',
        "tessera_gpu_busy_ratio 1",
        'tessera_gpu_busy_ratio_x{UUID="GPU-9"} 1',
        'tessera_gpu_busy_ratio{UUID="GPU-9"',
        "",
    ],
)
def test_a_line_that_says_nothing_is_passed_over(line: str) -> None:
    assert figures(line) == {}


def test_a_share_is_between_nothing_and_all() -> None:
    assert figures('tessera_gpu_busy_ratio{UUID="G"} 7')["G"].busy == 1.0
    assert figures('tessera_gpu_busy_ratio{UUID="G"} -7')["G"].busy == 0.0


def node(name: str, count: int) -> tuple[GpuRow, ...]:
    devices = [{"uuid": f"{name}-{at}", "index": at, "memoryMiB": 1000, "product": "A100"} for at in range(count)]
    return gpus([observed(name, devices=devices)], {})


def test_a_row_has_health_holders_and_figures() -> None:
    sick = {"state": "Unhealthy", "reasons": ["XID 79"], "repair": "RebootWanted"}
    cut = {"instances": [{"uuid": "MIG-1"}]}
    devices = [
        {"uuid": "B", "index": 1, "memoryMiB": 1000, "product": "A100", "health": sick},
        {"uuid": "A", "index": 0, "memoryMiB": 1000, "product": "A100", "mode": "mig", "mig": cut},
    ]
    holders = [
        {"device": "MIG-1", "namespace": "team", "pod": "p"},
        {"device": "A::3", "namespace": "team", "pod": "q"},
        {"device": "C", "namespace": "team", "pod": "r"},
    ]
    nodes = [observed("n", devices=devices, holders=holders)]
    first, second = gpus(nodes, {"A": Figures(busy=0.004, used_mib=500.0)})
    assert (first.index, first.mode, first.health, first.holders) == (0, "mig", "Healthy", ("team/p", "team/q"))
    assert (first.repair, second.repair) == ("", "RebootWanted")
    assert (second.is_well, second.reasons, second.holders, second.busy) == (False, ("XID 79",), (), NONE.busy)
    found = totals((first, second))
    assert (found.nodes, found.gpus, found.fault, found.in_use, found.idle) == (1, 2, 1, 1, 1)
    assert found.busy == pytest.approx(0.004)
    assert totals(()).busy is None
    assert totals(gpus(nodes, {"A": Figures(busy=0.01)})).idle == 0
    assert totals(gpus(nodes, {"B": Figures(busy=0.0)})).idle == 0


def test_a_gpu_of_a_node_that_takes_no_pods_is_not_free() -> None:
    found = totals(gpus([observed("n", devices=[{"uuid": "A", "index": 0}])], {}, away={"n"}))
    assert (found.free, found.off) == (0, 1)


def test_nodes_come_by_name() -> None:
    found = gpus([observed(name, devices=[{"uuid": name, "index": 0}]) for name in ("b", "a")], {})
    assert [row.node for row in found] == ["a", "b"]


def test_queues_add_up_their_flavors_and_leave_out_what_is_no_device() -> None:
    def flavor(name: str, gpu: str) -> dict[str, object]:
        resources = [{"name": "nvidia.com/gpu", "nominalQuota": gpu}, {"name": "cpu", "nominalQuota": "9"}]
        return {"name": name, "resources": resources}

    used = [{"name": "a", "resources": [{"name": "nvidia.com/gpu", "total": "3"}, {"name": "cpu", "total": "x"}]}]
    queue = {
        "metadata": {"name": "q"},
        "spec": {"cohortName": "c", "resourceGroups": [{"flavors": [flavor("a", "8"), flavor("b", "4")]}]},
        "status": {
            "flavorsReservation": used,
            "pendingWorkloads": 2,
            "conditions": [{"type": "Active", "status": "True"}],
        },
    }
    (row,) = queues([queue])
    assert (row.name, row.cohort, row.state, row.pending, row.admitted) == ("q", "c", "open", 2, 0)
    assert row.devices == {"nvidia.com/gpu": ("3", "12")}
    states = [
        queues([{"metadata": {"name": "q"}, "spec": spec, "status": status}])[0].state
        for spec, status in (
            ({"stopPolicy": "Hold"}, None),
            ({"stopPolicy": "HoldAndDrain"}, {}),
            ({}, {"conditions": [{"type": "Active", "status": "False"}]}),
            (None, None),
        )
    ]
    assert states == ["stopped", "draining", "inactive", "not seen yet"]


def told(fleet: Fleet, *, height: int | None = None, by: str = "auto", width: int = 160) -> list[str]:
    """The screen as rich records it."""
    recorder = Console(width=width, record=True, no_color=True, file=io.StringIO())
    recorder.print(screen(fleet, height=height, by=by, width=width))
    return [line.rstrip() for line in recorder.export_text().splitlines()]


def fleet(rows: tuple[GpuRow, ...], *notes: str) -> Fleet:
    (queue,) = queues([{"metadata": {"name": "q"}}])
    return Fleet(at="now", gpus=rows, queues=(queue,), notes=notes)


def test_each_gpu_has_a_line_while_there_is_room_and_each_node_after_that() -> None:
    rows = (*node("a", 4), *node("b", 4))
    wide = told(fleet(rows), height=40)
    assert wide[0] == "now  2 nodes, 8 GPUs: 0 in use"
    assert [line.split()[:2] for line in wide[3:5]] == [["a", "0"], ["1", "A100"]]
    low = told(fleet(rows), height=12)
    assert low[1] == "Nodes"
    assert [line.split()[:2] for line in low[3:5]] == [["a", "4"], ["b", "4"]]
    assert told(fleet(rows), height=12, by="gpu")[7] == "... 4 more GPUs"
    assert len(told(fleet(rows), by="gpu")) == 1 + 2 + 8 + 3


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("height", [14, 24, 50])
def test_the_screen_is_never_higher_than_the_terminal_however_narrow_it_is(height: int, width: int) -> None:
    rows = tuple(row for name in range(30) for row in node(f"a-node-with-a-long-name-{name:02}", 8))
    for by in ("auto", "gpu", "node"):
        shown = told(fleet(rows, "a note that is longer than the lines"), height=height, by=by, width=width)
        assert len(shown) <= height
        assert max(map(len, shown)) <= width


def test_notes_stand_below_and_an_empty_fleet_is_told() -> None:
    lines = told(fleet((), "figures are not shown: \x1b[2Jno"))
    assert lines[1] == "No GpuNode has GPUs."
    assert lines[-1] == "note: figures are not shown: \\x1b[2Jno"


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, "-"),
        (0.0, "----------   0%"),
        (0.5, "#####-----  50%"),
        (1.0, "########## 100%"),
        (9.0, "########## 100%"),
    ],
)
def test_a_bar_is_as_long_as_its_share(share: float | None, said: str) -> None:
    assert bar(share).plain == said


@pytest.mark.parametrize(("share", "style"), [(0.49, "green"), (0.5, "yellow"), (0.84, "yellow"), (0.85, "red")])
def test_a_bar_changes_its_colour_with_its_share(share: float, style: str) -> None:
    assert bar(share).spans[0].style == style


HOLDER = "research/evaluation-bjw6b"


def held_fleet() -> Fleet:
    name = "NVIDIA H100 80GB HBM3"
    devices = [{"uuid": f"G{at}", "index": at, "memoryMiB": 81559, "product": name} for at in range(4)]
    space, _, pod = HOLDER.partition("/")
    holders = [{"device": f"G{at}", "namespace": space, "pod": pod} for at in range(4)]
    measured = Figures(busy=0.5, used_mib=1024.0, power_w=400.0, temperature_c=60.0)
    nodes = [observed("gpu-node-1", devices=devices, holders=holders)]
    rows = gpus(nodes, {f"G{at}": measured for at in range(4)})
    return msgspec.structs.replace(fleet(rows), at="2026-11-29 06:10:09")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_on_a_narrow_screen_bars_go_before_numbers_and_names(width: int) -> None:
    shown = told(held_fleet(), height=24, by="gpu", width=width)
    (first, *_) = (line for line in shown if line.startswith("gpu-node-1"))
    assert first.endswith(HOLDER)
    assert "50%" in first
    assert "#" not in first
    assert max(map(len, shown)) <= width
    assert "#####-----  50%" in "".join(told(held_fleet(), height=24, by="gpu"))


def test_the_title_of_a_narrow_screen_says_which_columns_have_no_room() -> None:
    title = next(line for line in told(held_fleet(), height=24, by="gpu", width=60) if line.startswith("GPUs"))
    assert title.startswith("GPUs, without ")
    assert "holders" not in title
    assert "holders" in next(line for line in told(held_fleet(), height=24, by="gpu", width=42) if "GPUs," in line)


@pytest.mark.parametrize("width", [40, 60])
def test_no_word_of_the_first_line_is_cut(width: int) -> None:
    shown = " ".join(told(held_fleet(), height=24, by="gpu", width=width))
    assert "1 node, 4 GPUs: 4 in use, 50% busy" in shown
