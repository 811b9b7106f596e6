"""Claims about the benchmark of fragmentation: same traces for all, and the node chosen for what is left does matter."""

from hack.bench.fragmentation import GPUS, NODES, Fleet, allocated, trace


def test_a_trace_is_the_same_for_everybody_and_ends_when_somebody_finds_no_room() -> None:
    assert trace(1, 50) == trace(1, 50)
    counts = [
        allocated(fleet, trace(1)) for fleet in (Fleet(packs=True), Fleet(packs=False, prefers=lambda free: -free))
    ]
    assert all(0 < count <= NODES * GPUS for count in counts)
    assert counts[0] > counts[1]
