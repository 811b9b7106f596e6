"""What pods used and what nobody used is what the device used: for every figure, every mix of processes, every mode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kubelet.containers import PodContainer
from agent.telemetry.reading.readings import ProcessReading
from agent.telemetry.shares import Attribution, DeviceUse, Figure, attribute, is_active

A, B, C = (PodContainer("team", name, "main") for name in "abc")
amounts = st.floats(0, 1e5, allow_nan=False)
weights = st.floats(0, 400, allow_nan=False)


def process(pid: int, sm: float = 0.0, memory_mib: float | None = 0.0) -> ProcessReading:
    return ProcessReading(pid=pid, sm=sm, memory_mib=memory_mib)


@st.composite
def uses(draw: st.DrawFn) -> DeviceUse:
    pids = draw(st.lists(st.integers(1, 30), unique=True, max_size=8))
    processes = [
        ProcessReading(
            pid=pid,
            memory_mib=draw(st.none() | amounts),
            sm=draw(weights),
            copy=draw(weights),
            encoder=draw(weights),
            decoder=draw(weights),
        )
        for pid in pids
    ]
    return DeviceUse(
        totals=draw(st.dictionaries(st.sampled_from(Figure), amounts)),
        processes=processes,
        owners=draw(st.dictionaries(st.integers(1, 30), st.sampled_from([A, B, C]), max_size=8)),
        holders=tuple(draw(st.lists(st.sampled_from([A, B, C]), unique=True, max_size=3))),
        exclusive=draw(st.booleans()),
        sampled=draw(st.booleans()),
    )


@given(uses())
def test_parts_and_rest_are_the_whole(use: DeviceUse) -> None:
    found = attribute(use)
    found.validate()
    assert found.splits.keys() == use.totals.keys()
    assert all(split.total == use.totals[figure] for figure, split in found.splits.items())
    assert set(use.holders) <= set(found.pods)


def sm(found: Attribution) -> dict[str, float]:
    return {pod.pod: round(part, 6) for pod, part in found.splits[Figure.SM].pods.items()}


def test_a_device_of_ones_own_is_ones_own_in_full() -> None:
    found = attribute(
        DeviceUse({Figure.SM: 70, Figure.POWER_W: 300}, [process(1, 99)], {1: B}, holders=(A,), exclusive=True)
    )
    assert sm(found) == {"a": 70}
    assert found.splits[Figure.POWER_W].pods == {A: 300}
    assert found.active == {A: True}


def test_a_shared_devices_figure_is_divided_by_what_the_processes_did() -> None:
    use = DeviceUse(
        {Figure.SM: 80, Figure.BUSY: 0.8, Figure.POWER_W: 400},
        [process(1, 60), process(2, 30), process(3, 30), process(4, 0)],
        {1: A, 2: B, 3: B, 4: C},
        holders=(A, B, C),
        sampled=True,
    )
    found = attribute(use)
    assert sm(found) == {"a": 40, "b": 40, "c": 0}
    assert found.splits[Figure.SM].unattributed == 0
    assert found.splits[Figure.POWER_W].pods[A] == 200
    assert found.active == {A: True, B: True, C: False}


def test_processes_of_no_pod_are_the_rest() -> None:
    found = attribute(DeviceUse({Figure.SM: 100}, [process(1, 25), process(9, 75)], {1: A}, holders=(A,), sampled=True))
    assert sm(found) == {"a": 25}
    assert found.splits[Figure.SM].unattributed == 75


def test_without_samples_nobody_is_made_up() -> None:
    found = attribute(DeviceUse({Figure.SM: 50}, [process(1, 0)], {1: A}, holders=(A, B)))
    assert found.splits[Figure.SM].pods == {}
    assert found.splits[Figure.SM].unattributed == 50
    assert found.active == {A: None, B: None}


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ({Figure.BUSY: 0.002}, True),
        ({Figure.BUSY: 0.001}, False),
        ({Figure.BUSY: 0.0, Figure.SM: 1}, True),
        ({Figure.BUSY: 0.0, Figure.SM: 0.9, Figure.ENCODER: 0.9}, False),
        ({Figure.ENCODER: 1}, True),
        ({Figure.SM: 0, Figure.DECODER: 1}, True),
        ({Figure.MEMORY_MIB: 500, Figure.POWER_W: 300}, None),
    ],
    ids=str,
)
def test_little_work_is_work_and_figures_that_say_nothing_of_it_are_none(
    totals: dict[Figure, float], expected: bool | None
) -> None:
    assert is_active(totals) is expected


def test_on_a_shared_device_encoding_alone_is_work_too() -> None:
    processes = [ProcessReading(1, encoder=1.0), ProcessReading(2, decoder=1.0), ProcessReading(3, copy=9.0)]
    found = attribute(DeviceUse({}, processes, {1: A, 2: B, 3: C}, holders=(A, B, C), sampled=True))
    assert found.active == {A: True, B: True, C: False}


def test_memory_is_counted() -> None:
    found = attribute(
        DeviceUse({Figure.MEMORY_MIB: 1000}, [process(1, memory_mib=300), process(2, memory_mib=500)], {1: A, 2: B})
    )
    assert found.splits[Figure.MEMORY_MIB].pods == {A: 300, B: 500}
    assert found.splits[Figure.MEMORY_MIB].unattributed == 200


def test_memory_that_two_processes_share_is_not_counted_above_the_device() -> None:
    found = attribute(
        DeviceUse({Figure.MEMORY_MIB: 600}, [process(1, memory_mib=600), process(2, memory_mib=600)], {1: A, 2: B})
    )
    assert found.splits[Figure.MEMORY_MIB].pods == {A: 300, B: 300}


def test_memory_that_the_driver_hides_is_the_rest() -> None:
    found = attribute(DeviceUse({Figure.MEMORY_MIB: 600}, [process(1, memory_mib=None)], {1: A}))
    assert found.splits[Figure.MEMORY_MIB].pods == {}
    assert found.splits[Figure.MEMORY_MIB].unattributed == 600
