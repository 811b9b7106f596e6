"""Plans a GPU's MIG instances at given places: every wanted instance has its place already. Pure.

    exact(profiles, existing, wanted) -> MigPlan | InTheWay | DoesNotFit

It serves instances that another program placed (a scheduler, by shared counters). Each wanted instance stands for
itself: one that is blocked keeps none of the others from being made.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from inventory.devices import MigProfile
from inventory.mig.plan import DoesNotFit, Existing, InTheWay, MigPlan, Slot, endangered, steps_between


def overlap(one: Slot | Existing, other: Slot | Existing) -> bool:
    """Whether two instances would share a memory slice."""
    return one.start < other.start + other.size and other.start < one.start + one.size


def exact(
    profiles: Sequence[MigProfile], existing: Sequence[Existing], wanted: Sequence[Slot]
) -> MigPlan | InTheWay | DoesNotFit:
    """The plan from ``existing`` to exactly ``wanted``, without touching instances in use."""
    why = _impossible(profiles, wanted)
    if why is not None:
        return DoesNotFit(why)
    steps = steps_between(existing, wanted)
    blocking = endangered(existing, steps)
    if not blocking:
        return MigPlan(steps=steps, target=tuple(sorted(wanted, key=lambda slot: slot.start)))
    free = [slot for slot in wanted if not any(overlap(slot, instance) for instance in blocking)]
    target = tuple(sorted((*free, *(instance.slot for instance in blocking)), key=lambda slot: slot.start))
    staying = tuple(instance for instance in existing if instance.slot in wanted)
    beside = None
    if _impossible(profiles, target) is None:
        beside = MigPlan(steps=steps_between(existing, target), target=target, surplus=blocking)
    return InTheWay(blocking=blocking, kept=staying, beside=beside)


def _impossible(profiles: Sequence[MigProfile], slots: Sequence[Slot]) -> str | None:
    """Why an empty GPU of this kind cannot have these instances, or None."""
    known = {profile.name: profile for profile in profiles}
    for number, slot in enumerate(slots):
        profile = known.get(slot.profile)
        if profile is None:
            return f"{slot.profile} is no profile of this GPU, which has {_listed(known)}"
        if slot.start not in profile.starts or slot.size != profile.size:
            return f"{slot.profile} cannot stand at slice {slot.start}"
        other = next((other for other in slots[:number] if overlap(slot, other)), None)
        if other is not None:
            return f"{slot.profile} at slice {slot.start} and {other.profile} at slice {other.start} overlap"
    for name, count in Counter(slot.profile for slot in slots).items():
        if count > known[name].max_count:
            return f"found {count} of {name}, expected {known[name].max_count} at most"
    total, most = sum(known[slot.profile].slices for slot in slots), max((p.slices for p in profiles), default=0)
    return f"found {total} compute slices, expected {most} at most" if total > most else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
