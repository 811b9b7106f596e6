"""All serving kinds. Configuration, policies, watches and reconcilers know them by this table alone."""

from typing import Final

from controller.servingkinds.kind import ServingKind
from controller.servingkinds.leaderworkerset import LeaderWorkerSet
from controller.servingkinds.statefulset import StatefulSet

SERVING_KINDS: Final[tuple[ServingKind, ...]] = (StatefulSet(), LeaderWorkerSet())
