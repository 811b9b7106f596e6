"""No more is used than quota, borrowing and lending limits of the tree have room for."""

from collections.abc import Iterator

from msgspec import Struct

from history.objects import TREE, Key, queue_of
from history.podcost import UNIT
from history.quotas import Use, follows_capacity
from history.rule import LATE_S, Rule, Scene, Wrong
from history.world import World

_WINDOW_S = 10.0


class _Place(Struct):
    """One cell of a ClusterQueue or Cohort. ``left``: what may be used and is not, below 0 what is used too much;
    ``excused``: how much of that is no wrong, which a decision under way may still take until ``until_s``.
    """

    left: float
    excused: float = 0.0
    until_s: float = float("-inf")

    def excuses(self, left: float, world: World, *, is_reshaped: bool) -> float:
        """How much too much is used and no wrong, now that ``left`` is left."""
        if world.now_s >= self.until_s:
            self.excused = min(self.excused, max(0.0, -self.left))
        if is_reshaped and left != self.left:  # by the quota alone: no Workload has changed
            self.until_s = world.now_s + _WINDOW_S if left < self.left else self.until_s
            self.excused = max(0.0, self.excused + self.left - left)
        if world.now_s >= self.until_s:
            self.excused = min(self.excused, max(0.0, -left))
        if world.now_s == world.first_s:
            self.excused = max(0.0, -left)
        self.left = left
        return self.excused


class OverQuota(Rule, name="over-quota", lasts_s=LATE_S, kinds=(TREE, "Workload")):
    """``over-quota``: in a ClusterQueue or Cohort more is used than its quota and borrowing limit allow, by charges
    that are recomputed (``history.quotas``); or a Workload takes what its ClusterQueue has quota of and is charged
    none. Counts after 5 seconds, since quotas and Workloads come by two watches.

    What holds quota keeps it where quota is taken away: as much as a change of quotas took from what may be used there,
    and no more, may be used beyond it by what was held then or gets quota within 10 seconds (its decision was under
    way), and so may what is used at the first line, until it has fallen. A flavor that a ClusterQueue does not list
    has no quota for it.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._places: dict[tuple[str, ...], _Place] = {}

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        if subject.kind == "Workload":
            for resource, amount in self.scene.quotas.uncharged(subject):
                objects = (str(subject), f"ClusterQueue {queue_of(self.world.objects[subject])}")
                yield Wrong(objects, f"it takes {_shown(amount)} {resource} and is charged none")
            return
        root = self.scene.quotas.root_of(subject.name)
        if root is None or root.first != subject.name or follows_capacity(root):
            return
        for use in self.scene.quotas.uses(root):
            key = (f"{use.node.is_queue}/{use.node.name}", use.cell.flavor, use.cell.resource)
            place = self._places.setdefault(key, _Place(use.limit - use.used))
            if place.excuses(use.limit - use.used, self.world, is_reshaped=self.scene.quotas.reshaped) < -place.left:
                yield self._told(use)

    def _told(self, over: Use) -> Wrong:
        node, cell = over.node, over.cell
        kind = "ClusterQueue" if node.is_queue else "Cohort"
        place = f"{cell.resource} in flavor {cell.flavor}"
        message = f"{_shown(over.used)} {place} are used, {_shown(over.limit)} may be"
        # The place makes it the same wrong as a moment ago, whoever holds what.
        return Wrong((f"{kind} {node.name}", f"ResourceFlavor {cell.flavor}", cell.resource), message)


def _shown(amount: float) -> str:
    return f"{amount / UNIT:g}"
