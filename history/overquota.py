"""No more is used than quota, borrowing and lending limits of the tree have room for."""

from collections.abc import Iterable, Iterator

from history.objects import Key, queue_of
from history.podcost import UNIT
from history.quotas import Overrun, follows_capacity
from history.rule import LATE_S, Rule, Scene, Wrong

_WINDOW_S = 10.0


class OverQuota(Rule, name="over-quota", lasts_s=LATE_S, kinds=("Tree", "Workload")):
    """``over-quota``: in a ClusterQueue or Cohort more is used than its quota and borrowing limit allow, by charges
    that are recomputed (``history.quotas``); or a Workload takes what its ClusterQueue has quota of and is charged
    none. Counts after 5 seconds, since quotas and Workloads come by two watches.

    What holds quota keeps it where quota is taken away: what is used when a quota changes, or within 10 seconds after
    (a decision was under way), and at the first line, is no wrong until it has fallen.
    """

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._excused: dict[tuple[str, ...], int] = {}
        self._until_s = float("-inf")

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        every = set(touched)
        if any(each.kind == "TreesChanged" for each in every):
            self._until_s = self.world.now_s + _WINDOW_S
        return super().subjects(every)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        if subject.kind == "Workload":
            for resource, amount in self.scene.quotas.uncharged(subject):
                body = self.world.objects[subject]
                objects = (str(subject), f"ClusterQueue {queue_of(body)}")
                yield Wrong(objects, f"it takes {_shown(amount)} {resource} and is charged none")
            return
        root = self.scene.quotas.root_of(subject.name)
        if root is None or root.first != subject.name or follows_capacity(root):
            return
        found = {_place(each): each for each in self.scene.quotas.overruns(root)}
        prefix = subject.name
        for place in [each for each in self._excused if each[0] == prefix and each[1:] not in found]:
            del self._excused[place]
        begins = self.world.now_s in (self.world.first_s, self._until_s) or self.world.now_s < self._until_s
        for place, over in found.items():
            key = (prefix, *place)
            if begins:
                self._excused[key] = over.used
            self._excused[key] = min(self._excused.get(key, 0), over.used)
            if over.used > self._excused[key]:
                yield self._told(over)

    def _told(self, over: Overrun) -> Wrong:
        node, cell = over.node, over.cell
        kind = "ClusterQueue" if node.is_queue else "Cohort"
        place = f"{cell.resource} in flavor {cell.flavor}"
        message = f"{_shown(over.used)} {place} are used, {_shown(over.limit)} may be"
        # The place makes it the same wrong as a moment ago, whoever holds what.
        return Wrong((f"{kind} {node.name}", f"ResourceFlavor {cell.flavor}", cell.resource), message)


def _place(over: Overrun) -> tuple[str, str]:
    return f"{over.node.is_queue}/{over.node.name}", f"{over.cell.flavor}/{over.cell.resource}"


def _shown(amount: int) -> str:
    return f"{amount / UNIT:g}"
