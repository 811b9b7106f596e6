"""A random story of queues: what somebody writes to the API server, and when. Pure: the same seed, the same story."""

import random
from collections.abc import Iterator
from typing import Final

from hack.outside import setting as settings
from hack.outside import shapes
from hack.outside.acts import CHECK, PRIORITIES, PRIORITY, QUEUE, SPACES, Act, Json, Story
from hack.outside.endings import ending
from hack.outside.priced import Pricing, is_priced
from hack.outside.setting import Queue

_ACTS_EVERY_S: Final = 0.35
_MOMENT_S: Final = (0.2, 2.0)


def told(seed: int, lasts_s: float) -> Story:
    """``lasts_s``: until its last act before the ending."""
    rng = random.Random(seed)
    setting = settings.drawn(rng)
    pricing = Pricing(seed) if is_priced(seed) else None
    setting = pricing.dated(setting) if pricing is not None else setting
    teller = _Teller(rng, setting)
    acts = [*settings.beginning(setting), *teller.going_on(lasts_s)]
    acts += ending(rng, setting, teller.jobs, lasts_s)
    acts = list(pricing.told(acts, setting, lasts_s)) if pricing is not None else acts
    return Story(seed, setting.fair, tuple(sorted(acts, key=lambda each: each.at_s)), tessera=pricing is not None)


class _Teller:
    """Draws what happens. ``jobs``: namespace and name of all Jobs so far; ``_loose``: those of queues that are not
    calm, which alone anything is done to.
    """

    def __init__(self, rng: random.Random, setting: settings.Setting) -> None:
        self._rng = rng
        self._setting = setting
        self._cpus = bool(setting.cpus)
        self._busy = setting.busy()
        self._locals = [(space, each.name) for each in self._busy for space in each.spaces]
        self.jobs: list[tuple[str, str]] = []
        self._loose: list[tuple[str, str]] = []

    def going_on(self, lasts_s: float) -> Iterator[Act]:
        for queue in self._setting.queues:
            if queue.calm:
                yield from self._line(queue, lasts_s)
        kinds = {
            self._job: 45,
            self._burst: 12,
            self._gone: 8,
            self._requota: 5,
            self._stopped: 6,
            self._moved: 5,
            self._raised: 5,
            self._paused: 7,
            self._answered: 12 if self._setting.checked else 0,
        }
        at_s = 0.2
        while at_s < lasts_s:
            yield from self._rng.choices(tuple(kinds), tuple(kinds.values()))[0](at_s)
            at_s += self._rng.expovariate(1 / _ACTS_EVERY_S)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _line(self, queue: Queue, lasts_s: float) -> Iterator[Act]:
        """Jobs that are all alike, faster than they end, created in different seconds."""
        at_s, shape = 0.3, shapes.alike(3, cpus=self._cpus)
        while at_s < lasts_s:
            yield self._made(at_s, queue.spaces[0], shape, {QUEUE: queue.name})
            at_s += self._rng.uniform(1.05, 1.3)

    def _job(self, at_s: float) -> Iterator[Act]:
        space, queue = self._rng.choice(self._locals)
        shape = shapes.drawn(self._rng, cpus=self._cpus)
        yield self._made(at_s, space, shape, {QUEUE: queue, **self._priority(0.3)}, loose=True)

    def _burst(self, at_s: float) -> Iterator[Act]:
        """One shape many times: more than there is quota for, or a reason to evict several."""
        space, queue = self._rng.choice(self._locals)
        shape, labels = shapes.odd(self._rng, cpus=self._cpus), {QUEUE: queue, **self._priority(0.6)}
        for number in range(self._rng.randint(3, 7)):
            yield self._made(at_s + number * 0.06, space, shape, labels, loose=True)

    def _made(self, at_s: float, space: str, shape: shapes.Shape, labels: Json, *, loose: bool = False) -> Act:
        name = f"job-{len(self.jobs)}"
        self.jobs.append((space, name))
        if loose:
            self._loose.append((space, name))
        return Act(at_s, "create", "Job", name, space, shapes.job(shape, labels))

    def _priority(self, share: float) -> Json:
        return {PRIORITY: self._rng.choice(tuple(PRIORITIES))} if self._rng.random() < share else {}

    # -- changes of jobs -----------------------------------------------------------------------------------------------

    def _any_job(self) -> list[tuple[str, str]]:
        """One or none."""
        return [self._rng.choice(self._loose)] if self._loose else []

    def _gone(self, at_s: float) -> Iterator[Act]:
        for space, name in self._any_job():
            yield Act(at_s, "delete", "Job", name, space)

    def _moved(self, at_s: float) -> Iterator[Act]:
        """To another queue of its namespace: only one that waits goes."""
        for space, name in self._any_job():
            there = [queue for at, queue in self._locals if at == space]
            patch = {"metadata": {"labels": {QUEUE: self._rng.choice(there)}}}
            yield Act(at_s, "merge", "Job", name, space, patch)

    def _raised(self, at_s: float) -> Iterator[Act]:
        for space, name in self._any_job():
            patch = {"metadata": {"labels": self._priority(1.0)}}
            yield Act(at_s, "merge", "Job", name, space, patch)

    def _paused(self, at_s: float) -> Iterator[Act]:
        """Its Workload is made inactive, and active again."""
        for space, name in self._any_job():
            for then_s, active in ((at_s, False), (at_s + self._rng.uniform(*_MOMENT_S), True)):
                yield Act(then_s, "merge", "WorkloadOf", name, space, {"spec": {"active": active}})

    def _answered(self, at_s: float) -> Iterator[Act]:
        state = self._rng.choices(("Ready", "Retry", "Rejected"), (8, 1, 1))[0]
        yield Act(at_s, "merge", "PendingChecks", CHECK, self._rng.choice(SPACES), {"state": state})

    # -- changes of queues ---------------------------------------------------------------------------------------------

    def _requota(self, at_s: float) -> Iterator[Act]:
        queue = self._rng.choice(self._busy)
        groups = settings.requota(self._rng, self._setting, shares=queue.shares)
        yield Act(at_s, "merge", "ClusterQueue", queue.name, body={"spec": {"resourceGroups": groups}})

    def _stopped(self, at_s: float) -> Iterator[Act]:
        """For a moment."""
        name, policy = self._rng.choice(self._busy).name, self._rng.choice(["Hold", "HoldAndDrain"])
        for then_s, stop in ((at_s, policy), (at_s + self._rng.uniform(*_MOMENT_S), "None")):
            yield Act(then_s, "merge", "ClusterQueue", name, body={"spec": {"stopPolicy": stop}})
