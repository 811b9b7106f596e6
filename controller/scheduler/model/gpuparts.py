"""Parts of GPUs: the percents of one container lie on one GPU, those of a pod's containers may lie on several.

    PodSpec -> parts_of -> Part, ...        free percents by GPU, parts -> choose, fitting_pods

A pod may also ask for equal parts of several GPUs that share an MPS daemon: that is one ``Part`` with their number.

The kubelet gives devices to one container after the other, init containers first. Devices of an init container are
passed on: the next containers are served from them, and where that is not enough the rest must be of the same GPU.
Source: ``pkg/kubelet/cm/devicemanager``, ``Allocate`` and ``devicesToAllocate``.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, islice
from math import gcd
from typing import Final, NamedTuple

from controller.objects.core import Container, PodSpec
from controller.objects.quantity import NANO

_MOST_PODS: Final = 256
"""Limit of pods counted on one node: no node runs more."""
_SEARCHED: Final = 12
"""Parts of one pod up to which all ways are tried; for more parts only the greedy way is."""
_STEPS: Final = 2000

Joined = Callable[[int], bool]


class Part(NamedTuple):
    """``size`` units of one GPU. ``step`` divides the request of each of its containers: the GPU's granularity must
    divide it. ``gpus``: this much of each of so many GPUs of one daemon; a part of more than one GPU is the whole
    request of its pod.
    """

    size: int
    step: int
    gpus: int = 1


class Piece(NamedTuple):
    """A GPU that is given away in parts: its place on the board, and the granularity of its parts. ``spread``: the
    emptiest GPU is taken first, as a site may want for all GPUs of a node. ``daemon`` is the place of the first GPU
    that its MPS daemon serves.
    """

    gpu: int
    granularity: int
    spread: bool = False
    daemon: int = -1


def parts_of(spec: PodSpec, resource: str) -> tuple[Part, ...]:
    """The parts that must each lie on one GPU, in the kubelet's order."""
    parts: list[Part] = []
    handed_on, at = 0, 0
    init = [(init_container, init_container.restart_policy != "Always") for init_container in spec.init_containers]
    for container, ends in (*init, *((each, False) for each in spec.containers)):
        size = asks(container, resource)
        if not size:
            continue
        if handed_on:
            known = parts[at]
            parts[at] = Part(known.size + max(0, size - handed_on), gcd(known.step, size))
        else:
            at = len(parts)
            parts.append(Part(size, size))
        handed_on = max(handed_on, size) if ends else max(0, handed_on - size)
    return tuple(parts)


def asks(container: Container, resource: str) -> int:
    """How much of an extended resource the container requests."""
    resources = container.resources
    quantity = resources.requests.get(resource) or resources.limits.get(resource)
    return 0 if quantity is None else max(0, -(-quantity.nanos // NANO))


def choose(pieces: Sequence[Piece], free: Sequence[int], parts: Sequence[Part], joined: Joined | None) -> list[int]:
    """How much of each GPU a pod gets; empty where it finds none. ``joined``: whether a mask's GPUs may be used
    together.

    The largest part is placed first, each on the fullest GPU on which it fits, or on the emptiest where the site
    spreads; if that fails all ways are tried.
    """
    if sum(part.size * part.gpus for part in parts) > sum(free):
        return []
    if parts[0].gpus > 1:
        return _on_several(pieces, free, parts[0], joined)
    order = sorted(parts, reverse=True)
    for steps in (len(order), _STEPS) if len(order) <= _SEARCHED else (len(order),):
        found = _Packing(pieces, list(free), order, joined, steps)
        if found.run():
            return [had - left for had, left in zip(free, found.left, strict=True)]
    return []


def fitting_pods(pieces: Sequence[Piece], free: Sequence[int], parts: Sequence[Part], joined: Joined | None) -> int:
    """How many pods find their parts one after the other, each as ``choose`` gives them."""
    first = parts[0]
    if first.gpus == 1 and (len(parts) == 1 or (joined is None and all(part == first for part in parts))):
        each = [
            units // first.size for piece, units in zip(pieces, free, strict=True) if not first.step % piece.granularity
        ]
        return sum(each) // len(parts)
    left, count = list(free), 0
    while count < _MOST_PODS and (given := choose(pieces, left, parts, joined)):
        left = [had - mine for had, mine in zip(left, given, strict=True)]
        count += 1
    return count


def _on_several(pieces: Sequence[Piece], free: Sequence[int], part: Part, joined: Joined | None) -> list[int]:
    """``choose`` for equal parts of several GPUs of one daemon. If several such sets exist, the one with the fullest
    GPUs is taken.
    """
    fitting: dict[int, list[int]] = {}
    for at, piece in enumerate(pieces):
        if piece.daemon >= 0 and free[at] >= part.size and not part.step % piece.granularity:
            fitting.setdefault(piece.daemon, []).append(at)

    def rank(at: int) -> tuple[int, int]:
        return (-free[at] if pieces[at].spread else free[at], at)

    places_of_each: list[list[int]] = []
    for places in fitting.values():
        sets = combinations(sorted(places, key=rank), part.gpus)
        tried = islice(sets, _STEPS if joined is not None else 1)
        first = next((each for each in tried if joined is None or joined(_mask(pieces, each))), None)
        places_of_each += [] if first is None else [list(first)]
    best = min(places_of_each, key=lambda places: [rank(at) for at in reversed(places)], default=[])
    return [part.size * (at in best) for at in range(len(pieces))] if best else []


def _mask(pieces: Sequence[Piece], places: Iterable[int]) -> int:
    mask = 0
    for at in places:
        mask |= 1 << pieces[at].gpu
    return mask


class _Packing:
    """A search for a GPU for each part; it gives up after ``steps`` steps."""

    def __init__(
        self, pieces: Sequence[Piece], left: list[int], order: Sequence[Part], joined: Joined | None, steps: int
    ) -> None:
        self.left = left
        self._pieces = pieces
        self._order = order
        self._joined = joined
        self._steps = steps

    def run(self) -> bool:
        return self._place(0, 0) if len(self._order) <= _SEARCHED else self._greedy()

    def _place(self, at: int, mask: int) -> bool:
        if at == len(self._order):
            return True
        part, tried = self._order[at], set[tuple[int, ...]]()
        for place in self._fitting(part, mask):
            # GPUs with the same amount left are interchangeable, unless links tell them apart.
            alike = (self.left[place], self._pieces[place].granularity, place if self._joined is not None else 0)
            if alike in tried:
                continue
            tried.add(alike)
            if self._steps <= 0:
                return False
            self._steps -= 1
            self.left[place] -= part.size
            if self._place(at + 1, mask | 1 << self._pieces[place].gpu):
                return True
            self.left[place] += part.size
        return False

    def _greedy(self) -> bool:
        mask = 0
        for part in self._order:
            place = next(iter(self._fitting(part, mask)), None)
            if place is None:
                return False
            self.left[place] -= part.size
            mask |= 1 << self._pieces[place].gpu
        return True

    def _fitting(self, part: Part, mask: int) -> list[int]:
        left, joined = self.left, self._joined
        fitting = [
            at
            for at, piece in enumerate(self._pieces)
            if left[at] >= part.size
            and not part.step % piece.granularity
            and (joined is None or joined(mask | 1 << piece.gpu))
        ]
        return sorted(fitting, key=lambda at: (-left[at] if self._pieces[at].spread else left[at], at))
