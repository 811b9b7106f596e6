"""What the demos say while something takes its time."""

import threading

import pytest

from hack import show


def test_what_takes_long_is_said_again_and_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    twice = threading.Event()

    def say(line: str) -> None:
        told.append(line)
        if len(told) == 2:
            twice.set()

    monkeypatch.setattr(show, "say", say)
    with show.patience("making the image", every_s=0.001):
        assert twice.wait()
    said = len(told)
    assert all(line.startswith("   ... making the image (") for line in told)
    assert len(told) == said, "nothing is said afterwards"


def test_what_is_quick_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(show, "say", told.append)
    with show.patience("making the image"):
        pass
    assert told == []
