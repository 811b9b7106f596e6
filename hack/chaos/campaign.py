"""One campaign on a world: bursts of acts under load, a calm after each, and what was found."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hack.chaos.api import AwayError, RefusedError
from hack.chaos.faults.begins import BEGINS
from hack.chaos.faults.processes import Heal
from hack.chaos.invariants import Findings, judge, last_line
from hack.chaos.plants import PLANTS
from hack.chaos.schedule import Act, Burst, Schedule
from hack.chaos.verdicts import JUDGED_S
from hack.chaos.world import World
from hack.cluster.errors import ClusterError

CALM_S: Final = 60.0
LOOK_S: Final = 2.0
LATER_S: Final = 120.0
Say = Callable[[str], None]


@dataclass
class Result:
    seed: int
    kills: int = 0
    done: Counter[str] = field(default_factory=Counter)
    """Acts by kind."""
    found: Findings = field(default_factory=Findings)

    @property
    def failed(self) -> bool:
        return bool(self.found.lines)

    @property
    def last_line(self) -> str:
        return last_line(self.seed, self.kills, len(self.done), self.found)


@dataclass
class Campaign:
    world: World
    say: Say
    calm_s: float = CALM_S

    def run(self, schedule: Schedule, plant: str = "") -> Result:
        """All bursts. ``plant``: this invariant is broken in the last calm."""
        result = Result(schedule.seed)
        before = self.world.kills
        for number, burst in enumerate(schedule.bursts):
            self.say(f"burst {number + 1} of {len(schedule.bursts)}: {len(burst.acts)} acts in {burst.lasts_s:.0f} s")
            self.world.load.resume()
            self._burst(burst, result)
            self.world.load.pause()
            last = number + 1 == len(schedule.bursts)
            result.found |= self._calm(plant if last else "")
            if result.failed:
                break
        if not schedule.bursts:
            result.found |= self._calm(plant)
        result.kills = self.world.kills - before
        for line in result.found.lines:
            self.say(line)
        return result

    def _burst(self, burst: Burst, result: Result) -> None:
        """Begins and ends in the order of their times. What takes its time, as a start does, moves all that follows."""
        start_s = time.monotonic()
        heals: list[tuple[float, Act, Heal]] = []
        acts = list(burst.acts)
        while acts or heals or time.monotonic() < start_s + burst.lasts_s:
            heals.sort(key=lambda each: each[0])
            next_heal_s = heals[0][0] if heals else burst.lasts_s
            next_act_s = acts[0].at_s if acts else burst.lasts_s
            now_s = time.monotonic() - start_s
            if min(next_heal_s, next_act_s) > now_s:
                time.sleep(min(min(next_heal_s, next_act_s) - now_s, LOOK_S))
                self._look(result)
            elif heals and next_heal_s <= next_act_s:
                _, act, heal = heals.pop(0)
                self._heal(act, heal)
                start_s += max(0.0, time.monotonic() - start_s - next_heal_s)
            elif acts:
                act = acts.pop(0)
                self.say(f"{now_s:6.1f} s: {act.told()}")
                with contextlib.suppress(AwayError, RefusedError, ClusterError):
                    heals.append((act.end_s, act, BEGINS[act.kind](self.world, act)))
                    result.done[act.kind] += 1
                start_s += max(0.0, time.monotonic() - start_s - next_act_s)
        self.world.revive()

    def _heal(self, act: Act, heal: Heal) -> None:
        """An end that cannot be now, as while another fault lasts, is made good by ``revive``."""
        try:
            heal()
        except (AwayError, RefusedError, ClusterError, OSError) as error:
            self.say(f"        {act.kind}: its end: {error}")

    def _look(self, result: Result) -> None:
        """During the burst what no fault excuses: a GPU in two hands, quota exceeded, pods that were not admitted."""
        result.found |= self._judged()

    def _judged(self) -> Findings:
        found, late = self.world.judged()
        for line in late:
            self.say(f"        not in time, which a fault excuses: {line}")
        return found

    def _tell_when_settled(self) -> None:
        """It stays a failure; whether it was slow or stuck is what one wants to know first."""
        start_s = time.monotonic()
        while time.monotonic() < start_s + LATER_S:
            with contextlib.suppress(AwayError, RefusedError, OSError):
                if not judge(self.world.seen()).unsettled:
                    self.say(f"settled {time.monotonic() - start_s:.0f} s later")
                    return
            time.sleep(1.0)
        self.say(f"not settled {LATER_S:.0f} s later either")

    def _calm(self, plant: str) -> Findings:
        """Looks until all is settled, for ``calm_s`` at most, and judges the last look, and all of the history: so it
        lasts at least until what was wrong as it began has counted.
        """
        start_s = time.monotonic()
        heal = PLANTS[plant](self.world) if plant else None
        findings, judged = Findings(unsettled={"the API server does not answer"}), Findings()
        while time.monotonic() < start_s + self.calm_s:
            with contextlib.suppress(AwayError, RefusedError, OSError):
                findings = judge(self.world.seen())
                judged |= self._judged()
                counted = time.monotonic() > start_s + JUDGED_S
                if not findings.unsettled and (findings.lines or judged.lines if plant else counted):
                    break
            time.sleep(0.5)
        findings |= judged
        self.say(f"calm after {time.monotonic() - start_s:.0f} s: {len(self.world.load.accepted)} jobs looked at")
        if findings.unsettled and not plant:
            self._tell_when_settled()
        if heal is not None:
            heal()
        if not findings.unsettled:
            with contextlib.suppress(AwayError, RefusedError):
                self.world.load.sweep()
        return findings
