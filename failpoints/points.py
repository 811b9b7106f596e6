"""Where tests end, stall or fail a process: before and after each step that makes something durable or visible.

    points.before(Failpoint.CHECKPOINT)
    temporary.replace(path)
    points.after(Failpoint.CHECKPOINT)

Both functions do nothing, and no variable, flag or file makes them do anything: what is armed is put in their place by
tests alone (``hack.failpoints``). Callers look them up in this module at each call, for that reason.
"""

from failpoints.names import Failpoint


def before(failpoint: Failpoint | None) -> None:
    """The step comes next: nothing of it is done."""


def after(failpoint: Failpoint | None) -> None:
    """The step is done, and nothing that follows from it."""
