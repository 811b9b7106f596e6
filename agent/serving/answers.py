"""What the agent's listeners ask of the rest of it."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from agent.report import NodeReport


class Answers(Struct, frozen=True):
    """The functions that answer requests. ``healthy`` and ``ready`` answer with None, or with why not.

    ``release_gpu`` gets index, seconds and whether it is to be forced; raises ValueError with why not.
    """

    exposition: Callable[[], bytes]
    report: Callable[[], NodeReport]
    healthy: Callable[[], str | None]
    ready: Callable[[], str | None]
    release: Callable[[float], None]
    release_gpu: Callable[[int, float, bool], Awaitable[str]] | None = None
