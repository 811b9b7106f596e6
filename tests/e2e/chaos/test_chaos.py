"""A slice of a campaign holds, and each invariant that is broken on purpose is reported."""

import os
import re
from collections.abc import Iterator

import pytest

from hack.chaos.__main__ import main
from hack.chaos.plants import PLANTS
from hack.chaos.world import World
from hack.cluster.programs import binaries

_ALONE = pytest.mark.alone("its faults are timed, and a calm is 60 s")
_BROKEN = pytest.mark.history(
    allow={
        "one-device-two-hands",
        "destroyed-while-held",
        "reset-while-held",
        "over-quota",
        "ran-without-admission",
        "released-early",
        "forgotten",
        "half-gang",
        "out-of-order",
    },
    why="invariants are broken on purpose; a campaign judges a record of its own",
)
pytestmark = [pytest.mark.e2e, _ALONE, _BROKEN]

SEED = 19
LAST = re.compile(
    r"chaos: seed (\d+), (\d+) kills, (\d+) kinds of fault, "
    r"(\d+) lost, (\d+) doubled, (\d+) over quota, (\d+) unsettled"
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    for program in ("kubernetes", "containerd", "helm"):
        binaries.build(program)
    with World.up(f"chaos-{os.getpid()}", SEED, print) as world:
        yield world


def counts(capsys: pytest.CaptureFixture[str]) -> tuple[int, ...]:
    """Of the last line."""
    found = LAST.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert found
    return tuple(map(int, found.groups()))


def test_three_minutes_of_faults_break_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--seed", str(SEED), "--minutes", "3"], world)
    seed, kills, kinds, *broken = counts(capsys)
    assert (code, seed, broken) == (0, SEED, [0, 0, 0, 0])
    assert kills >= 5
    assert kinds >= 5
    assert world.load.submitted > 10
    heard = {"PodResources", "NodePrepareResources", "hardware"}
    assert world.verdicts.heard >= heard, "nothing had a GPU: nothing was looked at"


@pytest.mark.parametrize(("plant", "place"), [(name, place) for place, name in enumerate(PLANTS)])
def test_an_invariant_that_is_broken_on_purpose_is_reported(
    world: World, capsys: pytest.CaptureFixture[str], plant: str, place: int
) -> None:
    world.clear()
    code = main(["--minutes", "0", "--plant", plant, "--calm", "12"], world)
    _, kills, kinds, *broken = counts(capsys)
    assert (code, kills, kinds) == (1, 0, 0)
    assert broken[place] > 0
