"""Facts about an object itself, not about its value. A module of its own, because packages use it that have no other
subject in common.
"""

from typing import TypeVar

T = TypeVar("T")
V = TypeVar("V")


class ByIdentity(dict[int, tuple[T, V]]):
    """``id(one) -> (one, what is known of it)``, for objects that are costly to compare or equal to others.

    Each entry holds its object, so no other object can get that id while the entry exists: a reader need not check
    whose entry it found. Entries are read and written as those of any dict, because hot paths do so; nothing else may
    be stored under an id.
    """

    def validate(self) -> None:
        for key, (one, _) in self.items():
            if key != id(one):
                raise AssertionError(f"kept under another object's id: {one!r}")
