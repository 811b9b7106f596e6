"""Claims about the benchmark of fragmentation: same traces for all, and which node is chosen does matter."""

from hack.bench.decisions.fragmentation import Fleet, allocated, trace

SMALL = (1, 1, 1, 2, 4)


def test_a_trace_is_the_same_for_everybody_and_ends_when_somebody_finds_no_room() -> None:
    assert trace(1, 50) == trace(1, 50)
    packed, spread = Fleet(packs=True, fans=SMALL), Fleet(packs=False, prefers=lambda free: -free, fans=SMALL)
    counts = [allocated(fleet, trace(1, 200)) for fleet in (packed, spread)]
    assert all(0 < count <= packed.gpus for count in counts)
    assert counts[0] > counts[1]
