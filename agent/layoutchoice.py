"""Chooses the layout that holds on this node: that of the GpuLayout object that selects it, else the config file's."""

from msgspec.structs import replace

from agent.cluster.gpulayouts import Chosen
from agent.config.settings import Settings
from agent.nodestate import Choices
from inventory.layout.entries import GpuLayoutSpec


class LayoutChoice:
    """The choice of one node. ``object_layout`` is the layout of the last GpuLayout, None for none. It holds until the
    API server says otherwise: the file's layout must not take its place between a start and the first answer.
    ``settings`` are those in force: ``Agent.reconfigure`` replaces them.
    """

    def __init__(self, settings: Settings, object_layout: GpuLayoutSpec | None) -> None:
        self.settings = settings
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

    def heard(self, chosen: Chosen) -> bool:
        """Take the cluster's choice. True where another layout holds now; with a problem the last one stays."""
        self.problems = (chosen.problem,) if chosen.problem else ()
        if chosen.problem or chosen.layout == self.object_layout:
            return False
        self.object_layout = chosen.layout
        return True
