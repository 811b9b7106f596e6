"""The bound of request bodies that are held at a time. Pure: what may be accepted, and what must be refused.

Bytes count when they have arrived, not when they were announced: a sender who announces much and sends little blocks
nobody. A body beyond the bound is refused, which makes room at once, so that of many large bodies some are always read
to their end.
"""

from typing import Final

ONE_BYTES: Final = 4 * 1024 * 1024
"""The bound of one object and its review. The API server takes 3 MiB of an object, and etcd half of that."""
MANY_BYTES: Final = 64 * 1024 * 1024
"""The bound of a conversion review of many objects: an unpaged list comes as one."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""The bound of all bodies together; bodies that are not large take half of it at most."""


class BodyTooLargeError(Exception):
    """The body is larger than its path takes."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the body is larger than {most_bytes} bytes")


class BodiesFullError(Exception):
    """Other bodies take all the memory that bodies may have: the sender may try again later."""


class Body:
    """One body that is being received, until ``close``."""

    def __init__(self, bodies: "Bodies", most_bytes: int) -> None:
        self._bodies = bodies
        self._most_bytes = most_bytes
        self.held_bytes = 0
        self.is_large = False

    def take(self, more_bytes: int) -> None:
        """Counts bytes that have arrived. Raises BodyTooLargeError and BodiesFullError, after which the body is to be
        closed.
        """
        found = self.held_bytes + more_bytes
        if found > self._most_bytes:
            raise BodyTooLargeError(self._most_bytes)
        self._bodies.grow(self, more_bytes)

    def close(self) -> None:
        """Releases the body's bytes. Must be called, and may be called again."""
        self._bodies.drop(self)


class Bodies:
    """All bodies that are held. ``_held`` has exactly the open ones, and ``_large`` is the one of them that may be
    large, or None; ``held_bytes`` is the sum of their bytes.
    """

    def __init__(self, held_bytes: int = HELD_BYTES, one_bytes: int = ONE_BYTES) -> None:
        self._most_bytes = held_bytes
        self._small_bytes = held_bytes // 2
        self._one_bytes = one_bytes
        self._held: set[Body] = set()
        self._large: Body | None = None
        self.held_bytes = 0

    def open(self, announced_bytes: int | None, most_bytes: int) -> Body:
        """A new body. ``announced_bytes``: None if the length is not known, which counts as large where large bodies
        are accepted.

        Raises BodyTooLargeError and BodiesFullError.
        """
        if announced_bytes is not None and announced_bytes > most_bytes:
            raise BodyTooLargeError(most_bytes)
        body = Body(self, most_bytes)
        if most_bytes > self._one_bytes and (announced_bytes is None or announced_bytes > self._one_bytes):
            self._enlarge(body)
        self._held.add(body)
        return body

    def grow(self, body: Body, more_bytes: int) -> None:
        if body not in self._held:
            raise BodiesFullError
        if body.held_bytes + more_bytes > self._one_bytes:
            self._enlarge(body)
        if self.held_bytes + more_bytes > self._most_bytes:
            raise BodiesFullError
        if not body.is_large and self._held_small + more_bytes > self._small_bytes:
            raise BodiesFullError
        body.held_bytes += more_bytes
        self.held_bytes += more_bytes

    @property
    def _held_small(self) -> int:
        return self.held_bytes - (self._large.held_bytes if self._large is not None else 0)

    def _enlarge(self, body: Body) -> None:
        if self._large is not None and self._large is not body:
            raise BodiesFullError
        self._large, body.is_large = body, True

    def drop(self, body: Body) -> None:
        if body in self._held:
            self._held.remove(body)
            self.held_bytes -= body.held_bytes
        if self._large is body:
            self._large = None

    def validate(self) -> None:
        assert self.held_bytes == sum(body.held_bytes for body in self._held) <= self._most_bytes
        assert self._held_small <= self._small_bytes
        large = {body for body in self._held if body.is_large}
        assert large == ({self._large} if self._large is not None else set())
        assert all(body.is_large for body in self._held if body.held_bytes > self._one_bytes)
