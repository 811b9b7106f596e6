"""What one node's devices are given to: claims that have them, and what is planned for pods that have none yet."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.dra.allocation.resolving import Extended
from controller.scheduler.dra.allocation.views import Set, State
from controller.scheduler.model.deviceclaims import ClaimKey, ClaimNames

NOTHING: Final = State()


class ClaimGrant(NamedTuple):
    """The devices of one pod set on one node. ``pods`` pods of the owner run there; ``sets`` are planned for those of
    them that have no devices yet, as far as there are any. ``shared``: planned devices of shared claims that have none
    yet and that no earlier grant has.
    """

    owner: GrantOwner
    pods: int
    names: ClaimNames | None
    sets: tuple[Set, ...] = ()
    shared: tuple[tuple[ClaimKey, Set], ...] = ()
    assumed: bool = False
    """Whether the grant exists only while a question is answered."""
    extended: Extended = ()
    """Extended resources of device classes that each pod asks for, whether or not the node offers them itself."""


class Holdings(NamedTuple):
    """What claims hold on a node: those of pods that were not placed here (``foreign``), and those of each pod set.
    ``claims``: how many claims each of the pod set's pods has.
    """

    foreign: State = NOTHING
    by_owner: Mapping[GrantOwner, State] = {}
    claims: Mapping[GrantOwner, tuple[int, ...]] = {}


class NodeClaims:
    """The plan of one node. Only ``put`` changes ``grants``. ``ClaimSupply`` alone writes the other fields.

    ``states`` follow from ``grants``, ``holdings``, ``seen`` and the pods on the node, ``holdings`` from claims, pods
    and slices: ``put`` drops what follows from the grants, ``forget`` all of it.

    ``__slots__`` save 40 bytes of each, 0.4 MiB of 10,000 nodes.
    """

    __slots__ = ("grants", "holdings", "name", "seen", "states")

    def __init__(self, name: str) -> None:
        self.name = name
        self.grants: tuple[ClaimGrant, ...] = ()
        self.seen: set[GrantOwner] = set()
        """Pod sets that have or had a grant on this node: a pod of one without a grant is stopping.
        ``ClaimSupply`` adds the owner of each new grant, and drops those without a grant and a pod.
        """
        self.holdings: Holdings | None = None
        """What claims hold on the node; ``ClaimSupply`` recomputes it where it is missing."""
        self.states: dict[bool, State] = {}
        """Everything given away, by whether the cluster is taken as empty; ``ClaimSupply`` recomputes what is missing.
        """

    def put(self, grants: tuple[ClaimGrant, ...]) -> None:
        self.grants = grants
        self.states.clear()

    def forget(self) -> None:
        """Drops cached results after claims, pods or slices have changed."""
        self.holdings = None
        self.states.clear()


def handed_over(gone: ClaimGrant, grants: tuple[ClaimGrant, ...]) -> tuple[ClaimGrant, ...]:
    """The grants that are left after ``gone`` is removed: its planned devices of a shared claim go to the next grant
    whose pods have the claim.
    """
    left = list(grants)
    for key, devices in gone.shared:
        heir = next((at for at, grant in enumerate(left) if grant.assumed is gone.assumed and _has(grant, key)), None)
        if heir is not None:
            left[heir] = left[heir]._replace(shared=(*left[heir].shared, (key, devices)))
    return tuple(left)


def _has(grant: ClaimGrant, key: ClaimKey) -> bool:
    names = grant.names
    return names is not None and any(f"{names.namespace}/{name}" == key for _, name in names.claims)


def merged(one: State, other: State) -> State:
    """The union of what is given away in both states. Parts of shared devices add up."""
    if other == NOTHING:
        return one
    parts = dict(one.parts)
    for part, nanos in other.parts:
        parts[part] = parts.get(part, 0) + nanos
    return State(one.devices | other.devices, tuple(sorted(parts.items())))
