"""Plans the change from a GPU's MIG instances to those that a layout wants, with the fewest removals. Pure.

    plan(profiles, existing, wanted) -> MigPlan | InTheWay | DoesNotFit

Every set of GPU instances that may stay is tried, those that spare the most instances first; the rest is placed by
exact search over the driver's own placement table. No step removes an instance in use. ``profiles`` and placements are
NVML's (names and numbers differ between boards, drivers and VBIOS), slices are memory slices unless they say compute.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from inventory.devices import MigProfile
from inventory.mig import parts as migparts
from inventory.mig.parts import Part
from inventory.mig.search import Placer
from inventory.words import layouts as words


class Compute(Struct, frozen=True):
    """A compute instance that exists; ``busy`` while a pod holds it or a process runs on it."""

    ci_id: int
    part: Part
    busy: bool = False


class Existing(Struct, frozen=True):
    """A GPU instance that exists. ``busy`` is its own: a process is on it that no compute instance accounts for."""

    gi_id: int
    profile: str
    start: int
    size: int
    computes: tuple[Compute, ...] = ()
    busy: bool = False

    @property
    def in_use(self) -> bool:
        return self.busy or any(compute.busy for compute in self.computes)

    @property
    def slot(self) -> "Slot":
        return Slot(self.profile, self.start, self.size, tuple(sorted(compute.part for compute in self.computes)))


class Slot(Struct, frozen=True, order=True):
    """A wanted GPU instance. ``start`` identifies it: instances never overlap."""

    profile: str
    start: int
    size: int
    parts: tuple[Part, ...]


class DestroyCompute(Struct, frozen=True, tag=True):
    start: int
    part: Part


class DestroyInstance(Struct, frozen=True, tag=True):
    start: int
    profile: str


class CreateInstance(Struct, frozen=True, tag=True):
    start: int
    profile: str
    size: int


class CreateCompute(Struct, frozen=True, tag=True):
    """Create a compute instance. ``profile`` is the GPU instance's."""

    start: int
    profile: str
    part: Part


Step = DestroyCompute | DestroyInstance | CreateInstance | CreateCompute
"""One step of a plan. ``start`` is always the GPU instance's first memory slice."""


class MigPlan(Struct, frozen=True):
    """Steps in an order in which each is possible, and ``target``: the instances after them.

    ``surplus`` are instances in use that the layout does not want and that stay.
    """

    steps: tuple[Step, ...]
    target: tuple[Slot, ...]
    surplus: tuple[Existing, ...] = ()

    @property
    def removed(self) -> tuple[int, ...]:
        """The first slices of the GPU instances that are removed."""
        return tuple(step.start for step in self.steps if isinstance(step, DestroyInstance))


class InTheWay(Struct, frozen=True):
    """The instances that are in use though the layout needs them to go; as few as possible.

    ``kept`` stay in any case; ``beside`` is the plan that can be carried out now while ``blocking`` stay, where
    everything wanted fits beside them.
    """

    blocking: tuple[Existing, ...]
    kept: tuple[Existing, ...] = ()
    beside: MigPlan | None = None


class DoesNotFit(Struct, frozen=True):
    """No GPU of this kind can be cut into the wanted instances; ``why`` is one line."""

    why: str


class _Group(Struct, frozen=True, order=True):
    """A wanted GPU instance: its profile, and the sizes of its compute instances, largest first."""

    profile: str
    sizes: tuple[int, ...]


class _Match(Struct, frozen=True):
    """A kept instance with the parts it will have; ``cost`` is the number of compute instances that go."""

    instance: Existing
    parts: tuple[Part, ...]
    cost: int


def plan(
    profiles: Sequence[MigProfile], existing: Sequence[Existing], wanted: Sequence[str]
) -> MigPlan | InTheWay | DoesNotFit:
    """The plan from ``existing`` to ``wanted`` (profile texts, one for each MIG device)."""
    by_name = {profile.name: profile for profile in profiles}
    groups = _groups(by_name, wanted)
    if isinstance(groups, DoesNotFit):
        return groups
    placer = Placer(profiles)
    if not placer.fits(Counter(group.profile for group in groups), ()):
        return DoesNotFit(words.not_together(_listed(wanted)))
    best = _cheapest(by_name, placer, existing, groups)
    assert best is not None, "keeping nothing is always possible: all fits on an empty GPU"
    matches, target = best
    spared = {match.instance.start for match in matches}
    blocking = tuple(instance for instance in existing if instance.in_use and instance.start not in spared)
    if not blocking:
        return MigPlan(steps=steps_between(existing, target), target=target)
    stay = tuple(match.instance for match in matches)
    return InTheWay(blocking=blocking, kept=stay, beside=_beside(by_name, placer, existing, groups))


def possible(profiles: Sequence[MigProfile], wanted: Sequence[str]) -> str | None:
    """Why an empty GPU of this kind cannot be cut into ``wanted``, or None."""
    found = plan(profiles, (), wanted)
    return found.why if isinstance(found, DoesNotFit) else None


def _groups(by_name: dict[str, MigProfile], wanted: Sequence[str]) -> list[_Group] | DoesNotFit:
    """The wanted GPU instances: compute parts of one profile share instances."""
    sizes: dict[str, list[int]] = {}
    groups: list[_Group] = []
    for text in wanted:
        name, compute = migparts.split(text)
        profile = by_name.get(name)
        if profile is None:
            return DoesNotFit(words.no_profile(text, _listed(by_name)))
        if compute is None or compute == profile.slices:
            groups.append(_Group(name, (profile.slices,)))
        elif compute in migparts.offered(profile.slices):
            sizes.setdefault(name, []).append(compute)
        else:
            return DoesNotFit(words.no_compute(text, name, compute))
    for name, parts in sizes.items():
        groups += [_Group(name, group) for group in migparts.group(by_name[name].slices, parts)]
    return sorted(groups)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _cheapest(
    by_name: dict[str, MigProfile], placer: Placer, existing: Sequence[Existing], groups: Sequence[_Group]
) -> tuple[tuple[_Match, ...], tuple[Slot, ...]] | None:
    """The instances kept and the target, with the fewest removals: first of instances in use, then of instances, then
    of compute instances.
    """
    for _, subsets in _by_loss(existing):
        cheapest = None
        for subset in subsets:
            matched = _match(by_name, subset, groups)
            if matched is None:
                continue
            cost = sum(match.cost for match in matched[0])
            if cheapest is not None and cheapest[0] <= cost:
                continue
            target = _completed(by_name, placer, matched[0], matched[1], ())
            if target is not None:
                cheapest = (cost, matched[0], target)
        if cheapest is not None:
            return cheapest[1], cheapest[2]
    return None


def _by_loss(existing: Sequence[Existing]) -> Iterator[tuple[tuple[int, int], list[tuple[Existing, ...]]]]:
    """All subsets that may stay, those of equal loss (in use, idle) together, the least loss first."""
    order = sorted(existing, key=lambda instance: instance.start)
    busy = [wish for wish in order if wish.in_use]
    idle = [wish for wish in order if not wish.in_use]
    for lost_busy in range(len(busy) + 1):
        for lost_idle in range(len(idle) + 1):
            yield (
                (lost_busy, lost_idle),
                [
                    (*some, *others)
                    for some in combinations(busy, len(busy) - lost_busy)
                    for others in combinations(idle, len(idle) - lost_idle)
                ],
            )


def _match(
    by_name: dict[str, MigProfile], kept: Sequence[Existing], groups: Sequence[_Group]
) -> tuple[tuple[_Match, ...], list[_Group]] | None:
    """A match of each kept instance with a wanted one, with the fewest compute instances going; and the wanted ones
    left over.
    """
    matches: list[_Match] = []
    left: list[_Group] = []
    for name in sorted({group.profile for group in groups} | {instance.profile for instance in kept}):
        mine = [instance for instance in kept if instance.profile == name]
        kinds = Counter(group.sizes for group in groups if group.profile == name)
        if len(mine) > kinds.total():
            return None
        assigned = _assign(by_name[name].slices if name in by_name else 0, mine, kinds)
        if assigned is None:
            return None
        matches += assigned[1]
        left += [_Group(name, sizes) for sizes, count in sorted(assigned[2].items()) for _ in range(count)]
    return tuple(matches), left


def _assign(
    whole: int, instances: Sequence[Existing], kinds: Counter[tuple[int, ...]]
) -> tuple[int, list[_Match], Counter[tuple[int, ...]]] | None:
    """Match instances of one profile with the wanted kinds of it; there are at most a handful, so all ways are
    tried.
    """
    if not instances:
        return 0, [], kinds
    if len(kinds) == 1:
        (only,) = kinds
        recut = [match for instance in instances if (match := _recut(whole, instance, only)) is not None]
        if len(recut) < len(instances):
            return None
        return sum(match.cost for match in recut), recut, Counter({only: kinds[only] - len(recut)})
    best: tuple[int, list[_Match], Counter[tuple[int, ...]]] | None = None
    for sizes in [sizes for sizes, count in kinds.items() if count]:
        match = _recut(whole, instances[0], sizes)
        if match is None:
            continue
        rest = _assign(whole, instances[1:], kinds - Counter([sizes]))
        if rest is not None and (best is None or match.cost + rest[0] < best[0]):
            best = (match.cost + rest[0], [match, *rest[1]], rest[2])
    return best


def _recut(whole: int, instance: Existing, sizes: tuple[int, ...]) -> _Match | None:
    """The instance with compute instances of these sizes: those in use stay, then as many others as may."""
    if sorted(sizes) == sorted([compute.part.slices for compute in instance.computes]):
        return _Match(instance, tuple(sorted([compute.part for compute in instance.computes])), 0)
    if instance.busy:
        return None
    needed = Counter(sizes)
    parts: list[Part] = []
    for compute in sorted(instance.computes, key=lambda compute: (not compute.busy, compute.part)):
        if needed[compute.part.slices]:
            needed[compute.part.slices] -= 1
            parts.append(compute.part)
        elif compute.busy:
            return None
    busy = [compute.part for compute in instance.computes if compute.busy]
    for number in range(len(parts), len(busy) - 1, -1):
        # The first that leave room for the others are taken; those in use come first.
        some = tuple(parts[:number])
        missing = Counter(sizes) - Counter(part.slices for part in some)
        new = migparts.place(whole, tuple(missing.elements()), some)
        if new is not None:
            return _Match(instance, tuple(sorted((*some, *new))), len(instance.computes) - number)
    return None


def _completed(
    by_name: dict[str, MigProfile],
    placer: Placer,
    matches: Sequence[_Match],
    left: Sequence[_Group],
    surplus: Sequence[Existing],
) -> tuple[Slot, ...] | None:
    """All slots, once the groups left over are placed beside the instances that stay; None where they do not fit."""
    staying = [(match.instance.profile, match.instance.start, match.instance.size) for match in matches]
    staying += [(surplu.profile, surplu.start, surplu.size) for surplu in surplus]
    starts = placer.place(Counter(group.profile for group in left), tuple(staying))
    if starts is None:
        return None
    slots = [Slot(m.instance.profile, m.instance.start, m.instance.size, m.parts) for m in matches]
    slots += [surplu.slot for surplu in surplus]
    free = {name: list(places) for name, places in starts.items()}
    for group in left:
        profile = by_name[group.profile]
        parts = migparts.place(profile.slices, group.sizes)
        assert parts is not None, "a group was made of parts that do not fit"
        slots.append(Slot(group.profile, free[group.profile].pop(0), profile.size, tuple(sorted(parts))))
    return tuple(sorted(slots, key=lambda slot: slot.start))


def _beside(
    by_name: dict[str, MigProfile], placer: Placer, existing: Sequence[Existing], groups: Sequence[_Group]
) -> MigPlan | None:
    """The plan for all wanted instances beside those in use: only idle instances go."""
    busy = [instance for instance in existing if instance.in_use]
    idle = sorted((instance for instance in existing if not instance.in_use), key=lambda instance: instance.start)
    surplus_of = list(_surplus_sets(by_name, busy, groups))
    for lost in range(len(idle) + 1):
        for surplus in surplus_of:
            for kept in combinations(idle, len(idle) - lost):
                matched = _match(by_name, [*(instance for instance in busy if instance not in surplus), *kept], groups)
                target = None if matched is None else _completed(by_name, placer, *matched, surplus)
                if target is not None:
                    return MigPlan(steps=steps_between(existing, target), target=target, surplus=surplus)
    return None


def _surplus_sets(
    by_name: dict[str, MigProfile], busy: Sequence[Existing], groups: Sequence[_Group]
) -> Iterator[tuple[Existing, ...]]:
    """The smallest sets of instances in use that the layout has no place for; equal ones by their starts."""
    for number in range(len(busy) + 1):
        sets = [
            some
            for some in combinations(busy, number)
            if _match(by_name, [instance for instance in busy if instance not in some], groups) is not None
        ]
        if sets:
            yield from sets
            return


def steps_between(existing: Sequence[Existing], target: Sequence[Slot]) -> tuple[Step, ...]:
    """The steps that remove instances not in ``target``, then create the missing ones: each is possible once those
    before are done.
    """
    wanted = {slot.start: slot for slot in target}
    there = {instance.start: instance for instance in existing}
    away: list[Step] = []
    for instance in sorted(existing, key=lambda instance: instance.start):
        slot = wanted.get(instance.start)
        stays = slot is not None and slot.profile == instance.profile
        parts = slot.parts if slot is not None and stays else ()
        away += [DestroyCompute(instance.start, each.part) for each in instance.computes if each.part not in parts]
        if not stays:
            away.append(DestroyInstance(instance.start, instance.profile))
    new: list[Step] = []
    for slot in sorted(target, key=lambda slot: slot.start):
        present = there.get(slot.start)
        if present is None or present.profile != slot.profile:
            new.append(CreateInstance(slot.start, slot.profile, slot.size))
            new += [CreateCompute(slot.start, slot.profile, part) for part in slot.parts]
        else:
            have = [compute.part for compute in present.computes]
            new += [CreateCompute(slot.start, slot.profile, part) for part in slot.parts if part not in have]
    return (*away, *new)


def endangered(existing: Sequence[Existing], steps: Sequence[Step]) -> tuple[Existing, ...]:
    """The instances in use that these steps would remove, whole or in part."""
    hit = set()
    for step in steps:
        for instance in existing:
            if isinstance(step, DestroyInstance) and step.start == instance.start and instance.in_use:
                hit.add(instance.start)
            if isinstance(step, DestroyCompute) and step.start == instance.start:
                gone = [each for each in instance.computes if each.part == step.part]
                if instance.busy or any(each.busy for each in gone):
                    hit.add(instance.start)
    return tuple(instance for instance in existing if instance.start in hit)


def validate(profiles: Sequence[MigProfile], slots: Sequence[Slot]) -> None:
    """Check the invariants of a target: known places, no overlaps, no profile more often than it may be."""
    by_name = {profile.name: profile for profile in profiles}
    used: set[int] = set()
    for slot in slots:
        profile = by_name[slot.profile]
        span = set(range(slot.start, slot.start + slot.size))
        assert slot.size == profile.size, f"{slot.profile} of {slot.size} slices"
        assert slot.start in profile.starts, f"{slot.profile} at {slot.start}"
        assert used.isdisjoint(span), f"{slot.profile} at {slot.start} overlaps another"
        used |= span
        inside = [unit for part in slot.parts for unit in range(part.start, part.start + part.slices)]
        assert len(set(inside)) == len(inside), f"compute instances of {slot.profile} at {slot.start} overlap"
        assert all(unit < profile.slices for unit in inside), "a compute instance outside of its GPU instance"
    for name, count in Counter(slot.profile for slot in slots).items():
        assert count <= by_name[name].max_count, f"{count} x {name}"
