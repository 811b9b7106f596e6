"""The undo log: to try something is to apply and undo it, never to copy.

Each part of the engine records with every change the call that reverses it; ``rollback`` makes those calls, newest
first. Nothing is recorded outside a trial, so live changes leave no trace. One log may serve several parts (quota,
topology, queues): their changes are then undone together, in exactly the reverse order.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, NewType, Self

Mark = NewType("Mark", int)
"""The number of entries in the log when the trial began."""


class Trial:
    """``with log.trial() as trial:`` undoes on leaving whatever was done inside, unless ``trial.keep()`` was called."""

    def __init__(self, log: "UndoLog") -> None:
        self._log = log
        self._kept = False

    def __enter__(self) -> Self:
        self._mark = self._log.mark()
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._kept and error is None:
            self._log.keep(self._mark)
        else:
            self._log.rollback(self._mark)

    def keep(self) -> None:
        """Keep the changes (an enclosing trial can still undo them). An exception undoes them all the same."""
        self._kept = True


class UndoLog:
    """The log of reversing calls. Marks nest and are closed innermost first, each by one ``rollback`` or one
    ``keep``.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._marks: list[Mark] = []
        self.recording = False
        """Whether a trial is open: what is costly to record may be skipped while none is."""

    def record(self, reverse: Callable[..., object], *arguments: Any) -> None:
        """Remember that ``reverse(*arguments)`` undoes the change just made. The arguments must not change later."""
        if self.recording:
            self._entries.append((reverse, arguments))

    def trial(self) -> Trial:
        return Trial(self)

    def mark(self) -> Mark:
        mark = Mark(len(self._entries))
        self._marks.append(mark)
        self.recording = True
        return mark

    def rollback(self, mark: Mark) -> None:
        """Undo everything since ``mark`` and close it."""
        self._close(mark)
        # Reversing calls are themselves changes: while they run nothing is recorded.
        self.recording = False
        while len(self._entries) > mark:
            reverse, arguments = self._entries.pop()
            reverse(*arguments)
        self.recording = bool(self._marks)

    def keep(self, mark: Mark) -> None:
        """Keep everything since ``mark`` and close it. With no trial left open the log empties."""
        self._close(mark)
        self.recording = bool(self._marks)
        if not self.recording:
            self._entries.clear()

    def _close(self, mark: Mark) -> None:
        if not self._marks or self._marks[-1] != mark:
            raise ValueError(f"trials nest: mark {mark} is closed while the open ones are {self._marks}")
        self._marks.pop()
