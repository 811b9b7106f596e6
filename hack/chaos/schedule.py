"""What is done when: drawn from a seed alone, so that the same seed gives the same schedule. Pure.

A schedule is bursts of acts; a burst lasts two to three minutes, or what is left, and a calm follows each. Two lanes
run side by side: kills every few seconds, and faults of the other kinds. Two acts never have the same target at once.
A dense schedule has its kills closer together, and gives what was killed more time to be up before it is hit again.
"""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from hack.chaos.faults.kinds import CLOCK_STEPS_S, KINDS, Kind, KindName, Target
from hack.chaos.faults.nvmlcalls import NVML_CALLS, NVML_FAILURES

T = TypeVar("T")
BURST_S: Final = (120.0, 180.0)
MAX_MINUTES: Final = 24 * 60.0


class Pace(Struct, frozen=True):
    """``pause_s``: least and most from a kill to the next. ``away_s``: so long a killed process is away at most.
    ``room_s``: from the end of an act to the next with its target.
    """

    pause_s: tuple[float, float]
    away_s: float
    room_s: float


USUAL: Final = Pace((6.0, 14.0), 60.0, 1.0)
DENSE: Final = Pace((1.5, 3.5), 1.5, 4.0)
OTHERS: Final = Pace((2.0, 8.0), 60.0, 1.0)


class Act(Struct, frozen=True):
    """One fault. Seconds from the start of its burst; ``draw`` (0 to 1) decides what the kind leaves open."""

    at_s: float
    kind: KindName
    lasts_s: float
    draw: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.lasts_s

    def chosen(self, among: Sequence[T]) -> T:
        """One of ``among`` by ``draw``. ``among`` is not empty."""
        return among[min(int(self.draw * len(among)), len(among) - 1)]

    def told(self) -> str:
        fails = "{}: {}".format(*self.chosen(NVML_FAILURES))
        what = {"nvml-hangs": f" {self.chosen(NVML_CALLS)}", "nvml-call-fails": f" {fails}"}.get(self.kind, "")
        step = f" {self.chosen(CLOCK_STEPS_S):+.0f} s" if self.kind.startswith("clock-") else ""
        return f"{self.kind}{what}{step} for {self.lasts_s:.1f} s"


class Burst(Struct, frozen=True):
    """Acts in the order of their times. ``lasts_s``: no act begins or ends later."""

    lasts_s: float
    acts: tuple[Act, ...]


class Schedule(Struct, frozen=True):
    seed: int
    bursts: tuple[Burst, ...]

    @property
    def acts(self) -> list[Act]:
        return [act for burst in self.bursts for act in burst.acts]

    def keep(self, places: Collection[int]) -> "Schedule":
        """Only the acts in these places of ``acts``; bursts keep their lengths, those without an act are left out."""
        numbers = iter(range(len(self.acts)))
        kept = [
            Burst(burst.lasts_s, tuple(act for act in burst.acts if next(numbers) in places)) for burst in self.bursts
        ]
        return Schedule(self.seed, tuple(burst for burst in kept if burst.acts))


def draw(seed: int, minutes: float, only: Collection[KindName] = (), pace: Pace = USUAL) -> Schedule:
    """The schedule of ``minutes`` of faults; ``only``: of these kinds, of all where it is empty."""
    chance = random.Random(seed)
    turns = {kind.name: _turns(chance, kind.turns) for kind in KINDS.values()}
    kinds = [kind for kind in KINDS.values() if not only or kind.name in only]
    kills = _Deck(chance, [kind for kind in kinds if kind.kills])
    others = _Deck(chance, [kind for kind in kinds if not kind.kills])
    bursts = []
    left_s = minutes * 60
    while left_s > 0:
        # What would be left over as a stump is part of the last burst.
        drawn_s = round(chance.uniform(*BURST_S), 1)
        lasts_s = left_s if left_s <= BURST_S[1] else min(drawn_s, left_s - BURST_S[0] / 2)
        bursts.append(_burst(chance, round(lasts_s, 1), ((others, OTHERS), (kills, pace)), turns))
        left_s -= lasts_s
    return Schedule(seed, tuple(bursts))


class _Deck:
    """Each kind once in every round, in an order of its own: no kind waits for its luck. A kind that was laid back, as
    it did not fit into its burst, is the next.
    """

    def __init__(self, chance: random.Random, kinds: Sequence[Kind]) -> None:
        self._chance, self._kinds = chance, kinds
        self._next: list[Kind] = []
        self._back: list[Kind] = []

    def __iter__(self) -> Iterator[Kind]:
        """Yield kinds without an end, where there are any. Kinds that were laid back until now come first."""
        self._next, self._back = self._back + self._next, []
        while self._kinds:
            self._next = self._next or self._chance.sample(self._kinds, len(self._kinds))
            yield self._next.pop(0)

    def lay_back(self, kind: Kind) -> None:
        if kind not in self._back:
            self._back.append(kind)


def _turns(chance: random.Random, count: int) -> Iterator[float]:
    """Numbers from 0 to 1, of which each ``count`` in a row fall into another ``count``-th part."""
    while True:
        for part in chance.sample(range(count), count):
            yield (part + chance.uniform(0.01, 0.99)) / count


Lane = tuple[_Deck, Pace]


def _burst(
    chance: random.Random, lasts_s: float, lanes: Iterable[Lane], turns: Mapping[KindName, Iterator[float]]
) -> Burst:
    acts: list[Act] = []
    for deck, pace in lanes:
        now_s = chance.uniform(1, pace.pause_s[1])
        for kind in deck:
            away_s = min(chance.uniform(*kind.lasts_s), pace.away_s)
            act = Act(round(now_s, 1), kind.name, round(away_s, 1), 0.0)
            while (at_s := _free_from(acts, kind, act.at_s, act.lasts_s, pace.room_s)) != act.at_s:
                act = msgspec.structs.replace(act, at_s=round(at_s, 1))
            if act.end_s <= lasts_s:
                acts.append(msgspec.structs.replace(act, draw=round(next(turns[kind.name]), 5)))
            else:
                deck.lay_back(kind)
            if now_s > lasts_s:
                break
            # The lane of kills does not wait for one whose target is busy; that of the others is one after the other.
            now_s = (now_s if kind.kills else max(act.end_s, now_s)) + chance.uniform(*pace.pause_s)
    return Burst(lasts_s, tuple(sorted(acts, key=lambda act: (act.at_s, act.kind))))


def _free_from(acts: Sequence[Act], kind: Kind, at_s: float, lasts_s: float, room_s: float) -> float:
    """The first moment from ``at_s`` on when the kind's targets are free for ``lasts_s``."""
    for act in sorted(acts, key=lambda act: act.at_s):
        near = act.at_s < at_s + lasts_s + room_s and at_s < act.end_s + room_s
        if near and KINDS[act.kind].targets & kind.targets:
            at_s = round(act.end_s + room_s, 1)
    return at_s


def validate(schedule: Schedule) -> None:
    """AssertionError where two acts have one target at once, or an act is outside of its burst."""
    for burst in schedule.bursts:
        assert all(act.at_s >= 0 and act.end_s <= burst.lasts_s for act in burst.acts), "an act outside of its burst"
        assert list(burst.acts) == sorted(burst.acts, key=lambda act: (act.at_s, act.kind)), "acts out of order"
        for target in Target:
            mine = [act for act in burst.acts if target in KINDS[act.kind].targets]
            assert all(one.end_s < other.at_s for one, other in pairwise(mine)), f"two acts on {target} at once"


def encode(schedule: Schedule) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schedule), indent=1)


def decode(text: bytes) -> Schedule:
    """A replay file. ValueError, in one line, where it is none."""
    try:
        decoded = msgspec.json.decode(text, type=Schedule)
    except msgspec.MsgspecError as wrong:
        raise ValueError(f"found no schedule ({wrong}), expected what a failed campaign wrote") from None
    if unknown := [act.kind for act in decoded.acts if act.kind not in KINDS]:
        raise ValueError(f"kind: found {unknown[0]!r}, expected one of {', '.join(KINDS)}")
    try:
        validate(decoded)
    except AssertionError as wrong:
        raise ValueError(f"acts: {wrong}") from None
    return decoded


def minimise(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """The smallest part of a failing list that still fails, by Zeller's ddmin.

    ``fails`` holds for it, and held for none of its sublists with one item less. ``fails(items)`` is taken as known. A
    trial that fails by luck alone keeps too much, never too little.
    """
    smallest, parts = list(items), 2
    while len(smallest) > 1:
        size = -(-len(smallest) // parts)
        chunks = [range(start, min(start + size, len(smallest))) for start in range(0, len(smallest), size)]
        rests = ([item for at, item in enumerate(smallest) if at not in chunk] for chunk in chunks)
        smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            smallest, parts = smaller, max(parts - 1, 2)
        elif parts >= len(smallest):
            break
        else:
            parts = min(parts * 2, len(smallest))
    return [] if len(smallest) == 1 and fails([]) else smallest
