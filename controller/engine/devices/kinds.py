"""What pools of one make have in common: how many pods fit into what is free of them, and which units they would get.

Thousands of nodes are of one make, and few different sets of their GPUs are ever free: every answer is kept.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final, NamedTuple

from controller.engine.devices.linkage import Linkage
from controller.engine.model import gpuparts as parts
from controller.engine.model.devicerequest import DeviceAsk, Link, normal
from controller.engine.model.gpuparts import Part, Piece

Free = tuple[int, ...]
"""By unit of a pool, how many more containers may hold it."""

Split = tuple[Part, ...]

_REMEMBERED: Final = 65_536


class Make(NamedTuple):
    """Of one unit: the place of its GPU on the board, and how many containers may hold it at once.

    ``alone``: all that a container asks for must be of one unit, as percents of a GPU are, in multiples of
    ``granularity``; ``spread``: the emptiest first. ``daemon``: the place of the first of the GPUs that share its MPS
    daemon, and that a container may have equal parts of; negative where it has its own.
    """

    gpu: int
    replicas: int
    product: str
    memory_mib: int
    alone: bool = False
    granularity: int = 1
    spread: bool = False
    daemon: int = -1


class DeviceKind:
    """``free`` is always what is free of those that are good enough, see ``open``.

    ``split``: what must lie together of a request for percents; empty where that is all of it.
    """

    def __init__(self, makes: tuple[Make, ...], links: Linkage) -> None:
        self.makes = makes
        self.links = links
        self.whole = all(make.replicas == 1 for make in makes) and len({make.gpu for make in makes}) == len(makes)
        """Each unit is a GPU of its own that one container holds: sets of them are masks."""
        self.alone = any(make.alone for make in makes)
        self.full: Free = tuple(make.replicas for make in makes)
        """What is free of a pool whose units are all well, and nobody's."""
        self._pieces = tuple(Piece(make.gpu, make.granularity, make.spread, make.daemon) for make in makes)
        self._good: dict[tuple[str, int], tuple[bool, ...]] = {}
        self._rooms: dict[tuple[Free, int, Link | None, Split], int] = {}
        self._choices: dict[tuple[Free, int, Link | None, Split], tuple[int, ...]] = {}

    @classmethod
    def of(cls, makes: tuple[Make, ...], links: Linkage) -> "DeviceKind":
        """The one that all pools of these units on such boards share."""
        known = links.kinds.get(makes)
        if not isinstance(known, cls):
            known = links.kinds[makes] = cls(makes, links)
        return known

    def open(self, free: Free, ask: DeviceAsk) -> Free:
        """What is free of those that are good enough."""
        if not (ask.product or ask.min_memory_mib):
            return free
        key = ask.product, ask.min_memory_mib
        good = self._good.get(key)
        if good is None:
            good = tuple(
                (not ask.product or normal(make.product) == ask.product) and make.memory_mib >= ask.min_memory_mib
                for make in self.makes
            )
            keep(self._good, key, good)
        return tuple(count if fine else 0 for count, fine in zip(free, good, strict=True))

    def room(self, free: Free, size: int, link: Link | None, split: Split = ()) -> int:
        """How many pods of ``size`` devices each could be given theirs."""
        if not self.alone and (link is None or size == 1):
            return sum(free) // size
        key = free, size, link, split if self.alone else ()
        known = self._rooms.get(key)
        if known is None:
            if self.alone:
                known = parts.room(self._pieces, free, split or (Part(size, size),), self._may_join(link))
            elif self.whole:
                known = self.links.room(self._mask(free), size, link)
            else:
                known = sum(sum(free[at] for at in group) // size for group in self._groups(link))
            keep(self._rooms, key, known)
        return known

    def choose(self, free: Free, size: int, link: Link | None, split: Split = ()) -> tuple[int, ...]:
        """Units for one pod, one entry for each device, in their order; empty where there is no such set."""
        key = free, size, link, split if self.alone else ()
        known = self._choices.get(key)
        if known is None:
            known = self._in_parts(free, size, link, split) if self.alone else self._chosen(free, size, link)
            keep(self._choices, key, known)
        return known

    def suits(self, counts: Free, size: int, split: Split) -> bool:
        """Whether so many of each unit could be what a pod has, as far as its containers' requests go."""
        return sum(counts) == size and (not self.alone or bool(self._in_parts(counts, size, None, split)))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _in_parts(self, free: Free, size: int, link: Link | None, split: Split) -> tuple[int, ...]:
        given = parts.choose(self._pieces, free, split or (Part(size, size),), self._may_join(link))
        return tuple(at for at, count in enumerate(given) for _ in range(count))

    def _may_join(self, link: Link | None) -> Callable[[int], bool] | None:
        return None if link is None else lambda mask: self.links.joined(mask, link)

    def _chosen(self, free: Free, size: int, link: Link | None) -> tuple[int, ...]:
        if self.whole:
            mask = self.links.choose(self._mask(free), size, link)
            return tuple(at for at, make in enumerate(self.makes) if mask >> make.gpu & 1)
        fitting = [group for group in self._groups(link) if sum(free[at] for at in group) >= size]
        if not fitting:
            return ()
        return self._packed(free, size, min(fitting, key=lambda units: (sum(free[at] for at in units), units)))

    def _mask(self, free: Free) -> int:
        mask = 0
        for make, counts in zip(self.makes, free, strict=True):
            if counts:
                mask |= 1 << make.gpu
        return mask

    def _groups(self, link: Link | None) -> Iterator[tuple[int, ...]]:
        for group in self.links.groups(link):
            members = tuple(at for at, make in enumerate(self.makes) if group >> make.gpu & 1)
            if members:
                yield members

    def _packed(self, free: Free, size: int, group: tuple[int, ...]) -> tuple[int, ...]:
        """Off the GPUs that are fullest, so that others stay untouched."""
        on_gpu: dict[int, int] = {}
        for at in group:
            on_gpu[self.makes[at].gpu] = on_gpu.get(self.makes[at].gpu, 0) + free[at]
        chosen: list[int] = []
        for at in sorted((at for at in group if free[at]), key=lambda at: (on_gpu[self.makes[at].gpu], free[at], at)):
            chosen += [at] * min(free[at], size - len(chosen))
        return tuple(sorted(chosen))


def keep(table: dict[Any, Any], key: Hashable, value: object) -> None:
    """Remember an answer; beyond so many all are forgotten and made anew as they are asked for."""
    if len(table) >= _REMEMBERED:
        table.clear()
    table[key] = value
