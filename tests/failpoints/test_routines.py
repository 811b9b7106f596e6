"""What a process does by itself is right after the next process has done it, wherever the one before was killed."""

import asyncio
from pathlib import Path

import pytest

from kube.client import Client
from kube.testing import FakeApiServer, eventually
from tests.support.failpoints.deaths import Deaths
from tests.support.failpoints.routines import ROUTINES, Routine, Scene


async def lived(scene: Scene, routine: Routine, deaths: Deaths) -> bool:
    """One process does it. Whether it came to the end."""
    scene.lives += 1
    async with Client(scene.server.config) as client:
        task = asyncio.ensure_future(routine.run(scene, client))

        def over() -> bool:
            scene.clock.advance(routine.step_s)
            return task.done() or deaths.is_dead

        await eventually(over)
        if not deaths.is_dead:
            await task
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return False


@pytest.mark.parametrize("routine", ROUTINES, ids=lambda routine: routine.name.replace(" ", "-"))
async def test_wherever_a_process_is_killed_the_next_one_comes_to_the_end(
    routine: Routine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = Deaths(monkeypatch)
    for number, point in enumerate(routine.points):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        async with FakeApiServer() as server:
            scene = Scene(server, folder)
            deaths.life()
            routine.before(scene)
            deaths.life(point)
            assert not await lived(scene, routine, deaths), f"never came to {point}"
            deaths.life()
            assert await lived(scene, routine, deaths)
            assert routine.right(scene), f"not as it should be after a death at {point}"
