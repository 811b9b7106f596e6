"""All serving kinds. Configuration, policies, watches and reconcilers know them by this table alone."""

from typing import Final

from controller.jobs.serving.apps import Deployment, StatefulSet
from controller.jobs.serving.kind import ServingKind, StampedKind
from controller.jobs.serving.leaderworkerset import LeaderWorkerSet

SERVING_KINDS: Final[tuple[ServingKind, ...]] = (StatefulSet(), LeaderWorkerSet())

STAMPED_KINDS: Final[tuple[StampedKind, ...]] = (Deployment(), *SERVING_KINDS)

SERVING_PARENTS: Final = frozenset(kind.framework for kind in SERVING_KINDS)
"""The values of the mark of pods that wait for a group."""
