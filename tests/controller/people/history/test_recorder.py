"""The record on its volume: one transaction a minute; a damaged file, a full disk and another replica's hours."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.people.history.asked import Asked
from controller.people.history.record import GPU, KEPT_HOURS, HourRow, Of, Sample
from controller.people.history.recorder_shell import ASIDE, FILE, Record, Recorder
from kube.testing.clocks import VirtualClock

USED = Of("queue", "research", "used", GPU)
QUEUE = Asked("queue", "research", 24)


async def nobody(_: int) -> bytes | None:
    return None


class Site:
    def __init__(self, folder: Path, peer: Any = nobody) -> None:
        self.clock = VirtualClock()
        self.record = Record(folder)
        self.amount: float | None = 8.0
        self.recorder = Recorder(self.record, self.sample, self.clock, peer)

    def sample(self) -> Sample | None:
        return None if self.amount is None else {USED: self.amount}

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            await self.recorder.look()
            self.clock.advance(60)

    async def points(self) -> list[float]:
        found = await self.recorder.of(QUEUE, ())
        return [point for line in found["series"] for point in line["points"] if point is not None]


async def test_samples_of_an_hour_are_its_mean_and_outlive_the_process(tmp_path: Path) -> None:
    site = Site(tmp_path)
    began_s = site.clock.wall()
    await site.minutes(10)
    site.amount = 4.0
    await site.minutes(10)
    assert await site.points() == pytest.approx([6.0])
    await site.recorder.close()
    later = Site(tmp_path)
    found = await later.recorder.of(QUEUE, ())
    assert found["configured"]
    assert found["since"] == began_s // 3600 * 3600


async def test_nothing_is_recorded_before_the_replica_knows_anything(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.amount = None
    await site.minutes(3)
    found = await site.recorder.of(QUEUE, ())
    assert (found["since"], found["series"]) == (None, [])


@pytest.mark.parametrize("damage", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
async def test_a_damaged_file_is_set_aside_and_a_new_one_begins(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FILE).write_bytes(damage)
    site = Site(tmp_path)
    await site.minutes(2)
    assert await site.points() == [8.0]
    assert (tmp_path / ASIDE).read_bytes() == damage


async def test_a_file_that_is_damaged_while_it_is_open_is_set_aside(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.minutes(1)
    with (tmp_path / FILE).open("r+b") as file:
        file.write(b"\xff" * 8192)
    site.record.close()
    await site.minutes(3)
    assert await site.points() == [8.0]
    assert (tmp_path / ASIDE).exists()


@pytest.mark.parametrize("table", ["hours (at INTEGER, total REAL)", "done (what TEXT)"])
async def test_a_file_with_other_columns_is_set_aside(tmp_path: Path, table: str) -> None:
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute(f"CREATE TABLE {table}")
    site = Site(tmp_path)
    await site.minutes(2)
    assert await site.points() == [8.0]
    assert (tmp_path / ASIDE).exists()


async def test_a_record_of_a_later_version_is_set_aside(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("PRAGMA user_version = 99")
    site = Site(tmp_path)
    await site.minutes(1)
    assert (tmp_path / ASIDE).exists()


async def test_a_full_disk_keeps_samples_until_there_is_room_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    await site.minutes(1)
    add = site.record.add

    def full(_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(site.record, "add", full)
    site.amount = 2.0
    await site.minutes(3)
    assert len([each for each in caplog.records if "disk is full" in each.message]) == 1
    assert not (tmp_path / ASIDE).exists()
    monkeypatch.setattr(site.record, "add", add)
    await site.minutes(1)
    assert await site.points() == pytest.approx([(8 + 2 * 4) / 5])


async def test_a_folder_that_cannot_be_made_costs_no_more_than_the_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    site = Site(tmp_path / "file" / "below")
    await site.minutes(2)
    found = await site.recorder.of(QUEUE, ())
    assert found["configured"] is False
    assert "cannot be read" in found["why"]


async def test_a_workload_is_not_recorded_and_that_is_said(tmp_path: Path) -> None:
    found = await Site(tmp_path).recorder.of(Asked("workload", "team/job", 24), ())
    assert found["configured"] is False
    assert "Prometheus" in found["why"]


async def test_hours_that_a_replica_missed_are_taken_from_the_one_that_leads_once(tmp_path: Path) -> None:
    first = Site(tmp_path / "first")
    await first.minutes(180)
    asked: list[int] = []

    async def peer(before: int) -> bytes | None:
        asked.append(before)
        return None if len(asked) == 1 else await first.recorder.before(before)

    second = Site(tmp_path / "second", peer)
    second.clock.advance(first.clock.wall() - second.clock.wall())
    await second.minutes(5)
    assert len(asked) == 3, "until it answers, and then until it has no more"
    assert asked[0] == asked[1] > asked[2]
    theirs, ours = await first.recorder.of(QUEUE, ()), await second.recorder.of(QUEUE, ())
    assert ours["since"] == theirs["since"]
    assert len(await second.points()) >= 3


@pytest.mark.parametrize("answer", [b"", b"{}", b'[["x"]]', json.dumps([[1, "a", "b", "c", "d", "e", 1]]).encode()])
async def test_an_answer_that_is_no_record_is_passed_over(tmp_path: Path, answer: bytes) -> None:
    async def peer(_: int) -> bytes | None:
        return answer

    site = Site(tmp_path, peer)
    await site.minutes(2)
    assert await site.points() == [8.0]


def hours(first: int, count: int, names: int = 1) -> list[HourRow]:
    return [
        HourRow(hour, Of("queue", f"q{name}", "used", GPU), 60.0 * hour, 60)
        for hour in range(first, first + count)
        for name in range(names)
    ]


def test_fourteen_days_are_kept_and_a_clock_that_jumps_ahead_loses_none_of_them(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(hours(1000, KEPT_HOURS + 10))
    rows, _, first = record.read(Asked("queue", "q0", 24))
    assert (len(rows), first) == (KEPT_HOURS, 1010)
    record.add(hours(900_000, 1))
    assert len(record.read(Asked("queue", "q0", 24))[0]) == KEPT_HOURS
    record.close()


def test_a_record_that_is_too_large_is_thinned_from_the_oldest_hours_on(tmp_path: Path) -> None:
    record = Record(tmp_path, most_bytes=200_000)
    for hour in range(1000, 1000 + KEPT_HOURS):
        record.add(hours(hour, 1, names=20))
    assert record.size() < 300_000
    rows, before, _ = record.read(Asked("queue", "q0", 24))
    assert before
    kept = {row.hour for row in rows}
    assert set(range(1000 + KEPT_HOURS - 20, 1000 + KEPT_HOURS)) <= kept, "the newest are whole"
    assert len(kept) < KEPT_HOURS
    for row in rows:
        assert row.total / row.samples == pytest.approx(row.hour, abs=12), "a mean stays the mean of its hours"
    record.close()


def test_what_one_replica_writes_another_reads(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add(hours(1000, 3))
    assert len(msgspec.json.decode(record.before(1003))) == 3
    assert [each[0] for each in msgspec.json.decode(record.before(1002))] == [1000, 1001]
    assert record.before(1000) == b"[]"
    assert record.fill(hours(999, 3)) == 1, "hours that are there are left alone"
    record.close()
