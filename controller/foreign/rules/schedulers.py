"""The scheduler that binds pods which name Volcano's or KAI's.

Tessera decides and the default scheduler binds. A pod that names a scheduler which does not run waits for ever, without
an event. Templates stay as they are written: a change would be one more difference for tools that apply them again, and
every pod made of one passes the API server itself.
"""

from collections.abc import Collection
from typing import Final

from controller.foreign.rules.ruled import System

DEFAULT_SCHEDULER: Final = "default-scheduler"
SCHEDULERS: Final[dict[System, str]] = {"volcano": "volcano", "kai": "kai-scheduler"}
"""The usual names of the systems' schedulers; a site may have others."""


def bound_by(
    scheduler_name: str,
    system: System = "volcano",
    *,
    names: Collection[str] = (),
    keep: bool = False,
) -> str:
    """The ``schedulerName`` of a pod that the controller makes for ``system``.

    ``names``: those of the system's schedulers, if the site has others. ``keep``: the system's scheduler runs and binds
    what is admitted; it gets a pod that names none.
    """
    own = tuple(names) or (SCHEDULERS[system],)
    if keep:
        return scheduler_name or own[0]
    return DEFAULT_SCHEDULER if scheduler_name in ("", *own) else scheduler_name
