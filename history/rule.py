"""The base of all rules. Each says in its head for how long a state may last before it counts."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from msgspec import Struct

from history.hands import Hands
from history.objects import Key
from history.quotas import Quotas
from history.world import World

LATE_S = 5.0
"""The seconds by which one source may be later than another: no state counts that does not last longer."""


class Wrong(NamedTuple):
    """``objects``: those concerned, which are also what makes it the same wrong as a moment ago.
    ``later_s``: it counts so much later than its rule says.
    """

    objects: tuple[str, ...]
    message: str
    later_s: float = 0.0


class Scene(Struct):
    """The state that all rules look at: it is brought up to date before they do."""

    world: World
    quotas: Quotas
    hands: Hands
    unseen: set[str] = set()
    """What the record does not show: ``Judge`` adds what the recorder says of itself, ``Forgotten`` what a rule could
    not ask.
    """


class Rule:
    """``lasts_s``: a wrong counts once it has lasted for so long, in time in which the recorder saw everything."""

    name: ClassVar[str]
    lasts_s: ClassVar[float]
    kinds: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, *, name: str, lasts_s: float, kinds: tuple[str, ...]) -> None:
        cls.name, cls.lasts_s, cls.kinds = name, lasts_s, kinds

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.world = scene.world

    def subjects(self, touched: Iterable[Key]) -> Iterator[Key]:
        """The objects to be judged again, of those that a fact has touched."""
        return (each for each in touched if each.kind in self.kinds)

    def wrongs(self, subject: Key) -> Iterator[Wrong]:
        """All that is wrong with it now."""
        raise NotImplementedError
