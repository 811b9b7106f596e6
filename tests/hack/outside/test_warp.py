"""The loop of stories: time passes where nothing else can happen, and nowhere else."""

import asyncio
import time

import pytest

from hack.outside import warp


def test_a_wait_of_an_hour_takes_no_time_and_is_an_hour_by_every_clock() -> None:
    async def waits() -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        before = (time.time(), time.monotonic(), loop.time())
        await asyncio.sleep(3600.0)
        after = (time.time(), time.monotonic(), loop.time())
        return tuple(new - old for old, new in zip(before, after, strict=True))  # type: ignore[return-value]

    assert warp.run(waits()) == pytest.approx((3600.0, 3600.0, 3600.0))
    assert time.time() < warp.EPOCH_S + 1e9, "the machine's own clock again"


def test_computing_takes_no_time() -> None:
    async def computes() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(100):
            sum(range(1000))
            await asyncio.sleep(0)
        return loop.time() - began_s

    assert warp.run(computes()) == 0.0


def test_timers_come_in_their_order_and_an_answer_by_a_socket_before_any_of_them() -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def asks() -> list[str]:
        order: list[str] = []
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, order.append, "later")
        loop.call_later(1.0, order.append, "soon")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"answer\n")
        order.append((await reader.readline()).decode().strip())
        writer.close()
        await asyncio.sleep(3.0)
        server.close()
        return order

    assert warp.run(asks()) == ["answer", "soon", "later"]


def test_time_stands_still_while_a_thread_works() -> None:
    async def works() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_later(0.001, order.append, "timer")
        # A real wait: what is shown is that the clock of stories does not see it.
        await asyncio.to_thread(time.sleep, 0.05)
        order.append("thread")
        await asyncio.sleep(1.0)
        return order

    assert warp.run(works()) == ["thread", "timer"]


def test_the_same_story_is_told_in_the_same_moments_each_time() -> None:
    async def moments() -> list[float]:
        event, seen = asyncio.Event(), []
        loop = asyncio.get_running_loop()
        loop.call_later(0.7, event.set)
        for pause_s in (0.3, 0.1, 0.5):
            await asyncio.sleep(pause_s)
            seen.append(loop.time())
        await event.wait()
        return [*seen, loop.time()]

    assert warp.run(moments()) == warp.run(moments())
