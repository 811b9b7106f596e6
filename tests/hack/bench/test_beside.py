"""The benchmark beside the peer: calls alternate, and their times are told as they were."""

import asyncio
from pathlib import Path

import pytest

from hack.bench.node import beside
from hack.bench.node.beside import Times, in_turn, times_of


def shown(times: Times) -> tuple[float, float]:
    """To the microsecond."""
    return round(times.p50_ms, 3), round(times.p99_ms, 3)


@pytest.mark.parametrize(
    ("taken_s", "p50_ms", "p99_ms"),
    [([0.002] * 10, 2.0, 2.0), ([n / 1000 for n in range(1, 101)], 50.5, 99.0), ([0.001] * 99 + [1.0], 1.0, 1.0)],
)
def test_of_a_hundred_calls_the_p99_is_the_longest_but_one(taken_s: list[float], p50_ms: float, p99_ms: float) -> None:
    assert shown(times_of(taken_s)) == (p50_ms, p99_ms)


async def test_calls_come_in_turn_and_those_that_warm_up_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    clock = {"now_s": 0.0}
    monkeypatch.setattr("time.perf_counter", lambda: clock["now_s"])

    def call(name: str, took_s: float) -> beside.Call:
        async def work() -> None:
            made.append(name)
            # The first two of each are slow.
            clock["now_s"] += took_s * (100 if made.count(name) <= 2 else 1)
            await asyncio.sleep(0)

        return work

    found = await in_turn({"one": call("one", 0.001), "other": call("other", 0.004)}, 20, pause_s=0)
    assert made == ["one", "other"] * 22
    assert (shown(found["one"]), shown(found["other"])) == ((1.0, 1.0), (4.0, 4.0))


def test_folders_that_were_not_there_are_named_so_that_they_can_go(tmp_path: Path) -> None:
    made = beside._made(tmp_path / "kubelet" / "device-plugins")
    assert made == [tmp_path / "kubelet" / "device-plugins", tmp_path / "kubelet"]
    assert made[0].is_dir()
    assert beside._made(made[0]) == []
