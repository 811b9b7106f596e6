"""The command line of campaigns; see the package and docs/chaos.md."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.chaos import schedule as schedules
from hack.chaos.campaign import CALM_S, Campaign, Result
from hack.chaos.faults.kinds import KINDS, KindName
from hack.chaos.plants import PLANTS
from hack.chaos.schedule import Schedule, minimise
from hack.chaos.world import World
from hack.cluster.errors import ClusterError, UsageError
from hack.cluster.programs import binaries

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = """\
examples:
  .venv/bin/python -m hack.chaos --seed 7 --minutes 10
  .venv/bin/python -m hack.chaos --seed 7 --minutes 3 --only kill-agent,kill-etcd
  .venv/bin/python -m hack.chaos --seed 7 --minutes 10 --dense      a kill every two or three seconds
  .venv/bin/python -m hack.chaos --minutes 0 --plant doubled        an invariant is broken: exits with 1
  .venv/bin/python -m hack.chaos --replay build/chaos-7.json        what a failed campaign wrote
  .venv/bin/python -m hack.chaos --replay build/chaos-7.json --minimise
  .venv/bin/python -m hack.chaos --seed 7 --minutes 10 --show       the schedule alone, nothing is started
"""


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.chaos",
        description="Seeded faults on a real cluster under load. Exits with 1 where an invariant did not hold.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--seed", type=int, default=1, help="of schedule and load (default: 1)")
    options.add_argument("--minutes", type=float, default=3.0, help="of faults; set-up and calms apart (default: 3)")
    options.add_argument("--only", default="", metavar="KIND,...", help=f"these kinds of fault: {', '.join(KINDS)}")
    options.add_argument("--dense", action="store_true", help="kills every two or three seconds")
    options.add_argument("--plant", choices=tuple(PLANTS), default="", help="break this invariant on purpose")
    options.add_argument("--calm", type=float, default=CALM_S, metavar="S", help="seconds a calm lasts at most")
    options.add_argument("--replay", type=Path, metavar="FILE", help="the schedule that a failed campaign wrote")
    options.add_argument("--minimise", action="store_true", help="of a failed campaign, look for the fewest acts")
    options.add_argument("--show", action="store_true", help="print the schedule, start nothing")
    options.add_argument("-o", "--output", choices=("text", "json"), default="text", help="of the result")
    return options


def main(words: Sequence[str] | None = None, world: World | None = None) -> int:
    """Exit code: 0 all held, 1 not, 2 the call or the machine cannot do it. ``world``: one that is up already."""
    options = parser().parse_args(words)
    try:
        schedule = _schedule(options)
        if options.show:
            sys.stdout.write(schedules.encode(schedule).decode() + "\n")
            return 0
        if world is not None:
            return _run(options, schedule, world)
        for program in ("kubernetes", "containerd", "helm"):
            binaries.build(program)
        with World.up("chaos", schedule.seed, _say) as made:
            return _run(options, schedule, made)
    except ClusterError as error:
        _say(str(error))
        return 2 if isinstance(error, UsageError) else 1


def _schedule(told: argparse.Namespace) -> Schedule:
    """UsageError for words that cannot be."""
    if not 0 <= told.minutes <= schedules.MAX_MINUTES:
        raise UsageError(f"--minutes: found {told.minutes}, expected 0 to {schedules.MAX_MINUTES:.0f}")
    if not 0 < told.calm <= CALM_S:
        raise UsageError(f"--calm: found {told.calm}, expected more than 0 and at most {CALM_S:.0f} seconds")
    only = [KindName(name) for name in told.only.split(",") if name]
    if unknown := [name for name in only if name not in KINDS]:
        raise UsageError(f"--only: found {unknown[0]!r}, expected kinds of fault: {', '.join(KINDS)}")
    if told.replay is None:
        return schedules.draw(told.seed, told.minutes, only, schedules.DENSE if told.dense else schedules.USUAL)
    try:
        return schedules.decode(told.replay.read_bytes())
    except (OSError, ValueError) as wrong:
        raise UsageError(f"{told.replay}: {wrong}") from None


def _run(told: argparse.Namespace, schedule: Schedule, world: World) -> int:
    campaign = Campaign(world, _say, told.calm)
    result = campaign.run(schedule, told.plant)
    if result.failed and schedule.acts and not told.plant:
        _keep(schedule)
        folder = ROOT / "build" / f"chaos-{schedule.seed}"
        world.keep(folder)
        _say(f"logs and objects: {folder.relative_to(ROOT)}")
        if told.minimise:
            _keep(_smallest(campaign, schedule), "-smallest")
    _tell(result, told.output)
    return 1 if result.failed else 0


def _smallest(campaign: Campaign, schedule: Schedule) -> Schedule:
    """Replays parts of the schedule, each in a world without anything of the part before."""

    def fails(places: Sequence[int]) -> bool:
        campaign.world.clear()
        campaign.say(f"minimise: {len(places)} of {len(schedule.acts)} acts")
        return campaign.run(schedule.keep(places)).failed

    return schedule.keep(minimise(range(len(schedule.acts)), fails))


def _keep(schedule: Schedule, mark: str = "") -> None:
    path = ROOT / "build" / f"chaos-{schedule.seed}{mark}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(schedules.encode(schedule))
    _say(f"replay: .venv/bin/python -m hack.chaos --replay {path.relative_to(ROOT)}")


def _tell(result: Result, output: str) -> None:
    if output == "json":
        findings = result.found
        counts = {
            "lost": sorted(findings.lost),
            "doubled": sorted(findings.doubled),
            "overQuota": sorted(findings.over_quota),
            "unsettled": sorted(findings.unsettled),
        }
        body = {"seed": result.seed, "kills": result.kills, "faults": dict(sorted(result.done.items())), **counts}
        sys.stdout.write(json.dumps(body, indent=1) + "\n")
    else:
        sys.stdout.write(result.last_line + "\n")
    sys.stdout.flush()


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
