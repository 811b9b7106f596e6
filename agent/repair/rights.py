"""Whether this process may reset GPUs, as the kernel says."""

import re
from typing import Final

from agent.config.settings import Settings

_SYS_PTRACE: Final = 19
_SYS_ADMIN: Final = 21
"""Numbers of capabilities (linux/capability.h)."""


def may_reset(settings: Settings) -> bool:
    """Whether the process has what a reset takes: SYS_ADMIN for the driver, SYS_PTRACE to see who has a GPU open.
    Simulated GPUs take nothing; where the kernel does not tell, the answer is no.
    """
    if settings.simulate is not None:
        return True
    try:
        text = (settings.proc_root / "self" / "status").read_text()
    except OSError:
        return False
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    wanted = 1 << _SYS_PTRACE | 1 << _SYS_ADMIN
    return found is not None and int(found[1], 16) & wanted == wanted
