"""Chooses the devices of pods on one node as the scheduler would: the first that fit, request by request, in the order
of the slices, backtracking where a choice leads to no solution.

The number of steps is bounded: when they run out the answer is that there are no devices, though there may be some. So
an answer is never too high. Source: ``Allocator`` of ``k8s.io/dynamic-resource-allocation/structured``.
"""

from collections.abc import Iterable
from typing import Final

from controller.scheduler.dra.allocation.requests import MOST_DEVICES
from controller.scheduler.dra.allocation.views import Choice, Given, NumberedConstraint, Part, Parts, Set, State, View

STEPS: Final = 2000
"""Devices that are tried for one pod at most."""
_ALL_STEPS: Final = 10 * STEPS
"""Devices that are tried for all pods of one question at most."""
_MOST_PODS: Final = 256
"""Limit of pods counted on one node: no node runs more."""


def sets_of(view: View, state: State) -> tuple[Set, ...]:
    """Device sets for one pod after the other, for as many pods as possible. A prefix of the answer is the answer for
    fewer pods.
    """
    known = view.sets.get(state)
    if known is not None:
        return known
    taking = Taking(view, state)
    sets: list[Set] = []
    while len(sets) < _MOST_PODS and not view.failing and view.each:
        one = taking.one_pod()
        if one is None:
            break
        sets.append(one)
    return view.sets.remember(state, tuple(sets))


def with_sets(state: State, sets: Iterable[Set]) -> State:
    """The state with the devices of these sets given away as well."""
    devices, parts = state.devices, dict(state.parts)
    for given in (given for one in sets for given in one if not given.admin):
        devices |= 1 << given.device
        for part, nanos in given.parts:
            parts[part] = parts.get(part, 0) + nanos
    return State(devices, tuple(sorted(parts.items())))


def still_free(view: View, state: State, one: Set) -> bool:
    """Whether exactly these devices could be given to a pod now."""
    return Taking(view, state).takes(one)


class Taking:
    """A search for devices, with what is given away so far. Each step forward that leads nowhere is taken
    back exactly.
    """

    def __init__(self, view: View, state: State) -> None:
        self._view = view
        self._devices = state.devices
        self._parts: dict[Part, int] = dict(state.parts)
        self._counters = [0] * len(view.limits)
        for at, consumes in enumerate(view.consumes):
            if state.devices >> at & 1:
                for counter, nanos in consumes:
                    self._counters[counter] += nanos
        self._steps = self._left = _ALL_STEPS
        self._found: list[Given] = []
        self._before: list[int] = []
        """The value of ``_devices`` before each entry of ``_found`` was taken."""

    def one_pod(self) -> Set | None:
        """Finds devices for all claims of one pod, which count as given away from then on. None if there are none; the
        search must not be used after that.
        """
        budget = self._steps = min(STEPS, self._left)
        self._found, self._before = [], []
        try:
            devices = tuple(self._found) if self._claim(0) else None
        except RecursionError:
            return None
        self._left -= budget - self._steps
        return devices

    def takes(self, one: Set) -> bool:
        """Whether the devices are free and are exactly what the requests may get, in their order."""
        for claim, matched in enumerate(self._view.each):
            first = len(self._found)
            if not all(self._retakes(claim, first, request, one) for request in matched.requests):
                return False
        return len(self._found) == len(one)

    def _retakes(self, claim: int, first: int, request: tuple[Choice, ...], one: Set) -> bool:
        rest = one[len(self._found) :]
        choice = next((choice for choice in request if rest and choice.label == rest[0].label), None)
        if choice is None:
            return False
        wanted = choice.number or len(choice.devices)
        return len(rest) >= wanted and all(
            given.device in choice.devices
            and self._take(claim, first, choice, given.device)
            and self._found[-1] == given
            for given in rest[:wanted]
        )

    # -- one claim, one request, one device after the other ------------------------------------------------------------

    def _claim(self, at: int) -> bool:
        return at == len(self._view.each) or self._request(at, 0, len(self._found))

    def _request(self, claim: int, at: int, first: int) -> bool:
        """Finds devices for the requests of a claim from index ``at`` on. ``first``: where the devices of this claim
        begin in ``_found``.
        """
        requests = self._view.each[claim].requests
        if len(self._found) - first > MOST_DEVICES:
            return False
        if at == len(requests):
            return self._claim(claim + 1)
        for choice in requests[at]:
            wanted = choice.number or len(choice.devices)
            if wanted and self._device(claim, at, first, choice, 0, wanted):
                return True
        return False

    def _device(self, claim: int, at: int, first: int, choice: Choice, start: int, missing: int) -> bool:
        """Finds the ``missing`` devices of one request. A shared device may serve one request twice, but not a request
        for all devices.
        """
        if not missing:
            return self._request(claim, at + 1, first)
        devices = choice.devices
        for place in range(start, len(devices) if choice.number and choice.parts else len(devices) - missing + 1):
            self._steps -= 1
            if self._steps < 0:
                return False
            device = devices[place]
            if self._take(claim, first, choice, device):
                following = place if choice.number and device in choice.parts else place + 1
                if self._device(claim, at, first, choice, following, missing - 1):
                    return True
                self._give_back()
        return False

    def _take(self, claim: int, first: int, choice: Choice, device: int) -> bool:
        parts = choice.parts.get(device)
        if choice.admin:
            if any(given.device == device for given in self._found[first:]):
                return False
        elif not self._is_free(device, parts):
            return False
        if not all(self._suits(bound, first, choice.label, device) for bound in self._view.each[claim].bounds):
            return False
        taken = Given(claim, choice.label, device, choice.admin, () if choice.admin else parts or ())
        self._found.append(taken)
        self._before.append(self._devices)
        if not choice.admin:
            self._charge(taken, 1)
            self._devices |= 1 << device
        return True

    def _is_free(self, device: int, parts: Parts | None) -> bool:
        """Whether the device is free, or enough of it. ``parts``: None for a device that is not shared."""
        in_use = bool(self._devices >> device & 1)
        if in_use and parts is None:
            return False
        if any(self._parts.get(part, 0) + nanos > self._view.values[part] for part, nanos in parts or ()):
            return False
        limits, counters = self._view.limits, self._counters
        return in_use or all(counters[at] + nanos <= limits[at] for at, nanos in self._view.consumes[device])

    def _suits(self, bound: NumberedConstraint, first: int, label: str, device: int) -> bool:
        constraint, values = bound
        if not constraint.concerns(label):
            return True
        value = values[device]
        if value is None:
            return False
        others = [values[given.device] for given in self._found[first:] if constraint.concerns(given.label)]
        return value not in others if constraint.distinct else all(other == value for other in others)

    def _charge(self, given: Given, sign: int) -> None:
        """Charges (1) or gives back (-1) a device. Its counters are charged to the first user, at a time when
        ``_devices`` does not have the device yet.
        """
        if not self._devices >> given.device & 1:
            for counter, nanos in self._view.consumes[given.device]:
                self._counters[counter] += sign * nanos
        for part, nanos in given.parts:
            self._parts[part] = self._parts.get(part, 0) + sign * nanos

    def _give_back(self) -> None:
        given, self._devices = self._found.pop(), self._before.pop()
        if not given.admin:
            self._charge(given, -1)
