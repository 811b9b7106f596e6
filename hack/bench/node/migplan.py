"""How long a MIG plan takes: ``python -m hack.bench migplan``.

Every set of instances that can stand on a board, against every layout that fits on it, with instances in use here and
there: a sample of all pairs, CPU time of each, the worst named.
"""

import gc
import random
import time
from collections.abc import Iterator, Sequence

from hack.bench.table import Row, show
from inventory.devices import Engines, MigProfile
from inventory.mig.parts import Part
from inventory.mig.plan import Compute, Existing, plan
from simulator.boards.boards import Product
from simulator.boards.products import PRODUCTS

BOARDS = ("NVIDIA A100-SXM4-80GB", "NVIDIA A30", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200")
PAIRS = 3000
LIMIT_MS = 10

Placed = tuple[tuple[str, int], ...]
"""(profile, first slice), ascending."""


def profiles_of(board: Product) -> tuple[MigProfile, ...]:
    return tuple(
        MigProfile(
            name=profile.name,
            profile_id=profile.id,
            slices=profile.slices,
            size=profile.size,
            starts=profile.starts,
            max_count=profile.count,
            memory_mib=profile.memory_mib,
            multiprocessors=profile.sms,
            engines=Engines(copy=profile.copy_engines, decoder=profile.decoders, jpeg=profile.jpegs, ofa=profile.ofas),
        )
        for profile in board.mig
    )


def stands(profiles: Sequence[MigProfile], first: int = 0, count: tuple[str, ...] = ()) -> Iterator[Placed]:
    """Every set of instances that can stand side by side from a slice on, the empty one too."""
    yield ()
    for profile in profiles:
        if count.count(profile.name) == profile.max_count:
            continue
        for start in (start for start in profile.starts if start >= first):
            for rest in stands(profiles, start + profile.size, (*count, profile.name)):
                yield ((profile.name, start), *rest)


def existing(profiles: Sequence[MigProfile], placed: Placed, busy: Sequence[bool]) -> tuple[Existing, ...]:
    by_name = {profile.name: profile for profile in profiles}
    return tuple(
        Existing(gi, name, start, by_name[name].size, (Compute(0, Part(0, by_name[name].slices), held),))
        for gi, ((name, start), held) in enumerate(zip(placed, busy, strict=True))
    )


def measure(board: str, pairs: int, seed: int = 1) -> tuple[Row, ...]:
    """Rows of one board."""
    profiles = profiles_of(PRODUCTS[board])
    layouts = sorted(set(stands(profiles)))
    chance = random.Random(seed)
    times_ms: list[tuple[float, str]] = []
    gc.disable()
    try:
        for _ in range(pairs):
            there, wanted = chance.choice(layouts), chance.choice(layouts)
            share = chance.random()
            found = existing(profiles, there, [chance.random() < share for _ in there])
            texts = [name for name, _ in wanted]
            started = time.process_time()
            answer = plan(profiles, found, texts)
            took_ms = (time.process_time() - started) * 1e3
            told = f"{type(answer).__name__}, {' '.join(name for name, _ in there)} -> {' '.join(texts)}"
            times_ms.append((took_ms, told))
    finally:
        gc.enable()
    times_ms.sort()
    worst_ms, what = times_ms[-1]
    middle_ms = times_ms[len(times_ms) // 2][0]
    return (
        Row(f"{board}: {len(layouts)} sets of instances", f"median {middle_ms:.2f} ms", ""),
        Row("  worst", f"{worst_ms:.2f} ms", f"{LIMIT_MS} ms"),
        Row(f"  of {what[:90]}", "", ""),
    )


def main(pairs: int = PAIRS) -> None:
    show(
        f"MIG plans, {pairs} random pairs a board (CPU time)",
        [row for board in BOARDS for row in measure(board, pairs)],
    )
