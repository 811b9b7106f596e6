"""Energy by pod, summed up from pass to pass. Pure.

The device counter's gain since the last pass is divided in proportion to power. Only present pods have an account: the
energy of ended pods is kept as one sum, for ``validate``.
"""

from collections.abc import Hashable, Mapping
from math import isclose
from typing import Generic, TypeVar

from msgspec import Struct, field

Device = TypeVar("Device", bound=Hashable)
User = TypeVar("User", bound=Hashable)


class Account(Struct, Generic[User]):
    """One device's energy since its first pass, mJ. ``counter_mj`` is the device's own counter, as last read."""

    counter_mj: float
    gained_mj: float = 0.0
    unattributed_mj: float = 0.0
    ended_mj: float = 0.0
    users_mj: dict[User, float] = field(default_factory=dict)


class EnergyLedger(Generic[Device, User]):
    """The accounts of one node. ``User`` is a pod on a device, or on a part of it."""

    def __init__(self) -> None:
        self._accounts: dict[Device, Account[User]] = {}

    def add(self, device: Device, counter_mj: float, watts: Mapping[User, float], total_w: float) -> None:
        """Take in a pass: the device's counter, and the division of its power ``total_w`` since the last pass."""
        account = self._accounts.get(device)
        if account is None:
            account = self._accounts[device] = Account(counter_mj)
        gained = counter_mj - account.counter_mj
        if gained < 0:
            gained = counter_mj  # the counter restarted with the GPU
        account.counter_mj = counter_mj
        account.gained_mj += gained
        for user in [each for each in account.users_mj if each not in watts]:
            account.ended_mj += account.users_mj.pop(user)
        attributed = 0.0
        for user, part_w in watts.items():
            part = gained * (part_w / total_w) if total_w > 0 else 0.0
            account.users_mj[user] = account.users_mj.get(user, 0.0) + part
            attributed += part
        account.unattributed_mj += max(0.0, gained - attributed)

    def keep(self, devices: set[Device]) -> None:
        """Drop the devices that are not in ``devices``."""
        for device in self._accounts.keys() - devices:
            del self._accounts[device]

    def account(self, device: Device) -> Account[User] | None:
        return self._accounts.get(device)

    def validate(self) -> None:
        """Check that the energy of pods, of ended pods and of no pod add up to the device's, and that none is
        negative.
        """
        for device, account in self._accounts.items():
            parts = [*account.users_mj.values(), account.ended_mj, account.unattributed_mj]
            assert all(part >= 0 for part in parts), f"{device}: a negative amount of energy"
            assert isclose(sum(parts), account.gained_mj, rel_tol=1e-6, abs_tol=1e-3), f"{device}: energy is lost"
