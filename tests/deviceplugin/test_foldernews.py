"""Hints of a folder's changes come at once, also when it is another folder by now; without inotify there are none."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deviceplugin.foldernews import FolderNews
from tests.support.hang import HANG_S


class Heard:
    """News of a folder, counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hints = 0
        self._changed = asyncio.Event()
        self.news = FolderNews(folder, self._hear)

    def _hear(self) -> None:
        self.hints += 1
        self._changed.set()

    async def hint(self) -> bool:
        """Whether one comes."""
        self._changed.clear()
        try:
            async with asyncio.timeout(HANG_S):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    (tmp_path / "folder").mkdir()
    heard = Heard(tmp_path / "folder")
    heard.news.start()
    yield heard
    heard.news.stop()


async def test_a_file_that_comes_and_one_that_goes_is_news(heard: Heard) -> None:
    (heard.folder / "kubelet.sock").touch()
    assert await heard.hint()
    (heard.folder / "kubelet.sock").unlink()
    assert await heard.hint()


async def test_many_changes_at_once_are_one_hint(heard: Heard) -> None:
    for number in range(100):
        (heard.folder / str(number)).touch()
    assert await heard.hint()
    assert heard.hints == 1


async def test_a_folder_in_the_place_of_the_old_one_is_watched_after_the_next_look(heard: Heard) -> None:
    heard.folder.rename(heard.folder.with_name("old"))
    assert await heard.hint()
    heard.folder.mkdir()
    heard.news.renew()
    (heard.folder / "kubelet.sock").touch()
    assert await heard.hint()


async def test_a_folder_that_was_not_there_is_watched_when_it_is(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "later")
    heard.news.start()
    heard.folder.mkdir()
    heard.news.renew()
    (heard.folder / "kubelet.sock").touch()
    assert await heard.hint()
    heard.news.stop()


async def test_where_the_system_refuses_there_are_no_hints_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        @staticmethod
        def inotify_init1(_: int) -> int:
            return -1

    monkeypatch.setattr("deviceplugin.foldernews.ctypes.CDLL", lambda *_, **__: Refusing())
    heard = Heard(tmp_path)
    heard.news.start()
    heard.news.renew()
    heard.news.stop()
    assert heard.hints == 0
