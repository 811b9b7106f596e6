"""Fragmentation: how many free devices recent requests could not use, as the expected value over their mix.

F(free) = sum over shapes m of p(m) * (devices free - size(m) * how many m fit). The idea is that of FGD (Weng et al.,
USENIX ATC 2023), with links in place of shares of a GPU. Weights of shapes halve every ``HALF_LIFE_S``. As a prior, one
pod each of one, two, four and eight linked GPUs is counted; for percents, one of half a GPU and one of a whole.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.scheduler.devices.board import Pool
from controller.scheduler.devices.kinds import REMEMBERED, Free
from controller.scheduler.model.caches import Bounded
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.model.resources import ResourceName
from inventory.layout.entries import PERCENT_RESOURCE

HALF_LIFE_S: Final = 3600.0
_REFRESHED_S: Final = 60.0
_SHAPES: Final = 16
_KEPT: Final = 256
_LEAST: Final = 1e-6
_PRIOR: Final = tuple(
    (size, PodDeviceRequest(link=Link.NVLINK) if size > 1 else PodDeviceRequest()) for size in (1, 2, 4, 8)
)
_PRIOR_PERCENTS: Final = tuple((size, PodDeviceRequest()) for size in (50, 100))


class DeviceShape(NamedTuple):
    """The request of one pod for devices of one resource."""

    resource: ResourceName
    size: int
    ask: PodDeviceRequest


class Mix:
    """The recent requests. Scores are those of the mix at the last ``refresh``, whatever has been noted since."""

    def __init__(self) -> None:
        self._weights: dict[DeviceShape, float] = {}
        self._at_s = 0.0
        """The time to which the weights have decayed."""
        self._refreshed_s = float("-inf")
        self._fresh = True
        self.version = 0
        """A number that grows with each ``refresh`` that changed the mix."""
        self._shares: dict[ResourceName, tuple[tuple[int, PodDeviceRequest, float], ...]] = {}
        self._scores = Bounded[tuple[object, ResourceName, Free], float](REMEMBERED)
        self._rises = Bounded[tuple[object, ResourceName, Free, int, PodDeviceRequest, int], float](REMEMBERED)

    def note(self, shape: DeviceShape, pods: int) -> None:
        """Count ``pods`` more pods of this shape that were placed."""
        self._weights[shape] = self._weights.get(shape, 0.0) + pods
        self._fresh = False

    def refresh(self, now_s: float, *, anew: bool = False) -> None:
        """Bring the mix to ``now_s``; call it between decisions. Without ``anew`` at most once every
        ``_REFRESHED_S``.
        """
        if self._fresh or (not anew and now_s - self._refreshed_s < _REFRESHED_S):
            return
        lapsed_s = max(0.0, now_s - self._at_s) if self._at_s else 0.0
        decay = 0.5 ** (lapsed_s / HALF_LIFE_S)
        weighed = sorted(((weight * decay, shape) for shape, weight in self._weights.items()), key=_heaviest)
        self._weights = {shape: weight for weight, shape in weighed[:_KEPT] if weight > _LEAST}
        self._at_s = self._refreshed_s = now_s
        self._fresh = True
        self.version += 1
        self._shares.clear()
        self._scores.clear()
        self._rises.clear()

    def unusable(self, pool: Pool, resource: ResourceName, free: Free) -> float:
        """The expected number of devices of ``free`` that a recent request could not use."""
        key = pool.kind, resource, free
        known = self._scores.get(key)
        if known is None:
            whole = sum(free)
            known = 0.0
            for size, ask, share in self._shares_of(resource):
                known += share * (
                    whole - size * pool.kind.fitting_pods(pool.kind.open(free, ask), size, ask.link, ask.split)
                )
            self._scores.remember(key, known)
        return known

    def rise(
        self, pool: Pool, resource: ResourceName, free: Free, size: int, ask: PodDeviceRequest, pods: int
    ) -> float:
        """How much ``unusable`` grows when ``pods`` more pods take devices; infinite where they do not fit."""
        key = pool.kind, resource, free, size, ask, pods
        known = self._rises.get(key)
        if known is None:
            left: Free | None = free
            for _ in range(pods):
                left = None if left is None else _without(pool, left, size, ask)
            before = self.unusable(pool, resource, free)
            known = float("inf") if left is None else self.unusable(pool, resource, left) - before
            self._rises.remember(key, known)
        return known

    def shapes(self) -> Mapping[DeviceShape, float]:
        """The weight of each shape, for display."""
        return dict(self._weights)

    def _shares_of(self, resource: ResourceName) -> tuple[tuple[int, PodDeviceRequest, float], ...]:
        known = self._shares.get(resource)
        if known is None:
            weights = dict.fromkeys(_PRIOR_PERCENTS if str(resource) == PERCENT_RESOURCE else _PRIOR, 1.0)
            seen = [(weight, shape) for shape, weight in self._weights.items() if shape.resource == resource]
            for weight, shape in sorted(seen, key=_heaviest)[:_SHAPES]:
                weights[shape.size, shape.ask] = weights.get((shape.size, shape.ask), 0.0) + weight
            total = sum(weights.values())
            known = tuple((size, ask, weight / total) for (size, ask), weight in weights.items())
            self._shares[resource] = known
        return known


def _without(pool: Pool, free: Free, size: int, ask: PodDeviceRequest) -> Free | None:
    open_ = pool.kind.open(free, ask)
    chosen = pool.kind.choose(open_, size, ask.link, ask.split)
    if not chosen and ask.wished:
        chosen = pool.kind.choose(open_, size, None, ask.split)
    if not chosen:
        return None
    left = list(free)
    for at in chosen:
        left[at] -= 1
    return tuple(left)


def _heaviest(weighed: tuple[float, DeviceShape]) -> tuple[float, str]:
    return -weighed[0], str(weighed[1])
