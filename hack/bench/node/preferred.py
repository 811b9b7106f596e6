"""How long a preferred allocation takes: ``python -m hack.bench.node.preferred``.

Three parts: the products people own, arbitrary links up to 12 GPUs, arbitrary links on 13 to 16. Each request is timed
twice: on tables that are filled (as they are a moment after the agent's start) and cold (on new tables, as the very
first request). Figures are of this machine; those of go-gpuallocator (16 GPUs) were taken once on 2 loaded cores.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from inventory.links import Link, PcieLevel, ScoreMatrix, scores
from inventory.preference.partition import ScoreTable

# Seconds by size, all 16 available.
GPUALLOCATOR_16_GPUS_S = {2: 15.0, 4: 18.0, 5: 44.0, 6: 8.4, 8: 0.061}
REQUESTS = 40
SEEDS = 3
WORST_N = 16

Question = tuple[int, int, int]
"""Available and required as masks, and the size."""


class Timing(Struct, frozen=True):
    """Milliseconds over a set of requests."""

    median: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        ordered = sorted(seconds)
        return cls(statistics.median(ordered) * 1e3, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3)

    def __str__(self) -> str:
        return f"{self.median:7.3f} {self.p99:7.3f}"


def box(n: int, place: Callable[[int, int], PcieLevel], *, direct: int = 0, switch: int = 0) -> ScoreMatrix:
    """A machine by its PCIe tree; ``direct`` NVLinks join neighbours 0-1, 2-3 ..., ``switch`` lanes join all."""
    return scores(
        [
            [Link(pcie=place(i, j), nvlinks=direct if i // 2 == j // 2 else 0, nvswitch=switch) for j in range(n)]
            for i in range(n)
        ]
    )


def by_width(*widths: tuple[int, PcieLevel]) -> Callable[[int, int], PcieLevel]:
    """GPUs that share a group of the first width that joins them are at its level; all others are across sockets."""
    return lambda i, j: next((level for width, level in widths if i // width == j // width), PcieLevel.SYS)


PAIRS = by_width((2, PcieLevel.PIX), (4, PcieLevel.NODE))
SOCKETS = by_width((4, PcieLevel.NODE))
# Hybrid cube mesh of 8 V100: how many links join each pair (each GPU has six).
CUBE_MESH = {
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
}


def cube_mesh() -> ScoreMatrix:
    place = by_width((2, PcieLevel.PIX), (4, PcieLevel.PHB))
    return scores(
        [[Link(pcie=place(i, j), nvlinks=CUBE_MESH.get((min(i, j), max(i, j)), 0)) for j in range(8)] for i in range(8)]
    )


PRODUCTS: dict[str, ScoreMatrix] = {
    "A100-SXM4 x8, NVSwitch": box(8, PAIRS, switch=12),
    "A30 x4, PCIe": box(4, SOCKETS),
    "H100, H200, B200 x8, NVSwitch": box(8, SOCKETS, switch=18),
    "GB200 x4, NVSwitch": box(4, by_width((2, PcieLevel.NODE)), switch=18),
    "L40S, T4 x8, PCIe": box(8, PAIRS),
    "RTX A6000 x8, bridged pairs": box(8, PAIRS, direct=4),
    "V100-SXM2 x8, cube mesh": cube_mesh(),
    "V100-SXM3 x16, NVSwitch": box(16, by_width((2, PcieLevel.PIX), (4, PcieLevel.PXB), (8, PcieLevel.NODE)), switch=6),
}


def arbitrary(n: int, seed: int) -> ScoreMatrix:
    """Every pair differs: no two sets are alike, the worst case for the search."""
    numbers = random.Random(seed)
    pair = {frozenset(two): numbers.randrange(10, 1860) for two in itertools.combinations(range(n), 2)}
    return tuple(tuple(0 if i == j else pair[frozenset((i, j))] for j in range(n)) for i in range(n))


def questions(n: int, size: int, seed: int, count: int = REQUESTS) -> Iterator[Question]:
    """The full node first, then random availability with nothing, one or two GPUs required."""
    numbers = random.Random(seed)
    yield (1 << n) - 1, 0, size
    for _ in range(count - 1):
        free = numbers.sample(range(n), numbers.randint(size, n))
        required = numbers.sample(free, min(size, numbers.choice([0, 0, 1, 2])))
        yield sum(1 << i for i in free), sum(1 << i for i in required), size


def filled(matrix: ScoreMatrix) -> tuple[ScoreTable, float, float]:
    """A filled table, the milliseconds it took, and the longest slice."""
    begun = time.perf_counter()
    table = ScoreTable(matrix)
    last, longest = time.perf_counter(), 0.0
    for _ in table.fill():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return table, (time.perf_counter() - begun) * 1e3, longest * 1e3


def timed(table: ScoreTable, question: Question) -> float:
    begun = time.perf_counter()
    assert table.choose(*question).exact
    return time.perf_counter() - begun


def warm_and_cold(matrix: ScoreMatrix, size: int, seed: int) -> tuple[list[float], list[float]]:
    n = len(matrix)
    table, _, _ = filled(matrix)
    asked = list(questions(n, size, seed))
    return [timed(table, question) for question in asked], [timed(ScoreTable(matrix), question) for question in asked]


def show_products() -> None:
    print("Products: ms a request by size, median and p99 over availabilities; tables filled | cold")
    for name, matrix in PRODUCTS.items():
        table, took, longest = filled(matrix)
        print(f"{name}: filled in {took:.1f} ms, longest slice {longest:.1f} ms, {table.memory_bytes / 1024:.0f} KiB")
        for size in range(1, len(matrix) + 1):
            asked = list(questions(len(matrix), size, size))
            warm = Timing.of([timed(table, question) for question in asked])
            cold = Timing.of([timed(ScoreTable(matrix), question) for question in asked[: 320 // len(matrix)]])
            print(f"  size {size:2}  {warm} | {cold}")


def show_small() -> None:
    print("Arbitrary links, 2 to 12 GPUs: the worst median and p99 of any size; tables filled | cold")
    for n in range(2, WORST_N - 3):
        warm_worst, cold_worst = [], []
        for size in range(1, n + 1):
            runs = [warm_and_cold(arbitrary(n, seed), size, seed) for seed in range(SEEDS)]
            warm_worst.append(Timing.of([seconds for warm, _ in runs for seconds in warm]))
            cold_worst.append(Timing.of([seconds for _, cold in runs for seconds in cold]))
        print(
            f"  {n:2} GPUs  {max(t.median for t in warm_worst):7.3f} {max(t.p99 for t in warm_worst):7.3f}"
            f" | {max(t.median for t in cold_worst):7.3f} {max(t.p99 for t in cold_worst):7.3f}"
        )


def show_large() -> None:
    print("Arbitrary links, 13 to 16 GPUs, all available: ms to the exact answer, worst of seeds; cold | filled")
    for n in range(13, WORST_N + 1):
        matrices = [arbitrary(n, seed) for seed in range(SEEDS)]
        table, took, longest = filled(matrices[0])
        print(f"  {n} GPUs: filled in {took:.0f} ms, longest slice {longest:.1f} ms, {table.memory_bytes >> 10} KiB")
        full = (1 << n) - 1
        for size in range(2, n // 2 + 1):
            cold = max(timed(ScoreTable(matrix), (full, 0, size)) for matrix in matrices) * 1e3
            warm = max(timed(table, question) for question in questions(n, size, size, 10)) * 1e3
            ratio = ""
            if n == WORST_N and size in GPUALLOCATOR_16_GPUS_S:
                published_ms = GPUALLOCATOR_16_GPUS_S[size] * 1e3
                times = f"{published_ms / cold:6.0f}x cold, {published_ms / warm:7.0f}x filled"
                ratio = f"   go-gpuallocator {published_ms:7.0f} ms: {times}"
            print(f"    size {size:2}  {cold:7.1f} | {warm:7.3f}{ratio}")


def main() -> None:
    show_products()
    show_small()
    show_large()


if __name__ == "__main__":
    main()
