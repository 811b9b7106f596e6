"""Minimum runtimes and the budget of moves."""

import re
from collections import deque
from collections.abc import Iterable, Iterator

from history.objects import Json, Key, condition, is_true, note, text
from history.rule import Rule, Scene, Wrong

_MINIMUM = "tessera.dev/minimum-runtime-before-preemption"
_MOVED = "tessera.dev/Moved"
_MOVES = "Consolidation"
_EXACT_S = 2.0
"""Times of two events of one watch may be off by so much."""
_CHANGED_S = 10.0
_HOUR_S = 3600.0
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|h|m|s))+", re.ASCII)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class TooSoon(Rule, name="released-early", lasts_s=0.0, kinds=("Workload",)):
    """``released-early``: a Workload is preempted before it was admitted for the minimum runtime of its ClusterQueue's
    annotation, of its priority class, or of all; or it is moved before it may, or after an hour's budget of moves was
    spent, which begins anew where the settings do. Counts at once: admission and eviction come by one watch, in order;
    two seconds are allowed between them, and an annotation counts once it has stood for 10 seconds.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._admitted: dict[Key, tuple[float, str]] = {}
        self._minimum: dict[str, tuple[float, float | None, float | None]] = {}
        self._moves: deque[tuple[float, Key]] = deque()

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        every = set(touched)
        for key in every:
            if key.kind == "ClusterQueue":
                self._note_minimum(key)
            elif key.kind == "Workload":
                self._note_times(key)
        return super().subjects(every)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        workload, times = self.world.objects.get(subject), self.world.times.get(subject)
        if workload is None or times is None or times.evicted_s is None or times.evicted_s < 0:
            return
        admitted_s, queue = self._admitted.get(subject, (float("-inf"), ""))
        if condition(workload, "Evicted").get("reason") != "Preempted":
            return
        ran_s = times.evicted_s - admitted_s
        moved = condition(workload, "Preempted").get("reason") == _MOVES
        least_s = self.world.settings.move_after_s if moved else self._least_s(workload, queue, times.evicted_s)
        if 0 <= ran_s < least_s - _EXACT_S:
            objects = (str(subject), f"ClusterQueue {queue}")
            yield Wrong(objects, f"it was preempted {ran_s:.0f} s after its admission, the minimum is {least_s:g} s")
        budget = self.world.settings.moves_per_hour
        from_s = max(times.evicted_s - _HOUR_S + _EXACT_S, self.world.promised_s)
        recent = [each for at_s, each in self._moves if at_s > from_s]
        if moved and budget is not None and len(recent) > budget and recent[-1] == subject:
            yield Wrong((str(subject),), f"it is the {len(recent)}th that moves in an hour, {budget} may")

    def _note_times(self, key: Key) -> None:
        workload, times = self.world.objects.get(key), self.world.times.get(key)
        if workload is None or times is None:
            self._admitted.pop(key, None)
            return
        if times.admitted_s is not None and times.evicted_s is None:
            self._admitted[key] = times.admitted_s, self.world.cluster_queue(workload)
        known = {each for at_s, each in self._moves if at_s == times.evicted_s}
        moves = is_true(workload, "Evicted") and is_true(workload, _MOVED)
        if moves and condition(workload, "Preempted").get("reason") == _MOVES and times.evicted_s and key not in known:
            self._moves.append((times.evicted_s, key))
            while self._moves[0][0] < times.evicted_s - _HOUR_S:
                self._moves.popleft()

    def _note_minimum(self, key: Key) -> None:
        """Keeps the annotation's value with the one before it and the time of the change."""
        now = seconds(note(self.world.objects.get(key, {}), _MINIMUM))
        _, last, _ = self._minimum.get(key.name, (0.0, None, None))
        if key.name not in self._minimum or last != now:
            first = self.world.now_s == self.world.first_s
            self._minimum[key.name] = (float("-inf") if first else self.world.now_s, now, last)

    def _least_s(self, workload: Json, queue: str, at_s: float) -> float:
        since_s, now, before = self._minimum.get(queue, (0.0, None, None))
        said = [now] if at_s - since_s > _CHANGED_S else [now, before]
        settings, name = self.world.settings, priority_class(workload)
        general_s = settings.minimum_runtime_by_class.get(name, settings.minimum_runtime_s)
        return min(general_s if each is None else each for each in said)


def priority_class(workload: Json) -> str:
    return text(workload, "spec", "priorityClassRef", "name") or text(workload, "spec", "priorityClassName")


def seconds(written: str) -> float | None:
    """A duration such as 1h30m; None where it is none."""
    if not _DURATION.fullmatch(written):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", written))
