"""Parts of a controller's configuration by which its cluster is judged, and that no object of the API says."""

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(ge=0)]


class Settings(Struct, frozen=True, kw_only=True, rename="camel"):
    """The defaults accuse nobody: what is not known to be promised is not demanded.

    ``unmanaged``: namespaces in which nothing is queued. ``queues_pods``: plain pods with a queue's label are queued.
    ``device_classes``: by DeviceClass the resource as which its devices are charged. ``uncounted``: beginnings of names
    of resources that are charged as something else, or not at all. ``backfill``: in a StrictFIFO queue a workload may
    pass another. ``moves_per_hour`` None: moves are not counted.
    """

    unmanaged: tuple[str, ...] = ("kube-system",)
    queues_pods: bool = False
    device_classes: dict[str, str] = {}
    uncounted: tuple[str, ...] = ()
    backfill: bool = True
    minimum_runtime_s: Seconds = 0.0
    minimum_runtime_by_class: dict[str, Seconds] = {}
    move_after_s: Seconds = 0.0
    moves_per_hour: Annotated[int, Meta(ge=0)] | None = None
