"""All kinds of Volcano and KAI whose objects are checked when they are written."""

from typing import Final

from controller.foreign.rules.kai import KAI_POD_GROUP, KAI_QUEUE
from controller.foreign.rules.ruled import ForeignKind
from controller.foreign.rules.volcanodefaults import defaulted
from controller.foreign.rules.volcanojob import VOLCANO_JOB
from controller.foreign.rules.volcanoqueue import VOLCANO_POD_GROUP, VOLCANO_QUEUE

FOREIGN_KINDS: Final[tuple[ForeignKind, ...]] = (
    VOLCANO_JOB,
    VOLCANO_QUEUE,
    VOLCANO_POD_GROUP,
    KAI_QUEUE,
    KAI_POD_GROUP,
)
FOREIGN_JOB: Final = VOLCANO_JOB
"""The one of them that is a job."""
job_defaulted: Final = defaulted
"""Returns a foreign job with the defaults that its system's webhook would set."""
