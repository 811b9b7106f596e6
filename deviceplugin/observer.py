"""What this room tells its owner, for metrics and logs. Every method must return at once and never raise."""

from typing import Protocol

from inventory.ids import ResourceName


class PluginObserver(Protocol):
    """Implemented by the agent's metrics; ``SilentObserver`` for none."""

    def registered(self, resource: ResourceName, error: str | None) -> None:
        """A registration with the kubelet succeeded (``error`` is None) or failed."""

    def stream_opened(self, resource: ResourceName) -> None: ...

    def stream_closed(self, resource: ResourceName) -> None: ...

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        """An Allocate or GetPreferredAllocation was answered."""


class SilentObserver:
    def registered(self, resource: ResourceName, error: str | None) -> None: ...

    def stream_opened(self, resource: ResourceName) -> None: ...

    def stream_closed(self, resource: ResourceName) -> None: ...

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None: ...
