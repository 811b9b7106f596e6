"""What the cluster adds to pod templates that do not say it themselves: LimitRanges, RuntimeClasses' overheads."""

from collections.abc import Mapping

from controller.objects.core import LimitRange, RuntimeClass
from controller.objects.meta import Resources


class PodDefaults:
    """``ClusterEvents`` alone writes; what changes something returns True.

    ``overheads``: by the RuntimeClass's name.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, LimitRange]] = {}
        self._overheads: dict[str, Resources] = {}
        self.overheads: Mapping[str, Resources] = self._overheads

    def limit_ranges(self, namespace: str) -> list[LimitRange]:
        """By name, because the first default of a resource counts."""
        ranges = self._ranges.get(namespace, {})
        return [ranges[name] for name in sorted(ranges)]

    def set_limit_range(self, given: LimitRange) -> bool:
        ranges = self._ranges.setdefault(given.metadata.namespace, {})
        known = ranges.get(given.metadata.name)
        ranges[given.metadata.name] = given
        return known is None or known.spec != given.spec

    def remove_limit_range(self, namespace: str, name: str) -> bool:
        return self._ranges.get(namespace, {}).pop(name, None) is not None

    def set_runtime_class(self, given: RuntimeClass) -> bool:
        overhead = given.overhead.pod_fixed if given.overhead is not None else {}
        if self._overheads.get(given.metadata.name) == overhead:
            return False
        self._overheads[given.metadata.name] = overhead
        return True

    def remove_runtime_class(self, name: str) -> bool:
        return self._overheads.pop(name, None) is not None
