"""Names of namespaces, including those that are gone."""

from controller.cluster.watching.kinds import reader
from controller.objects.core import Namespace


class SeenNamespaces:
    """A decoder for the watch of Namespaces that keeps the name of each it ever saw: stories name some that are
    gone.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._read = reader(Namespace)

    def read(self, raw: bytes) -> Namespace:
        found = self._read(raw)
        self.seen.add(found.metadata.name)
        return found
