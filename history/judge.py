"""The judge: a record's facts one by one, every rule at every instant, a finding for each wrong that lasts."""

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Final

from msgspec import Struct

from history.admission import HalfGang, Released, Unadmitted
from history.devices import Destroyed, ResetWhileHeld, TwoHands
from history.evictions import TooSoon
from history.forgotten import Forgotten
from history.hands import Hands
from history.objects import TREE, Key, key_of, uid
from history.order import OutOfOrder
from history.overquota import OverQuota
from history.quotas import Quotas, follows_capacity
from history.record import ApiFact, Fact, Note
from history.rule import Rule, Scene, Wrong
from history.world import World

_DEVICES: Final = (TwoHands, Destroyed, ResetWhileHeld)
_RULES: Final = (*_DEVICES, Unadmitted, OverQuota, HalfGang, OutOfOrder, Forgotten, Released, TooSoon)


class Finding(Struct, frozen=True):
    """``t``: since when it was so, in seconds on the recorder's clock."""

    t: float
    rule: str
    objects: tuple[str, ...]
    message: str


class Verdict(Struct, frozen=True):
    """``facts``: how many were read. ``unseen``: what this record does not show, one line each."""

    findings: tuple[Finding, ...]
    facts: int
    unseen: tuple[str, ...]


class _Lasting(Struct):
    """A wrong that is there now. ``due_s``: by when it counts."""

    wrong: Wrong
    since_s: float
    due_s: float
    told: bool = False


class Judge:
    """``take`` facts in their order, then ask for the ``verdict``.

    Time goes on only while the recorder sees everything: ``_sighted_s`` is how much of it there was. ``_lasting`` has
    what is wrong now, by rule and subject and by the objects concerned; ``_due`` when each begins to count.
    """

    def __init__(self) -> None:
        self._world = World()
        self._scene = Scene(self._world, Quotas(self._world), Hands(self._world))
        self._rules: list[Rule] = [rule(self._scene) for rule in _RULES]
        self._lasting: dict[tuple[int, Key], dict[tuple[str, ...], _Lasting]] = {}
        self._due: list[tuple[float, int, _Lasting, str]] = []
        self._numbers = count()
        self._findings: list[Finding] = []
        self._facts = 0
        self._sighted_s = self._blind_s = 0.0
        self._last_s: float | None = None
        self._blind = set[str]()

    def take(self, fact: Fact) -> None:
        """Raises nothing, whatever the objects are."""
        self._facts += 1
        passed_s = fact.t - self._last_s if self._last_s is not None else 0.0
        self._sighted_s += 0.0 if self._blind else passed_s
        self._blind_s += passed_s if self._blind else 0.0
        self._last_s = fact.t
        self._tell()
        touched = self._touched(fact)
        for number, rule in enumerate(self._rules):
            for subject in set(rule.subjects(touched)):
                self._update(number, rule, subject, fact.t)
        self._tell()

    def verdict(self) -> Verdict:
        found = sorted(self._findings, key=lambda each: (each.t, each.rule, each.objects))
        return Verdict(tuple(found), self._facts, tuple(sorted(self._scene.unseen | self._not_shown())))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _touched(self, fact: Fact) -> set[Key]:
        """Takes the fact in."""
        self._world.now_s = fact.t
        self._world.first_s = fact.t if self._world.first_s is None else self._world.first_s
        if isinstance(fact, Note):
            self._note(fact)
            return set()
        quotas, hands, queues = self._scene.quotas, self._scene.hands, set[str]()
        quotas.reshaped = False
        if not isinstance(fact, ApiFact):
            return {hands.take(fact)}
        fact_key = key_of(fact.object)
        old = self._world.objects.get(fact_key)
        touched = self._world.apply(fact)
        if fact_key.kind == "Pod":
            new = self._world.objects.get(fact_key)
            touched |= hands.changed(fact_key, is_gone=old is not None and (new is None or uid(old) != uid(new)))
        touched = touched.union(*(quotas.concerned(each) for each in touched if each.kind.startswith("ResourceClaim")))
        if fact_key.kind in ("ClusterQueue", "Cohort") and quotas.reshape(fact_key):
            # A tree may have another first queue now, or none.
            touched |= {Key(TREE, "", name) for name in quotas.roots().keys() | {fact_key.name}}
        for key in [each for each in touched if each.kind == "Workload"]:
            before = quotas.replaced.get(key, key)
            queues |= quotas.update(key)
            touched |= {before, quotas.replaced.get(key, key)}
            body = self._world.objects.get(key)
            queues.add(self._world.cluster_queue(body) if body is not None else "")
        roots = [root for name in queues if (root := quotas.root_of(name)) is not None]
        return touched | {Key(TREE, "", root.first) for root in roots}

    def _note(self, fact: Note) -> None:
        match fact.type:
            case "BLIND":
                self._blind.add(fact.what)
            case "SIGHT":
                self._blind.discard(fact.what)
            case "UNSEEN":
                self._scene.unseen.add(fact.what)
            case "SETTINGS":
                self._world.settings = fact.settings or self._world.settings
                self._world.promised_s = fact.t

    def _update(self, number: int, rule: Rule, subject: Key, t: float) -> None:
        old = self._lasting.pop((number, subject), {})
        now: dict[tuple[str, ...], _Lasting] = {}
        for wrong in rule.wrongs(subject):
            known = now.get(wrong.objects) or old.get(wrong.objects)  # several of the same objects are one
            if known is None:
                known = _Lasting(wrong, t, self._sighted_s + rule.lasts_s + wrong.later_s)
                heapq.heappush(self._due, (known.due_s, next(self._numbers), known, rule.name))
            known.wrong = wrong  # its words may be others by now
            now[wrong.objects] = known
        for objects, ended in old.items():
            if objects not in now:
                ended.told = True  # it did not last
        if now:
            self._lasting[number, subject] = now

    def _tell(self) -> None:
        """Turn each wrong that has lasted long enough into a finding."""
        while self._due and self._due[0][0] <= self._sighted_s:
            _, _, found, name = heapq.heappop(self._due)
            if not found.told:
                found.told = True
                self._findings.append(Finding(found.since_s, name, found.wrong.objects, found.wrong.message))

    def _not_shown(self) -> set[str]:
        unseen = {f"{self._blind_s:.0f} s in which a watch was cut"} if self._blind_s else set[str]()
        if "kubelet" not in self._scene.hands.heard:
            unseen.add("kubelets: which pod has which device is not in the record")
        if "claims without devices" in self._scene.hands.heard:
            unseen.add("devices of claims: a kubelet's call did not say which a claim has")
        if "hardware" not in self._scene.hands.heard:
            unseen.add("hardware: GPUs, MIG instances and shares that exist are not in the record")
        for key in self._world.all("ClusterQueue"):
            root = self._scene.quotas.root_of(key.name)
            if root is not None and follows_capacity(root):
                unseen.add(f"quota of {key}: it follows live capacity")
            own = [each for each in self._scene.quotas.flavors(key.name) if self._scene.quotas.is_uncounted(each)]
            unseen |= {f"quota of {name}: charges of it are not recomputed" for name in own}
        return unseen


def judged(facts: Iterable[Fact]) -> Verdict:
    """The verdict on a whole record. Raises what reading raises."""
    judge = Judge()
    for fact in facts:
        judge.take(fact)
    return judge.verdict()
