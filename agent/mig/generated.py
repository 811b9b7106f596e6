"""The configurations that NVIDIA's MIG manager makes from the hardware where it is given no file. Pure.

``all-disabled``, ``all-enabled``, ``all-<profile>`` with as many of each profile as a GPU takes (a ``+`` is written
``.``), and ``all-balanced``. Source: mig-parted, its packages ``mig/discovery`` and ``mig/builder`` (since 0.14).
"""

from collections.abc import Iterable, Mapping, Sequence

from agent.mig.parted import BoardFilter, Configurations, PartedEntry
from inventory.devices import Gpu, MigProfile

BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""The number of instances of each count of compute slices that a GPU is cut into, by the slices of its largest
profile.
"""

_Boards = Mapping[int, Sequence[MigProfile]]


def configurations(gpus: Iterable[Gpu]) -> Configurations:
    """The node's MIG configurations by name; none where no GPU can do MIG. GPUs of one PCI id are of one kind."""
    boards = {gpu.pci_device_id: gpu.mig_profiles for gpu in gpus if gpu.mig_capable and gpu.mig_profiles}
    if not boards:
        return {}
    by_name: dict[str, tuple[PartedEntry, ...]] = {
        "all-disabled": (PartedEntry(enabled=False),),
        "all-enabled": (PartedEntry(enabled=True),),
    }
    for profile in sorted({profile.name for profiles in boards.values() for profile in profiles}):
        counts = {
            board: (profile,) * each.max_count
            for board, profiles in boards.items()
            for each in profiles
            if each.name == profile
        }
        by_name[f"all-{profile.replace('+', '.')}"] = _entries(boards, counts)
    balanced = {board: parts for board, profiles in boards.items() if (parts := _balanced(profiles))}
    if balanced:
        by_name["all-balanced"] = _entries(boards, balanced)
    return by_name


def _entries(boards: _Boards, wanted: Mapping[int, tuple[str, ...]]) -> tuple[PartedEntry, ...]:
    several = len(boards) > 1
    return tuple(
        PartedEntry(enabled=True, profiles=profiles, filters=(BoardFilter(board),) if several else ())
        for board, profiles in sorted(wanted.items())
    )


def _balanced(profiles: Sequence[MigProfile]) -> tuple[str, ...]:
    """The profiles that one GPU is cut into: profiles without attributes, of each size the one with the least memory;
    none where a size is missing.
    """
    plain = [profile for profile in profiles if "+" not in profile.name and "-" not in profile.name]
    formula = BALANCED.get(max((profile.slices for profile in plain), default=0), {})
    chosen: list[str] = []
    for slices, count in formula.items():
        alike = [profile for profile in plain if profile.slices == slices]
        if not alike:
            return ()
        chosen += [max(alike, key=lambda profile: profile.max_count).name] * count
    return tuple(chosen)
