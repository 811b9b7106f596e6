"""Chooses the layout that holds on this node: that of the GpuLayout object that selects it, else the config file's. A
GpuLayout's settings of repairs are laid over the file's.
"""

import msgspec
from msgspec.structs import replace

from agent.cluster.gpulayouts import Chosen
from agent.config.settings import Settings
from agent.health.remediation import Remediation, ResetMode
from agent.nodestate import Choices
from agent.words import repairs as words
from inventory.layout.entries import GpuLayoutSpec


class LayoutChoice:
    """The choice of one node. ``object_layout`` is the layout of the last GpuLayout, None for none. It holds until the
    API server says otherwise: the file's layout must not take its place between a start and the first answer.
    ``settings`` are those in force: ``Agent.reconfigure`` replaces them. ``may_reset``: whether the process has the
    rights that a reset takes.
    """

    def __init__(self, settings: Settings, object_layout: GpuLayoutSpec | None, *, may_reset: bool = True) -> None:
        self.settings = settings
        self._may_reset = may_reset
        self.object_layout = object_layout if settings.use_api_server else None
        self.problems: tuple[str, ...] = ()
        """Why no GpuLayout can be followed, one line at most."""

    @property
    def choices(self) -> Choices:
        settings = self.settings
        choices = Choices(
            layout=settings.layout,
            gpu_layout=settings.gpu_layout,
            allocation=settings.allocation,
            replica_policy=settings.replica_policy,
            health=settings.health,
        )
        return choices if self.object_layout is None else replace(choices, gpu_layout=self.object_layout)

    @property
    def remediated(self) -> tuple[Settings, str]:
        """The settings with those of repairs that hold here, and why the GpuLayout's do not; empty where they do."""
        layout = self.object_layout
        if layout is None or not layout.remediation:
            return self.settings, ""
        over = dict(layout.remediation)
        if not self._may_reset and over.get("reset", ResetMode.NEVER) != ResetMode.NEVER:
            return self.settings, words.no_rights(layout.source, str(over["reset"]))
        merged = msgspec.convert({**msgspec.to_builtins(self.settings.remediation), **over}, Remediation)
        return replace(self.settings, remediation=merged), ""

    def heard(self, chosen: Chosen) -> bool:
        """Take the cluster's choice. True where another layout holds now; with a problem the last one stays."""
        self.problems = (chosen.problem,) if chosen.problem else ()
        if chosen.problem or chosen.layout == self.object_layout:
            return False
        self.object_layout = chosen.layout
        return True
