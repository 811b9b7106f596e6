"""What stories of policy ``tessera`` have beside others: jobs that tell of their checkpoints, truly or not, and queues
whose quotas change by the clock. Sources: the pages of calendars and of the price of a preemption.

They are drawn by themselves: a story is otherwise what it is without them.
"""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from hack.outside.acts import QUEUE, Act, Json
from hack.outside.setting import Queue, Setting
from hack.outside.warp import EPOCH_S

FROM: Final = 17
"""The first 16 stories are a net for planted faults, which finds as much as its page says."""
EVERY: Final = 3
CALENDAR: Final = "tessera.dev/quota-calendar"
WAIT: Final = "tessera.dev/checkpoint-wait"
LAST: Final = "tessera.dev/last-checkpoint"
_INTERVALS: Final = ("1s", "2s", "5s")
_COSTS: Final = ("1s", "10s", "2m")


def is_priced(seed: int) -> bool:
    return seed >= FROM and seed % EVERY == 0


class Pricing:
    """Draws what is told of checkpoints and calendars, by the seed of the story."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"priced {seed}")

    def dated(self, setting: Setting) -> Setting:
        """The setting with calendars and waits on some of its queues that are not calm."""
        return msgspec.structs.replace(setting, queues=tuple(map(self._dated, setting.queues)))

    def told(self, acts: Iterable[Act], setting: Setting, lasts_s: float) -> Iterator[Act]:
        """The acts, where some Jobs tell of their checkpoints as they are created, and some again before ``lasts_s``.
        Jobs of calm queues stay alike.
        """
        calm = {queue.name for queue in setting.queues if queue.calm}
        for act in acts:
            if act.kind != "Job" or act.verb != "create" or self._rng.random() < 0.4:  # noqa: PLR2004 - a share
                yield act
                continue
            meta = act.body["metadata"]
            if meta["labels"][QUEUE] in calm:
                yield act
                continue
            notes = {**meta["annotations"], **self._checkpoints()}
            yield msgspec.structs.replace(act, body={**act.body, "metadata": {**meta, "annotations": notes}})
            at_s = act.at_s + self._rng.uniform(0.5, 4.0)
            if at_s < lasts_s and self._rng.random() < 0.6:  # noqa: PLR2004 - a share
                patch = {"metadata": {"annotations": {LAST: self._moment(at_s)}}}
                yield Act(at_s, "merge", "Job", act.name, act.namespace, patch)

    def _dated(self, queue: Queue) -> Queue:
        notes: Json = {}
        if not queue.calm and self._rng.random() < 0.5:  # noqa: PLR2004 - a share
            notes[CALENDAR] = json.dumps([self._window(queue) for _ in range(self._rng.randint(1, 2))])
        if self._rng.random() < 0.3:  # noqa: PLR2004 - a share
            notes[WAIT] = self._rng.choice(_INTERVALS)
        return msgspec.structs.replace(queue, notes=notes)

    def _window(self, queue: Queue) -> Json:
        """A window that begins or ends some seconds after the story's beginning: its clock stands before a minute."""
        begins = datetime.fromtimestamp(EPOCH_S, UTC) + timedelta(minutes=self._rng.choice((0, 1)))
        group = self._rng.choice(queue.spec["resourceGroups"])
        flavor = self._rng.choice(group["flavors"])
        row = self._rng.choice(flavor["resources"])
        amount = self._rng.choice((0, 2, 4, 8))
        quota = {flavor["name"]: {row["name"]: str(amount)}}
        return {"from": f"{begins:%M %H} * * *", "for": "1m", "nominal": quota}

    def _checkpoints(self) -> Json:
        """Some of the four annotations; a few are no duration."""
        rng = self._rng
        checkpoints: Json = {}
        if rng.random() < 0.6:  # noqa: PLR2004 - a share
            checkpoints["tessera.dev/checkpoint-interval"] = rng.choice((*_INTERVALS, "soon"))
        if rng.random() < 0.4:  # noqa: PLR2004 - a share
            checkpoints["tessera.dev/restart-cost"] = rng.choice((*_COSTS, "-1s"))
        if rng.random() < 0.2:  # noqa: PLR2004 - a share
            checkpoints["tessera.dev/checkpoint-grace"] = "1s"
        return checkpoints

    def _moment(self, at_s: float) -> str:
        """A time at about the act's: it may be in the future, or before the job's start."""
        said = datetime.fromtimestamp(EPOCH_S + at_s + self._rng.uniform(-5.0, 2.0), UTC)
        return said.strftime("%Y-%m-%dT%H:%M:%SZ")
