"""How often nodes of each flavor are taken away while they serve: interruptions per node-day over a window. Pure.

What is counted is a departure of a node with pods of queued workloads, once, for each flavor whose ``nodeLabels`` the
node has. It is set against the time for which the flavor's nodes were there: those that are there by their age, those
that have gone by what is kept of them. A flavor counts for a node-day at least, so that one node that is lost soon says
little. The window moves on by steps, and counts are kept by step: so a record is small however much happens.

The record of a flavor stands in its annotation, for the next leader: counts and node-seconds by step, and the names of
nodes whose departure is counted and under way, or the next leader would count them again.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import floor, isfinite
from typing import Final

import msgspec

from controller.scheduler.model.config import InterruptionRules
from inventory.api.names import INTERRUPTED_OFTEN, INTERRUPTION_RATE, INTERRUPTIONS

STEPS: Final = 24
"""The steps of a window; counts of one more are kept, which is partly over."""
MOST_NAMED: Final = 200
"""The nodes whose departures a record names at most, the newest: some 15 KB."""
_MOST_CHARACTERS: Final = 1 << 16
_DAY_S: Final = 86400.0
_KEYS: Final = (INTERRUPTIONS, INTERRUPTION_RATE, INTERRUPTED_OFTEN)


class FlavorRate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a flavor's nodes in the window. ``node_days`` is one at least."""

    interruptions: int
    node_days: float
    is_often: bool

    @property
    def per_node_day(self) -> float:
        return self.interruptions / self.node_days


class InterruptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a flavor. ``steps``: by the second since 1970 at which a step began, the interruptions in it and
    the seconds for which nodes were there in it that have gone. ``counted``: nodes that leave, and when that was
    counted.
    """

    steps: Mapping[int, tuple[int, float]] = {}
    counted: Mapping[str, int] = {}


class _Node(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    created_s: float


class InterruptionCounts:
    """The counts of all flavors. ``_interrupted`` and ``_gone`` have an entry for known flavors alone, by step.
    ``_counted`` has nodes that are leaving, and those of which records say so and that have not been seen yet.
    """

    def __init__(self, rules: InterruptionRules) -> None:
        self.rules = rules
        self.width_s = max(1, round(rules.window_s / STEPS))
        """The seconds of a step: whole ones, as a record has them."""
        self._nodes: dict[str, _Node] = {}
        self._flavors: dict[str, Mapping[str, str]] = {}
        self._interrupted: dict[str, dict[int, int]] = {}
        self._gone: dict[str, dict[int, float]] = {}
        self._counted: dict[str, float] = {}

    # -- events ------------------------------------------------------------------------------------------------------

    def set_flavor(self, name: str, node_labels: Mapping[str, str] | None, recorded: InterruptionRecord) -> bool:
        """Note a flavor; None: it is gone. What is recorded counts where the flavor is seen for the first time: from
        then on it says what is counted here. Returns whether it was seen for the first time.
        """
        if node_labels is None:
            for known in (self._flavors, self._interrupted, self._gone):
                known.pop(name, None)
            return False
        is_new = name not in self._flavors
        self._flavors[name] = node_labels
        if is_new:
            self._interrupted[name], self._gone[name] = {}, {}
            for start_s, (interruptions, gone_s) in recorded.steps.items():
                self._add(name, self._step(start_s), interruptions, gone_s)
            for node, at_s in recorded.counted.items():
                seen = self._nodes.get(node)
                if seen is None or floor(seen.created_s) <= at_s:
                    self._counted[node] = max(at_s, self._counted.get(node, at_s))
        return is_new

    def set_node(self, name: str, labels: Mapping[str, str], created_s: float | None, now_s: float) -> None:
        """Note a node; without a time of its own it was created when it was first seen. One that was created since is
        another of the same name.
        """
        known = self._nodes.get(name)
        if created_s is None:
            created_s = known.created_s if known is not None else now_s
        if known is not None and known.created_s != created_s:
            self.drop_node(name, now_s)
        elif self._counted.get(name, created_s) < floor(created_s):
            del self._counted[name]
        self._nodes[name] = _Node(labels, created_s)

    def drop_node(self, name: str, now_s: float) -> None:
        """Note that a node is gone: the time that it was there counts on."""
        known = self._nodes.pop(name, None)
        self._counted.pop(name, None)
        if known is None:
            return
        lived = list(self._by_step(max(known.created_s, self._first(now_s) * self.width_s), now_s))
        for flavor in self.flavors_of(known.labels):
            for step, seconds in lived:
                self._add(flavor, step, 0, seconds)

    def forget_gone(self) -> None:
        """Forget departures of nodes that are not there, once all nodes are known: they have ended."""
        self._counted = {name: at_s for name, at_s in self._counted.items() if name in self._nodes}

    def stays(self, name: str) -> None:
        """Note that a node does not leave, or not any more."""
        self._counted.pop(name, None)

    def count(self, name: str, now_s: float) -> tuple[str, ...]:
        """Count that a node is taken away while it serves, once for each departure. Returns the flavors for which it
        counts now.
        """
        known = self._nodes.get(name)
        if known is None or name in self._counted:
            return ()
        self._counted[name] = float(floor(now_s))
        flavors = self.flavors_of(known.labels)
        for flavor in flavors:
            self._add(flavor, self._step(now_s), 1, 0.0)
        return flavors

    def prune(self, now_s: float) -> None:
        """Forget what has left the window."""
        first = self._first(now_s)
        by_step: tuple[Mapping[str, dict[int, int] | dict[int, float]], ...] = (self._interrupted, self._gone)
        for steps in (each for kept in by_step for each in kept.values()):
            for step in [step for step in steps if step < first]:
                del steps[step]
        over = [name for name, at_s in self._counted.items() if name not in self._nodes and self._step(at_s) < first]
        for name in over:
            del self._counted[name]

    # -- questions ---------------------------------------------------------------------------------------------------

    def flavors_of(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The flavors of a node with these labels."""
        return tuple(sorted(name for name, asked in self._flavors.items() if asked.items() <= labels.items()))

    def rate(self, flavor: str, now_s: float) -> FlavorRate:
        """What became of a flavor's nodes in the window that ends now."""
        first = self._first(now_s)
        since_s = first * self.width_s
        interruptions = sum(n for step, n in self._interrupted.get(flavor, {}).items() if step >= first)
        seconds = 0.0
        if interruptions:
            asked = self._flavors[flavor].items()
            there = (node.created_s for node in self._nodes.values() if asked <= node.labels.items())
            seconds = sum(max(0.0, now_s - max(created_s, since_s)) for created_s in there)
            seconds += sum(gone_s for step, gone_s in self._gone[flavor].items() if step >= first)
        days = max(1.0, seconds / _DAY_S)
        often = 0.0 < self.rules.too_often < interruptions / days
        return FlavorRate(interruptions=interruptions, node_days=days, is_often=often)

    def rates(self, now_s: float) -> dict[str, FlavorRate]:
        """The rates of all flavors."""
        return {name: self.rate(name, now_s) for name in self._flavors}

    @property
    def is_idle(self) -> bool:
        """Whether time alone changes nothing."""
        return not any(self._interrupted.values()) and not any(self._gone.values())

    def record(self, flavor: str, now_s: float) -> InterruptionRecord:
        """What the next leader has to know of a flavor."""
        first = self._first(now_s)
        interrupted, gone = self._interrupted.get(flavor, {}), self._gone.get(flavor, {})
        steps = {
            step * self.width_s: (interrupted.get(step, 0), round(gone.get(step, 0.0), 1))
            for step in sorted(interrupted.keys() | gone.keys())
            if step >= first
        }
        asked = self._flavors.get(flavor, {}).items()
        leaving = [
            (at_s, node)
            for node, at_s in self._counted.items()
            if (seen := self._nodes.get(node)) is None or asked <= seen.labels.items()
        ]
        newest = sorted(leaving, reverse=True)[:MOST_NAMED]
        return InterruptionRecord(steps=steps, counted={node: floor(at_s) for at_s, node in sorted(newest)})

    def due(self, flavor: str, shown: Mapping[str, str], now_s: float, *, refresh: bool) -> dict[str, str | None]:
        """The annotations of a flavor that are to be written, None: taken off; ``shown`` are those that it has. A
        departure, and a flavor that is or is not interrupted too often any more, are written at once; what time alone
        has changed only with ``refresh``.
        """
        record, rate = self.record(flavor, now_s), self.rate(flavor, now_s)
        if not record.steps and not record.counted:
            return {key: None for key in _KEYS if key in shown}
        seen = read_record(shown.get(INTERRUPTIONS))
        is_news = (
            _interruptions(record) != {at: n for at, n in _interruptions(seen).items() if at in record.steps}
            or not record.counted.items() <= seen.counted.items()
            or rate.is_often is not (INTERRUPTED_OFTEN in shown)
        )
        if not is_news and not refresh:
            return {}
        per_node_day = f"{rate.per_node_day:.2f}" if rate.interruptions else None
        wanted = {
            INTERRUPTIONS: written(record),
            INTERRUPTION_RATE: per_node_day,
            INTERRUPTED_OFTEN: per_node_day if rate.is_often else None,
        }
        return {key: text for key, text in wanted.items() if text != shown.get(key)}

    def validate(self) -> None:
        """Recompute what holds between the fields. Raises AssertionError."""
        known = self._flavors.keys()
        assert self._interrupted.keys() == known == self._gone.keys(), "counts of other flavors than are known"
        assert all(n > 0 for steps in self._interrupted.values() for n in steps.values()), "a step without a departure"
        assert all(s > 0.0 for steps in self._gone.values() for s in steps.values()), "a step without a node"
        for name, at_s in self._counted.items():
            node = self._nodes.get(name)
            assert node is None or floor(node.created_s) <= at_s, f"{name} has left before it came"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _step(self, at_s: float) -> int:
        return floor(at_s / self.width_s)

    def _first(self, now_s: float) -> int:
        """The first step that counts."""
        return self._step(now_s - self.rules.window_s)

    def _by_step(self, from_s: float, to_s: float) -> Iterator[tuple[int, float]]:
        """The seconds from one time to another in each step."""
        step = self._step(from_s)
        while from_s < to_s:
            end_s = min(to_s, float((step + 1) * self.width_s))
            yield step, end_s - from_s
            from_s, step = end_s, step + 1

    def _add(self, flavor: str, step: int, interruptions: int, gone_s: float) -> None:
        if interruptions:
            counts = self._interrupted[flavor]
            counts[step] = counts.get(step, 0) + interruptions
        if gone_s:
            seconds = self._gone[flavor]
            seconds[step] = seconds.get(step, 0.0) + gone_s


def _interruptions(record: InterruptionRecord) -> dict[int, int]:
    return {at: interruptions for at, (interruptions, _) in record.steps.items() if interruptions}


class _Shown(msgspec.Struct, frozen=True):
    """The record as JSON has it, with times as people read them."""

    steps: dict[str, tuple[int, float]] = {}
    counted: dict[str, str] = {}


def written(record: InterruptionRecord) -> str:
    """The text of a record."""
    steps = {_moment(at_s): counts for at_s, counts in record.steps.items()}
    counted = {node: _moment(at_s) for node, at_s in record.counted.items()}
    return msgspec.json.encode(_Shown(steps, counted)).decode()


def read_record(text: str | None) -> InterruptionRecord:
    """The record in an annotation. Empty for one that cannot be read, which somebody else has written."""
    if text is None or len(text) > _MOST_CHARACTERS:
        return InterruptionRecord()
    try:
        found = msgspec.json.decode(text, type=_Shown)
        steps = {_second(at): counts for at, counts in found.steps.items()}
        counted = {node: _second(at) for node, at in found.counted.items()}
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return InterruptionRecord()
    if any(n < 0 or not isfinite(gone_s) or gone_s < 0.0 for n, gone_s in steps.values()):
        return InterruptionRecord()
    return InterruptionRecord(steps=steps, counted=counted)


def _moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _second(text: str) -> int:
    return floor(msgspec.convert(text, datetime).timestamp())
