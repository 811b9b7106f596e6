"""The devices that claims hold, as their objects say: the pod that each was made for, and the pools of its devices."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from controller.objects.deviceclaims import ResourceClaim
from controller.objects.meta import ObjectMeta
from controller.scheduler.dra.allocation.offers import DeviceKey, PoolKey
from controller.scheduler.model.deviceclaims import ClaimKey

_NONE: Final[Mapping[ClaimKey, None]] = {}


class HeldDevice(NamedTuple):
    """A device of a claim. ``consumed``: nano-units by capacity name, for a shared device."""

    key: DeviceKey
    admin: bool
    consumed: tuple[tuple[str, int], ...]


class HeldClaim(NamedTuple):
    """A claim that has devices. ``pod``: ``namespace/name`` of the pod that it was made for; empty for a claim that
    pods share.
    """

    pod: str
    devices: tuple[HeldDevice, ...]


class HeldClaims:
    """The claims that have devices, by key, pool and pod. ``put`` and ``drop`` take any claims; those without devices
    are not kept.
    """

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, HeldClaim] = {}
        self._in_pool: dict[PoolKey, dict[ClaimKey, None]] = {}
        self._of_pod: dict[str, dict[ClaimKey, None]] = {}

    def put(self, given: ResourceClaim) -> tuple[PoolKey, ...]:
        """Store a claim. Returns the pools in which it now has other devices than before."""
        key, now = given.key, held_claim(given)
        return () if self._claims.get(key) == now else (*self.drop(key), *self._file(key, now))

    def drop(self, key: ClaimKey) -> tuple[PoolKey, ...]:
        known = self._claims.pop(key, None)
        if known is None:
            return ()
        pools = _pools(known)
        for pool in pools:
            _remove(self._in_pool, pool, key)
        if known.pod:
            _remove(self._of_pod, known.pod, key)
        return pools

    def get(self, key: ClaimKey) -> HeldClaim | None:
        return self._claims.get(key)

    def within(self, pools: Iterable[PoolKey]) -> Iterable[HeldClaim]:
        found = dict.fromkeys(key for pool in pools for key in self._in_pool.get(pool, _NONE))
        return [self._claims[key] for key in found]

    def of_pod(self, pod: str) -> Iterable[HeldClaim]:
        return [self._claims[key] for key in self._of_pod.get(pod, _NONE)]

    def _file(self, key: ClaimKey, now: HeldClaim | None) -> tuple[PoolKey, ...]:
        if now is None:
            return ()
        self._claims[key] = now
        pools = _pools(now)
        for pool in pools:
            self._in_pool.setdefault(pool, {})[key] = None
        if now.pod:
            self._of_pod.setdefault(now.pod, {})[key] = None
        return pools

    def validate(self) -> None:
        in_pool = {(pool, key) for key, held in self._claims.items() for pool in _pools(held)}
        of_pod = {(held.pod, key) for key, held in self._claims.items() if held.pod}
        if in_pool != {(pool, key) for pool, keys in self._in_pool.items() for key in keys} or of_pod != {
            (pod, key) for pod, keys in self._of_pod.items() for key in keys
        }:
            raise AssertionError("claims with devices are filed elsewhere than they are")
        if not all((*self._in_pool.values(), *self._of_pod.values())):
            raise AssertionError("pools or pods are kept that no claim is filed under")


def held_claim(given: ResourceClaim) -> HeldClaim | None:
    """The devices of a claim; None for a claim without an allocation."""
    allocation = given.status.allocation
    if allocation is None or not allocation.devices.results:
        return None
    devices = tuple(
        HeldDevice(
            (result.driver, result.pool, result.device),
            result.admin_access,
            tuple(sorted((name, amount.nanos) for name, amount in result.consumed_capacity.items())),
        )
        for result in allocation.devices.results
    )
    return HeldClaim(pod_of(given.metadata), devices)


def pod_of(meta: ObjectMeta) -> str:
    """``namespace/name`` of the pod that a claim was made for; empty where it was made for none."""
    owner = next((owner for owner in meta.owner_references if owner.controller and owner.kind == "Pod"), None)
    return "" if owner is None else f"{meta.namespace}/{owner.name}"


def _pools(held: HeldClaim) -> tuple[PoolKey, ...]:
    return tuple(dict.fromkeys((device.key[0], device.key[1]) for device in held.devices))


_Key = TypeVar("_Key")


def _remove(index: dict[_Key, dict[ClaimKey, None]], at: _Key, key: ClaimKey) -> None:
    found = index[at]
    del found[key]
    if not found:
        del index[at]
