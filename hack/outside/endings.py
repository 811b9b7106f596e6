"""How stories end: there is quota for all who are left, so whoever is not started then was forgotten, and quota that
is charged for nobody shows.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final

from hack.outside import shapes
from hack.outside.acts import CHECK, PRIORITIES, PRIORITY, QUEUE, SPACES, Act
from hack.outside.setting import Queue, Setting, exact

SWEEP_S: Final = 2.5
"""Until then what was stopped for a moment goes on."""
_ROOM: Final = 16
_ENDLESS_S: Final = 600


def ending(rng: random.Random, setting: Setting, jobs: Sequence[tuple[str, str]], at_s: float) -> Iterator[Act]:
    """``jobs``: namespace and name of all that were created."""
    if rng.random() < 0.3:  # noqa: PLR2004 - a share
        yield from _roomy(rng, setting, jobs, at_s)
    else:
        yield from _tight(rng, setting, jobs, at_s + SWEEP_S)
    if setting.checked:
        for later_s in (3.0, 4.0):
            for space in SPACES:
                yield Act(at_s + later_s, "merge", "PendingChecks", CHECK, space, {"state": "Ready"})


def _roomy(rng: random.Random, setting: Setting, jobs: Sequence[tuple[str, str]], at_s: float) -> Iterator[Act]:
    """Each queue has more than is asked for, then most jobs go."""
    for queue in setting.queues:
        groups = [exact(setting, each, _ROOM) for each in setting.flavors]
        whole = groups[0]
        whole[-1]["flavors"] = [flavor for each in groups for flavor in each[-1]["flavors"]]
        yield _opened(at_s, queue, whole)
    for space, name in rng.sample(jobs, len(jobs) * 2 // 3):
        yield Act(at_s + SWEEP_S, "delete", "Job", name, space)


def _tight(rng: random.Random, setting: Setting, jobs: Sequence[tuple[str, str]], at_s: float) -> Iterator[Act]:
    """All jobs go, and each queue has one flavor and a new job that needs exactly its quota."""
    flavor, labels = rng.choice(setting.flavors), rng.choice([{}, {PRIORITY: rng.choice(tuple(PRIORITIES))}])
    gone_s, full_s = rng.sample((at_s + 0.4, at_s + 0.9), 2)
    for queue in setting.queues:
        amount = rng.randint(2, 6)
        yield _opened(at_s, queue, exact(setting, flavor, amount))
        shape = shapes.alike(_ENDLESS_S, pods=amount, cpus=bool(setting.cpus))
        body = shapes.job(shape, {QUEUE: queue.name, **labels})
        yield Act(full_s, "create", "Job", f"full-{queue.name}", queue.spaces[0], body)
    for space, name in jobs:
        yield Act(gone_s, "delete", "Job", name, space)


def _opened(at_s: float, queue: Queue, groups: list[dict[str, object]]) -> Act:
    body = {"spec": {"resourceGroups": groups, "stopPolicy": "None"}}
    return Act(at_s, "merge", "ClusterQueue", queue.name, body=body)
